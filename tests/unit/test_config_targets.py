"""Models with targets: what may stand in the file, what becomes of it, and every mistake with its line."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.core.models import Strategy
from modelmeter_server.core.requests import SchemaMode, Sensitivity
from modelmeter_server.engine.breaker import BreakerRules
from modelmeter_server.parts import make_catalog, make_driver

PROVIDERS = """\
[providers.a]
kind = "anthropic"
api_key_env = "KEY"
[providers.b]
kind = "anthropic"
api_key_env = "KEY"
[providers.o]
kind = "openai_responses"
api_key_env = "KEY"
[models."one"]
provider = "a"
model = "claude"
price = { currency = "USD", input = "1", output = "2" }
[models."two"]
provider = "o"
model = "gpt"
price = { currency = "USD", input = "3", output = "4" }
max_sensitivity = "internal"
max_output_tokens = 100
[models."vectors"]
provider = "o"
model = "small"
task = "embedding"
price = { currency = "USD", input = "1" }
[models."m"]
"""
FIRST = PROVIDERS.count("\n") + 1
"""Line of the first key of the model with targets."""


@pytest.fixture
def read(tmp_path):
    """Return a function that loads a document whose last model is the one with targets."""

    def load_with(text):
        file = tmp_path / "m.toml"
        file.write_text(PROVIDERS + text)
        return load(file, {"KEY": "sk-1"})

    return load_with


@pytest.fixture
def mistakes_of(read):
    """Return a function that returns the lines, keys and words of a document's mistakes."""

    def load_and_catch(text):
        with pytest.raises(ConfigError) as caught:
            read(text)
        return [
            (int(each.where.rpartition(":")[2]) - FIRST, each.path, f"{each.problem}; {each.fix}")
            for each in caught.value.mistakes
        ]

    return load_and_catch


def spec_of(settings):
    drivers = {each.name: make_driver(each) for each in settings.providers}
    return make_catalog(settings, drivers).find("m")


async def test_a_target_is_another_model_or_the_section_itself_at_a_provider(read):
    settings = read(
        'model = "claude"\nbuffered = true\nprice = { currency = "USD", input = "5", output = "6" }\n'
        'targets = [{ model = "one" }, { provider = "b" }, { provider = "o", model = "gpt-5" }]\n'
    )
    (route,) = settings.routes
    assert [(each.model.provider, each.model.model, each.model.buffered) for each in route.targets] == [
        ("a", "claude", False),
        ("b", "claude", True),
        ("o", "gpt-5", True),
    ]
    assert [each.name for each in spec_of(settings).route.targets] == ["a/claude", "b/claude", "o/gpt-5"]


async def test_targets_have_the_name_and_the_identity_of_the_model_that_has_them(read):
    model = spec_of(read('identity = "acme/smart"\ntargets = [{ model = "one" }, { model = "two" }]\n'))
    assert {(each.model.name, each.model.identity) for each in model.route.targets} == {("m", "acme/smart")}
    assert model.identity == "acme/smart"


@pytest.mark.parametrize(
    ("targets", "identity"),
    [
        ('{ provider = "a" }, { provider = "b" }', "anthropic/claude"),
        ('{ provider = "a" }, { model = "two" }', "models/m"),
    ],
)
async def test_an_undeclared_identity_is_what_all_targets_are_else_the_models_own_name(
    read, targets, identity
):
    price = 'price = { currency = "USD", input = "5", output = "6" }\n'
    assert spec_of(read(f'model = "claude"\n{price}targets = [{targets}]\n')).identity == identity


async def test_such_a_model_can_do_what_the_least_of_its_targets_can(read):
    model = spec_of(read('targets = [{ model = "one" }, { model = "two" }]\n'))
    assert model.max_output_tokens == 100
    assert model.max_sensitivity is Sensitivity.PUBLIC
    assert model.price is None
    assert model.capabilities.sampling == ("temperature", "top_p")
    assert model.capabilities.schema_modes == (SchemaMode.NATIVE, SchemaMode.FORCED_TOOL)
    assert (model.provider, model.provider_kind, model.provider_model) == ("", "", "")


async def test_choice_weights_and_stickiness_are_read(read):
    settings = read(
        'strategy = "least_loaded"\nsticky_runs = true\n'
        'targets = [{ model = "one", weight = 3 }, { model = "two" }]\n'
    )
    (route,) = settings.routes
    assert (route.strategy, route.sticky_runs) == (Strategy.LEAST_LOADED, True)
    assert [each.weight for each in route.targets] == [3, 1]


def test_a_provider_has_its_breaker(read):
    settings = read(
        'targets = [{ model = "one" }]\n[providers.c]\nkind = "replay"\n'
        "breaker = { failures = 2, failure_share = 0.1, least_calls = 3, window = 4, open_seconds = 5, "
        "most_open_seconds = 6, probes = 7 }\n"
    )
    assert settings.provider("c").breaker == BreakerRules(
        failures=2,
        failure_share=0.1,
        least_calls=3,
        window=4.0,
        open_seconds=5.0,
        most_open_seconds=6.0,
        probes=7,
    )
    assert settings.provider("a").breaker == BreakerRules()


