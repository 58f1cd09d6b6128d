"""Every mistake of a configuration is told with its line, its key and its remedy, all of them at once."""

from __future__ import annotations

import pytest
import trustme

from modelmeter_server.config import ConfigError, load

PROVIDER = '[providers.p]\nkind = "replay"\nallow_direct_models = true\n'
REMOTE = '[providers.p]\nkind = "anthropic"\napi_key_env = "KEY"\nallow_direct_models = true\n'
MODEL = PROVIDER + '[models.m]\nprovider = "p"\nmodel = "answer"\n'
PRICE = MODEL + '[models.m.price]\ncurrency = "USD"\ninput = "1"\noutput = "2"\n'
ENVIRON = {"KEY": "sk-1"}


@pytest.fixture
def mistakes_of(tmp_path):
    """Return a function that loads a document and returns its mistakes without the folder's name."""

    def load_and_catch(text, environ=ENVIRON, **options):
        file = tmp_path / "m.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as caught:
            load(file, environ, **options)
        lines = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
        assert len(lines) == len(caught.value.mistakes)
        return lines

    return load_and_catch


def test_five_mistakes_are_five_lines_in_the_order_of_the_file(mistakes_of):
    text = """\
[server]
drain_second = 3

[providers.a]
kind = "anthropic"
api_key_env = "NOT_SET"

[providers.b]
kind = "replay"

[models."one"]
provider = "c"
model = "answer"
max_output_tokens = "many"
price = {
    currency = "USD", input = "1", output = 2 }
""".replace("{\n    ", "{ ")
    assert mistakes_of(text) == [
        'm.toml:2: server.drain_second: unknown key; did you mean "drain_seconds"?',
        "m.toml:6: providers.a.api_key_env: the environment variable NOT_SET is not set; "
        "set it, or use api_key_file",
        'm.toml:12: models.one.provider: there is no provider "c"; name one of a, b, or add [providers.c]',
        "m.toml:14: models.one.max_output_tokens: is a string; write an integer from 1 to 2,147,483,647",
        "m.toml:15: models.one.price.output: is an integer; write a decimal number as a string, "
        'such as "0.30": no float ever touches money',
    ]


