"""What a correct configuration becomes."""

from __future__ import annotations

import math

import msgspec
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from modelmeter_server.config import Secret, load
from modelmeter_server.config.kinds import SUPPORTED
from modelmeter_server.core.models import Capabilities, ModelSpec, Task
from modelmeter_server.core.pricing import PriceTable, Tier
from modelmeter_server.core.requests import SchemaCheckPolicy, SchemaMode, Sensitivity
from modelmeter_server.core.retry_policy import RetryPolicy
from modelmeter_server.drivers.replay import KIND, builtin_scripts
from modelmeter_server.drivers.wire_formats import WIRE_FORMATS

REPLAY = '[providers.p]\nkind = "replay"\nallow_direct_models = true\n'


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a document."""

    def write_and_load(text, environ=None, **options):
        file = tmp_path / "m.toml"
        file.write_text(text)
        return load(file, environ or {}, **options)

    return write_and_load


def test_without_a_file_every_script_of_the_replay_provider_is_served():
    settings = load(None, {})
    assert settings.server.listen == ("127.0.0.1:50051",)
    assert [provider.kind for provider in settings.providers] == ["replay"]
    scripts = builtin_scripts().names
    names = [*scripts, "embedding"]
    assert [(model.name, model.model) for model in settings.models] == [(f"replay/{s}", s) for s in names]
    assert [model.name for model in settings.models if model.task is Task.EMBEDDING] == ["replay/embedding"]
    assert {"answer", "cut", "refused", "rate_limited"} <= set(scripts)


def test_a_provider_takes_the_defaults_of_its_kind(loaded):
    (provider,) = loaded(
        '[providers.a]\nkind = "anthropic"\napi_key_env = "K"\nallow_direct_models = true', {"K": " sk \n"}
    ).providers
    assert provider.base_url == "https://api.anthropic.com"
    assert provider.keys[0].value == Secret("sk")
    assert provider.resend_on_stale_connection
    assert provider.timeouts.first_byte == 60


def test_every_key_of_a_provider_arrives(loaded, tmp_path):
    (tmp_path / "key").write_text("sk-file\n")
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (provider,) = loaded(
        """
        [providers.a]
        kind = "openai_responses"
        base_url = "https://example.com/v1"
        api_key_file = "key"
        timeouts = { connect = 1, write = 2, first_byte = 3, idle = 4, tail = 5.5, total = inf, pool = 7 }
        limits = { header_bytes = 1, answer_bytes = 2, error_body_bytes = 3, connections = 5 }
        allow_direct_models = true
        resend_on_stale_connection = false
        proxy = "http://user:password@proxy:3128"
        ca_file = "ca.pem"
        """
    ).providers
    assert provider.name == "a"
    assert provider.kind == "openai_responses"
    assert provider.base_url == "https://example.com/v1"
    assert provider.keys[0].value == Secret("sk-file")
    assert (provider.timeouts.connect, provider.timeouts.tail, provider.timeouts.total) == (1, 5.5, math.inf)
    assert (provider.limits.header_bytes, provider.limits.connections) == (1, 5)
    assert provider.allow_direct_models
    assert not provider.resend_on_stale_connection
    assert provider.proxy == Secret("http://user:password@proxy:3128")
    assert provider.ca_file == tmp_path / "ca.pem"


def test_every_key_of_a_model_arrives(loaded):
    (model,) = loaded(
        REPLAY
        + """
        [models."mine/fast"]
        provider = "p"
        model = "answer"
        schema_mode = "forced_tool"
        schema_check = "parse_only"
        max_output_tokens = 7
        max_sensitivity = "confidential"
        output_sensitivity = "internal"
        buffered = true
        allow_remote_media = true
        hosted_tools = ["web_search"]
        service_tier = "flex"
        retry = { max_attempts = 4, initial_wait = 0.25, max_wait = 12, ambiguous = true, landed = true }
        """
    ).models
    assert model.spec("replay", Capabilities()) == ModelSpec(
        name="mine/fast",
        provider="p",
        provider_kind="replay",
        provider_model="answer",
        schema_mode=SchemaMode.FORCED_TOOL,
        schema_check=SchemaCheckPolicy.PARSE_ONLY,
        max_output_tokens=7,
        max_sensitivity=Sensitivity.CONFIDENTIAL,
        output_sensitivity=Sensitivity.INTERNAL,
        buffered=True,
        allow_remote_media=True,
        hosted_tools=frozenset({"web_search"}),
        service_tier="flex",
        retry=RetryPolicy(
            max_attempts=4, initial_wait=0.25, max_wait=12, total=600, ambiguous=True, landed=True
        ),
    )


def test_a_model_is_asked_once_unless_it_says_more_and_all_attempts_get_the_time_of_one(loaded):
    text = """
        [providers.q]
        kind = "anthropic"
        api_key_env = "K"
        timeouts = { total = 45 }
        [models.m]
        provider = "q"
        model = "x"
        """
    once, thrice = (
        loaded(text + more, {"K": "sk"}).models[0].retry for more in ("", "retry = { max_attempts = 3 }")
    )
    assert (once.max_attempts, once.ambiguous, once.landed) == (1, False, False)
    assert (thrice.max_attempts, thrice.total) == (3, 45)
    assert (thrice.initial_wait, thrice.max_wait) == (0.5, 30)


def test_prices_become_integers_with_the_base_tier_first(loaded):
    (model,) = loaded(
        REPLAY
        + """
        [models.m]
        provider = "p"
        model = "answer"
        [models.m.price]
        currency = "EUR"
        input = "5"
        output = "25.5"
        cache_read = "0.5"
        cache_write = "6.25"
        cache_write_1h = "10"
        input_audio = "1"
        output_audio = "2"
        hosted_tool_requests = { web_search = "0.01" }
        [[models.m.price.tiers]]
        above_input_tokens = 200_000
        input = "10"
        output = "37.5"
        [[models.m.price.tiers]]
        service_tier = "priority"
        input = "0"
        output = "0.000000001"
        """
    ).models
    assert model.price == PriceTable(
        currency="EUR",
        tiers=(
            Tier(
                input=5_000_000_000,
                output=25_500_000_000,
                cache_read=500_000_000,
                cache_write=6_250_000_000,
                cache_write_1h=10_000_000_000,
                input_audio=1_000_000_000,
                output_audio=2_000_000_000,
            ),
            Tier(input=10_000_000_000, output=37_500_000_000, above_input_tokens=200_000),
            Tier(input=0, output=1, service_tier="priority"),
        ),
        hosted_tool_requests={"web_search": 10_000_000},
    )


@given(st.integers(0, 9_223_372_036_854_775_807))
def test_any_rate_of_nine_places_arrives_to_the_last_digit(tmp_path_factory, nanos):
    rate = f"{nanos // 10**9}.{nanos % 10**9:09}"
    file = tmp_path_factory.getbasetemp() / "rate.toml"
    price = f'{{ currency = "USD", input = "{rate}", output = "0" }}'
    file.write_text(f'{REPLAY}[models.m]\nprovider = "p"\nmodel = "answer"\nprice = {price}\n')
    (model,) = load(file, {}).models
    assert model.price is not None
    assert model.price.tiers[0].input == nanos


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(loaded):
    text = '[server]\nlisten = "127.0.0.1:1"\n' + REPLAY
    environ = {"MODELMETER_LISTEN": "127.0.0.1:2, [::1]:2"}
    assert loaded(text).server.listen == ("127.0.0.1:1",)
    assert loaded(text, environ).server.listen == ("127.0.0.1:2", "[::1]:2")
    assert loaded(text, environ, listen=["127.0.0.1:3"]).server.listen == ("127.0.0.1:3",)


def test_the_environment_overrides_what_is_documented():
    environ = {
        "MODELMETER_LISTEN": "0.0.0.0:50051",
        "MODELMETER_DRAIN_SECONDS": "1.5",
        "MODELMETER_DRAIN_DELAY_SECONDS": "5",
        "MODELMETER_WORKERS": "3",
        "MODELMETER_MAX_CONCURRENT_CALLS": "7",
        "MODELMETER_ALLOW_ANONYMOUS": "true",
        "MODELMETER_ALLOW_INSECURE": "true",
        "MODELMETER_LOG_LEVEL": "WARNING",
    }
    server = load(None, environ).server
    assert msgspec.structs.asdict(server) == {
        "listen": ("0.0.0.0:50051",),
        "drain_seconds": 1.5,
        "drain_delay_seconds": 5.0,
        "max_connection_age_seconds": float("inf"),
        "workers": 3,
        "reload_on_change": True,
        "private_listen": "",
        "private_allow_insecure": False,
        "admin_service": "public",
        "max_concurrent_calls": 7,
        "max_queued_calls": 100,
        "queue_seconds": 5.0,
        "stream_buffer_bytes": 262_144,
        "slow_reader_seconds": 60.0,
        "max_sessions": 1000,
        "session_idle_seconds": 900.0,
        "session_age_seconds": 86_400.0,
        "allow_anonymous": True,
        "allow_insecure": True,
        "tls": None,
        "log_level": "warning",
        "reflection": True,
    }


def test_an_empty_variable_counts_as_unset():
    assert load(None, {"MODELMETER_LISTEN": " ", "MODELMETER_CONFIG": ""}) == load(None, {})


def test_variables_that_kubernetes_sets_for_a_service_of_this_name_are_no_mistake():
    environ = {"MODELMETER_PORT": "tcp://10.0.0.1:50051", "MODELMETER_SERVICE_HOST": "10.0.0.1"}
    assert load(None, environ) == load(None, {})


def test_a_line_break_at_the_end_of_a_secret_is_no_part_of_the_ledgers_url():
    url = "postgresql://meter:secret@db/meter"
    assert load(None, {"MODELMETER_LEDGER_URL": f"{url}\n"}).ledger.url == url


def test_the_environment_may_name_the_file(tmp_path):
    (tmp_path / "m.toml").write_text(REPLAY)
    settings = load(None, {"MODELMETER_CONFIG": str(tmp_path / "m.toml")})
    assert [provider.name for provider in settings.providers] == ["p"]


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path):
    (tmp_path / "m.toml").write_bytes(b"\xef\xbb\xbf" + REPLAY.replace("\n", "\r\n").encode())
    assert load(tmp_path / "m.toml", {}).provider("p") is not None


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:0", "127.8.9.1:1", "localhost:1", "[::1]:65535", "unix:/run/modelmeter.sock"],
)
def test_addresses_of_this_machine_need_no_tls(loaded, address):
    assert loaded(f'[server]\nlisten = "{address}"\n' + REPLAY).server.listen == (address,)


def test_other_addresses_are_served_with_tls_or_when_said_explicitly(loaded, tmp_path):
    certificate = trustme.CA().issue_cert("host")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "c.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "c.key")
    listen = '[server]\nallow_anonymous = true\nlisten = ["0.0.0.0:1", "host.example:1"]\n'
    assert loaded(listen + "allow_insecure = true\n" + REPLAY).server.allow_insecure
    server = loaded(listen + 'tls = { certificate = "c.pem", key = "c.key" }\n' + REPLAY).server
    assert server.tls is not None
    assert server.tls.key == tmp_path / "c.key"


def test_a_server_of_ones_own_may_need_no_key(loaded):
    text = '[providers.a]\nkind = "anthropic"\nbase_url = "http://127.0.0.1:1"\nallow_direct_models = true\n'
    assert loaded(text).providers[0].keys == ()


def test_keys_stay_unread_when_they_are_not_to_be_checked(loaded):
    text = '[providers.a]\nkind = "anthropic"\napi_key_env = "NOT_SET"\nallow_direct_models = true\n'
    assert loaded(text, read_keys=False).providers[0].keys == ()


def test_a_name_with_a_slash_may_name_its_own_provider(loaded):
    assert loaded(REPLAY + '[models."p/x"]\nprovider = "p"\nmodel = "answer"').models[0].name == "p/x"


def test_the_kinds_of_providers_are_those_that_there_are_drivers_for():
    assert set(SUPPORTED) == {*WIRE_FORMATS, KIND}


def test_scripts_of_ones_own_stand_beside_the_built_in_ones(loaded, tmp_path):
    (tmp_path / "own.toml").write_text('[scripts.mine]\ntext = "Hello."\n')
    text = (
        '[providers.p]\nkind = "replay"\nscripts = "own.toml"\n[models.m]\nprovider = "p"\nmodel = "mine"\n'
    )
    scripts = loaded(text).providers[0].scripts
    assert scripts is not None
    assert scripts.find("mine") is not None
    assert scripts.find("answer") is not None