@pytest.mark.parametrize(
    ("text", "line", "path", "words"),
    [
        ("targets = []", 0, "targets", "names no target"),
        ('targets = "one"', 0, "targets", "is a string; write an array of tables"),
        ("targets = [\n  3,\n]", 1, "targets[0]", "is not a table"),
        (
            'targets = [\n{ model = "one" },\n{ model = "to" },\n]',
            2,
            "targets[1].model",
            'did you mean "two"',
        ),
        ('targets = [{ model = "nothing" }]', 0, "targets[0].model", 'there is no model "nothing"'),
        ('targets = [{ provider = "x", model = "y" }]', 0, "targets[0].provider", 'no provider "x"'),
        ('targets = [{ provider = "a" }]', 0, "targets[0]", 'lacks "model"'),
        ('targets = [{ model = "m" }]', 0, "targets[0].model", "has targets itself"),
        (
            'targets = [{ model = "n" }]\n[models.n]\ntargets = [{ model = "one" }]',
            0,
            "targets[0].model",
            "itself",
        ),
        ('targets = [{ model = "one" },\n{ model = "vectors" }]', 1, "targets[1]", "is for embeddings"),
        (
            'targets = [{ model = "one" },\n{ model = "one" }]',
            1,
            "targets[1]",
            'target already: "claude" at "a"',
        ),
        ('targets = [{ model = "one", wait = 1 }]', 0, "targets[0].wait", "unknown key"),
        ('targets = [{ model = "one", weight = 1 }]', 0, "targets[0].weight", "ordered targets leave none"),
        ('strategy = "weighted"\ntargets = [{ model = "one", weight = 0 }]', 1, "targets[0].weight", "range"),
        ('sticky_runs = true\ntargets = [{ model = "one" }]', 0, "sticky_runs", "ordered targets leave none"),
        ('strategy = "random"\ntargets = [{ model = "one" }]', 0, "strategy", "is not a known value"),
        ('provider = "a"\ntargets = [{ model = "one" }]', 0, "provider", "no provider of its own"),
        (
            'buffered = true\ntargets = [{ model = "one" }]',
            0,
            "buffered",
            "holds for targets that name a prov",
        ),
        ('strategi = "weighted"\ntargets = [{ model = "one" }]', 0, "strategi", 'did you mean "strategy"'),
        ('identity = "a b"\ntargets = [{ model = "one" }]', 0, "identity", "is no name"),
        (
            'model = "claude"\nprice = { currency = "EUR", input = "1", output = "2" }\n'
            'targets = [{ model = "one" },\n{ provider = "b" }]',
            3,
            "targets[1]",
            "is priced in EUR, and the first target in USD",
        ),
        ('model = "c"\ntargets = [{ model = "one" },\n{ provider = "b" }]', 2, "targets[1]", "has no bound"),
        (
            'task = "embedding"\nprice = { currency = "USD", input = "1" }\n'
            'targets = [{ model = "vectors" },\n{ provider = "o", model = "large" }]',
            3,
            "targets[1]",
            "vectors of two models cannot be compared",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_and_its_key(mistakes_of, text, line, path, words):
    ((where, key, told),) = mistakes_of(text + "\n")
    assert where == (line if path else -1)
    assert key == ("models.m." + path).rstrip(".")
    assert words in told


def test_a_target_that_lacks_a_model_is_told_where_it_stands_also_beside_an_unknown_provider(mistakes_of):
    text = 'targets = [\n{ model = "one" },\n{ provider = "x" },\n{ provider = "a" },\n]\n'
    found = mistakes_of(text + 'price = { currency = "USD", input = "1", output = "2" }\n')
    assert [(line, path, told.partition(";")[0]) for line, path, told in found] == [
        (2, "models.m.targets[1].provider", 'there is no provider "x"'),
        (2, "models.m.targets[1]", 'lacks "model"'),
        (3, "models.m.targets[2]", 'lacks "model"'),
    ]


def test_a_mistake_that_holds_for_several_targets_is_told_once(mistakes_of):
    text = 'model = "c"\nmax_output_tokens = 0\ntargets = [{ provider = "a" }, { provider = "b" }]\n'
    assert [(line, path) for line, path, _ in mistakes_of(text)] == [(1, "models.m.max_output_tokens")]


def test_more_targets_than_a_call_looks_at_are_refused(mistakes_of):
    targets = ", ".join(f'{{ provider = "a", model = "m{n}" }}' for n in range(33))
    ((_, path, told),) = mistakes_of(f"targets = [{targets}]\n")
    assert (path, told) == ("models.m.targets", "names 33 targets; name 32 at most")


@pytest.mark.parametrize(
    ("breaker", "key", "words"),
    [
        ("{ failures = 0 }", "failures", "from 1 to"),
        ("{ failure_share = 0 }", "failure_share", "above 0, up to 1"),
        ("{ failure_share = 1.1 }", "failure_share", "above 0, up to 1"),
        ("{ failure_share = nan }", "failure_share", "above 0, up to 1"),
        ("{ open_seconds = 0 }", "open_seconds", "above 0"),
        ("{ most_open_seconds = 2 }", "most_open_seconds", "less than open_seconds, which is 5"),
        ("{ probes = 0 }", "probes", "from 1 to"),
        ("{ probe = 1 }", "probe", "unknown key"),
    ],
)
def test_a_mistake_in_a_breaker_is_told(mistakes_of, breaker, key, words):
    text = f'targets = [{{ model = "one" }}]\n[providers.c]\nkind = "replay"\nbreaker = {breaker}\n'
    ((line, path, told),) = mistakes_of(text)
    assert (line, path) == (3, f"providers.c.breaker.{key}")
    assert words in told


def test_a_tenant_may_be_allowed_a_model_with_targets(read):
    text = 'targets = [{ model = "one" }]\n[identity]\n[tenants.t]\nmodels = ["m"]\ncertificates = ["cn:x"]\n'
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert not [each for each in caught.value.mistakes if each.path.startswith("tenants.t.models")]


def test_a_model_named_like_a_providers_own_and_served_by_targets_is_refused(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text(PROVIDERS.replace('"m"', '"a/m"') + 'targets = [{ model = "one" }]\n')
    with pytest.raises(ConfigError, match='reads as a model of provider "a"'):
        load(file, {"KEY": "sk-1"})