@pytest.mark.parametrize(
    ("text", "line", "path", "words"),
    [
        ("sever = 1\n" + PROVIDER, 1, "sever", 'did you mean "server"?'),
        ("server = 1\n" + PROVIDER, 1, "server", "is an integer; write a table"),
        ("[server]\nlisten = []\n" + PROVIDER, 2, "server.listen", "names no address"),
        ("[server]\nlisten = [\n  1,\n]\n" + PROVIDER, 3, "server.listen[0]", "is not a string"),
        ('[server]\nlisten = "here"\n' + PROVIDER, 2, "server.listen", 'write "host:port"'),
        ('[server]\nlisten = "h:65536"\n' + PROVIDER, 2, "server.listen", 'write "host:port"'),
        ('[server]\nlisten = "unix:x"\n' + PROVIDER, 2, "server.listen", "no absolute path"),
        ('[server]\nlisten = "0.0.0.0:1"\n' + PROVIDER, 2, "server.listen", "there is no TLS"),
        ('[server]\nlisten = "[::]:1"\n' + PROVIDER, 2, "server.listen", "there is no TLS"),
        ('[server]\nlisten = "mine:1"\n' + PROVIDER, 2, "server.listen", "there is no TLS"),
        ("[server]\ndrain_seconds = -1\n" + PROVIDER, 2, "server.drain_seconds", "from 0 on"),
        ("[server]\ndrain_seconds = nan\n" + PROVIDER, 2, "server.drain_seconds", "out of range"),
        ("[server]\ndrain_seconds = true\n" + PROVIDER, 2, "server.drain_seconds", "is a boolean"),
        ("[server]\nmax_concurrent_calls = 0\n" + PROVIDER, 2, "server.max_concurrent_calls", "from 1 to"),
        ("[server]\nmax_queued_calls = -1\n" + PROVIDER, 2, "server.max_queued_calls", "from 0 to"),
        ("[server]\nqueue_seconds = 0\n" + PROVIDER, 2, "server.queue_seconds", "above 0"),
        ("[server]\nstream_buffer_bytes = 1\n" + PROVIDER, 2, "server.stream_buffer_bytes", "from 1,024"),
        ("[server]\nslow_reader_seconds = 0\n" + PROVIDER, 2, "server.slow_reader_seconds", "above 0"),
        (PROVIDER + "max_concurrent_calls = 0", 4, "providers.p.max_concurrent_calls", "from 1 to"),
        ("[tenants.t.limits]\nqueued = -1\n" + PROVIDER, 2, "tenants.t.limits.queued", "from 0 to"),
        ("[tenants.t.limits]\nconcurent = 1\n" + PROVIDER, 2, "tenants.t.limits.concurent", '"concurrent"?'),
        (MODEL + "limits = { queued = 1 }", 7, "models.m.limits.queued", "goes with tenants"),
        (
            MODEL + "limits = { tokens_per_minute = 0 }",
            7,
            "models.m.limits.tokens_per_minute",
            "out of range",
        ),
        ('[server]\nlog_level = "inf"\n' + PROVIDER, 2, "server.log_level", 'did you mean "info"?'),
        ("[server]\nallow_insecure = 1\n" + PROVIDER, 2, "server.allow_insecure", "write true or false"),
        ("[server]\ntls = { key = '/no' }\n" + PROVIDER, 2, "server.tls", 'lacks "certificate"'),
        ('[ledger]\nurl = "mysql://x"\n' + PROVIDER, 2, "ledger.url", "is not valid"),
        ('[ledger]\nurl = "sqlite:///:memory:"\n' + PROVIDER, 2, "ledger.url", "is not valid"),
        (
            '[ledger]\nurl = "none"\nreplay_only = true\n' + PROVIDER,
            3,
            "ledger.replay_only",
            "needs a ledger",
        ),
        ("[ledger]\nlease = 0.5\n" + PROVIDER, 2, "ledger.lease", "out of range"),
        ('[ledger]\nwebhook_url = "hooks"\n' + PROVIDER, 2, "ledger.webhook_url", "is not a web address"),
        ("[providers]\np = 1\n", 2, "providers.p", "[providers.NAME]"),
        ("[providers.p]\n", 1, "providers.p", 'lacks "kind"'),
        ('[providers.p]\nkind = "antropic"\n', 2, "providers.p.kind", 'did you mean "anthropic"?'),
        ('[providers.p]\nkind = "else"\n', 2, "providers.p.kind", '"openai_responses" or "replay"'),
        (PROVIDER.replace(".p]", '."a/b"]'), 1, 'providers."a/b"', "before the slash"),
        (PROVIDER + 'base_url = "x"', 4, "providers.p.base_url", "unknown key"),
        (PROVIDER + 'scripts = "no.toml"', 4, "providers.p.scripts", "No such file"),
        (MODEL.replace("answer", "anser"), 6, "models.m.model", 'did you mean "answer"?'),
        (PROVIDER + "timeouts = { idle = 0 }", 4, "providers.p.timeouts.idle", "above 0"),
        (PROVIDER + "timeouts = { idel = 1 }", 4, "providers.p.timeouts.idel", 'did you mean "idle"?'),
        (REMOTE + "limits = { connections = 0.5 }", 5, "providers.p.limits.connections", "is a float"),
        (REMOTE + 'base_url = "host"', 5, "providers.p.base_url", "must be absolute"),
        (REMOTE + 'base_url = "http://host"', 5, "providers.p.base_url", "unencrypted"),
        (REMOTE + 'proxy = "https://host"', 5, "providers.p.proxy", "must start with http://"),
        (REMOTE + 'ca_file = "m.toml"', 5, "providers.p.ca_file", "no PEM certificate"),
        (REMOTE + 'api_key_file = "m.toml"', 5, "providers.p.api_key_file", "two sources"),
        (
            REMOTE.replace('api_key_env = "KEY"\n', ""),
            1,
            "providers.p",
            "has no key; put the key into the env",
        ),
        (REMOTE.replace('"KEY"', '""'), 3, "providers.p.api_key_env", "is empty"),
        (PROVIDER.replace("true", "false"), 1, "models", "nothing could be called"),
        (PROVIDER + "[models]\nm = 1", 5, "models.m", "[models.NAME]"),
        (PROVIDER + '[models." "]\nprovider = "p"\nmodel = "x"', 4, 'models." "', "printable ASCII"),
        (
            MODEL.replace(".m]", '."q/x"]') + "[providers.q]\nkind = 'replay'",
            4,
            'models."q/x"',
            'provider "q"',
        ),
        (PROVIDER + '[models.m]\nprovider = "p"', 4, "models.m", 'lacks "model"'),
        (PROVIDER + '[models.m]\nmodel = "x"', 4, "models.m", 'lacks "provider"'),
        (MODEL + 'schema_mode = "forced"', 7, "models.m.schema_mode", 'did you mean "forced_tool"?'),
        (MODEL + 'schema_check = "no"', 7, "models.m.schema_check", '"enforce"'),
        (MODEL + 'max_sensitivity = "hidden"', 7, "models.m.max_sensitivity", 'write "public"'),
        (MODEL + 'output_sensitivity = "secrets"', 7, "models.m.output_sensitivity", 'mean "secret"'),
        (MODEL + "retry = 3", 7, "models.m.retry", "such as { max_attempts = 3 }"),
        (MODEL + "retry.max_attempts = 0", 7, "models.m.retry.max_attempts", "from 1 to 20"),
        (MODEL + "retry.ambiguous = true", 7, "models.m.retry.ambiguous", "write max_attempts"),
        (MODEL + "retry.landed = true", 7, "models.m.retry.landed", "write max_attempts"),
        (MODEL + "retry.max_wait = 3601", 7, "models.m.retry.max_wait", "at most 3600 seconds"),
        (
            MODEL + "retry.max_wait = 0.1",
            7,
            "models.m.retry.max_wait",
            "initial_wait is 0.5 and max_wait 0.1",
        ),
        (MODEL + "retry.initial_wait = 99", 7, "models.m.retry.initial_wait", "raise max_wait"),
        (MODEL + "retry.attempts = 3", 7, "models.m.retry.attempts", 'did you mean "max_attempts"?'),
        (MODEL + "hosted_tools = [1]", 7, "models.m.hosted_tools[0]", "is not a string"),
        (MODEL + 'service_tier = "so fast"', 7, "models.m.service_tier", "is no tier"),
        (MODEL + "service_tier = 1", 7, "models.m.service_tier", "is an integer"),
        (MODEL + "price = {}", 7, "models.m.price", 'lacks "currency"'),
        (PRICE.replace("USD", "usd"), 8, "models.m.price.currency", "three capital letters"),
        (PRICE + 'cache_read = "-1"', 11, "models.m.price.cache_read", "between 0 and"),
        (PRICE + 'cache_reed = "1"', 11, "models.m.price.cache_reed", 'did you mean "cache_read"?'),
        (PRICE + "tiers = [1]", 11, "models.m.price.tiers[0]", "is not a table"),
        (
            PRICE + "hosted_tool_requests.search = 1",
            11,
            "models.m.price.hosted_tool_requests.search",
            "string",
        ),
        (
            PRICE + '[[models.m.price.tiers]]\ninput = "1"\noutput = "2"',
            11,
            "models.m.price.tiers[0]",
            "same calls",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line_its_key_and_its_remedy(mistakes_of, text, line, path, words):
    found = mistakes_of(text)
    assert [one for one in found if one.startswith(f"m.toml:{line}: {path}: ") and words in one], found


def test_a_mistake_in_a_provider_brings_no_second_one_in_its_models(mistakes_of):
    assert len(mistakes_of(MODEL.replace('"replay"', '"repaly"'))) == 1


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        (b"a = 1\na = 2\n", "m.toml:2", "Cannot overwrite a value"),
        (b"[models.m]\n[models.'m']\n", "m.toml:2", "twice"),
        (b"a = [\n", "m.toml:1", "is not TOML"),
        (b"a = 1\nb = [\n  1,\n\n\n", "m.toml:3", "Invalid value (at end of document)"),
        (b'a = 1\nb = """\nno end', "m.toml:3", "(at end of document)"),
        (b"a = '\xff'\n", "m.toml", "is not UTF-8 at byte 5"),
        (b"a = " + b"[" * 20_000, "m.toml", "nested too deeply"),
    ],
)
def test_a_file_that_is_not_toml_is_told_in_one_line(mistakes_of, text, where, words):
    (line,) = mistakes_of(text)
    assert line.startswith(f"{where}: ")
    assert words in line


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_told_in_one_line(tmp_path, name):
    with pytest.raises(ConfigError, match=r"cannot be read: .*; correct the path"):
        load(tmp_path / name, {})


@pytest.mark.parametrize(
    ("variable", "value", "path", "words"),
    [
        ("MODELMETER_LISTEN", "nonsense", "server.listen", 'write "host:port"'),
        ("MODELMETER_LISTEN", "0.0.0.0:1", "server.listen", "there is no TLS"),
        ("MODELMETER_DRAIN_SECONDS", "soon", "server.drain_seconds", "write a number"),
        ("MODELMETER_MAX_CONCURRENT_CALLS", "1.5", "server.max_concurrent_calls", "write an integer"),
        ("MODELMETER_ALLOW_INSECURE", "perhaps", "server.allow_insecure", "write true or false"),
        ("MODELMETER_LOG_LEVEL", "loud", "server.log_level", 'write "debug"'),
    ],
)
def test_a_mistake_in_the_environment_names_its_variable(mistakes_of, variable, value, path, words):
    (line,) = mistakes_of(PROVIDER, {variable: value})
    assert line.startswith(f"environment variable {variable}: {path}: ")
    assert words in line


def test_a_mistake_on_the_command_line_names_its_option(mistakes_of):
    (line,) = mistakes_of(PROVIDER, listen=["nonsense"])
    assert line.startswith("option --listen: server.listen: ")


def test_a_certificate_that_does_not_belong_to_its_key_is_told(mistakes_of, tmp_path):
    authority = trustme.CA()
    authority.issue_cert("one").cert_chain_pems[0].write_to_path(tmp_path / "one.pem")
    authority.issue_cert("two").private_key_pem.write_to_path(tmp_path / "two.key")
    (line,) = mistakes_of('[server]\ntls = { certificate = "one.pem", key = "two.key" }\n' + PROVIDER)
    assert line.startswith("m.toml:2: server.tls.certificate: TLS cannot use it with its key")


KEY = "sk-ant-do-not-show"


@pytest.mark.parametrize(
    ("text", "environ"),
    [
        (f'[providers.p]\nkind = "anthropic"\napi_key = "{KEY}"\n', {}),
        (f'[providers.p]\nkind = "anthropic"\napi_key_env = "{KEY}"\n', {}),
        (f'[providers.p]\nkind = "anthropic"\nkey = "{KEY}"\n', {}),
        (REMOTE + f'base_url = "https://u:{KEY}@host"\n', ENVIRON),
        (REMOTE + f'proxy = "ftp://u:{KEY}@host"\n', ENVIRON),
        (REMOTE, {"KEY": f"{KEY} with a comment"}),
    ],
)
def test_no_mistake_shows_a_key_that_stands_in_the_wrong_place(mistakes_of, text, environ):
    lines = mistakes_of(text + '[models.m]\nprovider = "p"\nmodel = "m"\n', environ)
    assert lines
    assert not [line for line in lines if KEY in line]


def test_a_key_in_the_file_is_refused_with_the_remedy(mistakes_of):
    (line,) = mistakes_of('[providers.p]\nkind = "anthropic"\nallow_direct_models = true\napi_key = "sk"\n')
    assert line == (
        "m.toml:4: providers.p.api_key: a key may not stand in the file; "
        'put the key into the environment and write api_key_env = "ANTHROPIC_API_KEY"'
    )


@pytest.mark.parametrize("content", [b"", b" \n", b"two words\n", b"\xff\xfe\n"])
def test_a_key_file_without_a_key_is_told(mistakes_of, tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    (line,) = mistakes_of(REMOTE.replace('env = "KEY"', 'file = "key"'))
    assert line.startswith("m.toml:3: providers.p.api_key_file: what it names holds no key")


def test_the_mistakes_of_a_script_file_are_told_with_its_own_lines(mistakes_of, tmp_path):
    (tmp_path / "s.toml").write_text("[scripts.a]\n\ntxt = 1\n[scripts.b]\npause = -1\n")
    first, second = mistakes_of(PROVIDER + 'scripts = "s.toml"\n')
    assert first.startswith("s.toml:3: scripts.a.txt: unknown key")
    assert second.startswith("s.toml:5: scripts.b.pause: ")


def test_a_script_file_that_is_not_toml_is_told_by_its_name(mistakes_of, tmp_path):
    (tmp_path / "s.toml").write_text("[scripts.a\n")
    (line,) = mistakes_of(PROVIDER + 'scripts = "s.toml"\n')
    assert line.startswith("s.toml: is not TOML")


@pytest.mark.parametrize("kind", ['"anthropc"', '"something else"', "7"])
def test_a_key_and_a_bad_address_are_told_beside_a_kind_that_is_none(mistakes_of, kind):
    text = f'[providers.p]\nkind = {kind}\nbase_url = "ftp://x"\napi_key = "sk-live"\n'
    lines = mistakes_of(text)
    assert [line.split(" ")[1] for line in lines] == [
        "providers.p.kind:",
        "providers.p.base_url:",
        "providers.p.api_key:",
    ]
    assert "sk-live" not in "".join(lines)


def test_an_instance_of_a_misspelt_kind_is_judged_as_the_kind_that_was_meant(mistakes_of):
    text = '[providers.p]\nkind = "anthropc"\nbase_ul = "https://x"\napi_key_env = "KEY"\n'
    assert [line.partition(": ")[2] for line in mistakes_of(text)] == [
        'providers.p.kind: "anthropc" is not a kind of provider; did you mean "anthropic"?',
        'providers.p.base_ul: unknown key; did you mean "base_url"?',
    ]
