"""Where the keys of a provider instance may come from."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, KeySettings, Secret, load

ENVIRON = {"A": "sk-a", "B": " sk-b\n", "BAD": "two words", "PATH": "/usr/bin:/bin"}
START = '[providers.p]\nkind = "anthropic"\nallow_direct_models = true\n'


@pytest.fixture
def read(tmp_path):
    """Return a function that loads a provider with these lines, in a folder with a key, an empty file and a program."""
    (tmp_path / "key").write_text("sk-file\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "program").write_text("#!/bin/sh\necho sk\n")
    (tmp_path / "program").chmod(0o700)

    def load_lines(lines, **options):
        (tmp_path / "m.toml").write_text(START + lines)
        return load(tmp_path / "m.toml", ENVIRON, **options).providers[0].keys

    return load_lines


def test_one_key_comes_from_a_variable_a_file_or_a_command(read, tmp_path):
    assert read('api_key_env = "A"') == (KeySettings(value=Secret("sk-a")),)
    file = tmp_path / "key"
    assert read('api_key_file = "key"') == (KeySettings(value=Secret("sk-file"), file=file),)
    command = (str(tmp_path / "program"), "--name", "x y")
    assert read('api_key_command = ["./program", "--name", "x y"]\napi_key_ttl = 5') == (
        KeySettings(command=(str(tmp_path / "." / "program"), *command[1:]), ttl=5.0),
    )
    assert read('api_key_command = ["sh", "-c", "echo sk"]')[0].command == ("sh", "-c", "echo sk")


def test_several_keys_keep_their_order_and_may_be_of_any_sort(read, tmp_path):
    assert read('api_key_envs = ["A", "B"]') == tuple(
        KeySettings(value=Secret(each)) for each in ("sk-a", "sk-b")
    )
    keys = read('api_keys = [{ file = "key" }, { env = "A" }, { command = ["sh"], ttl = 60 }]')
    assert [(each.file, each.value, each.command, each.ttl) for each in keys] == [
        (tmp_path / "key", Secret("sk-file"), (), 300.0),
        (None, Secret("sk-a"), (), 300.0),
        (None, None, ("sh",), 60.0),
    ]


def test_no_key_is_read_where_the_file_is_only_checked(read):
    assert (
        read(
            'api_keys = [{ env = "NOT_HERE" }, { file = "not here" }, { command = ["not-here"] }]',
            read_keys=False,
        )
        == ()
    )


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "has no key"),
        ('api_key_envs = ["A", "B", "A"]', "providers.p.api_key_envs: names a key that is there already"),
        (
            'api_keys = [{ env = "A" }, { env = "A" }]',
            "providers.p.api_keys[1].env: names a key that is there already",
        ),
        ('api_keys = [{ file = "key" }, { env = "A" }, { file = "./key" }]', "api_keys[2].file: names a key"),
        (
            'api_keys = [{ command = ["sh"] }, { command = ["sh"], ttl = 9 }]',
            "api_keys[1].command: names a key",
        ),
        ('api_key_env = "A"\napi_key_file = "key"', "providers.p.api_key_file: there are two sources"),
        ('api_key_env = "A"\napi_keys = [{ env = "B" }]', "providers.p.api_keys: there are two sources"),
        ('api_key_env = "MISSING"', "the environment variable MISSING is not set"),
        ('api_key_env = "sk-pasted"', "the environment variable that it names is not set"),
        ('api_key_env = "BAD"', "api_key_env: what it names holds no key"),
        ('api_key_envs = ["A", "BAD"]', "api_key_envs: what it names holds no key"),
        ('api_key_envs = []', "api_key_envs: names no key"),
        ('api_keys = []', "api_keys: names no key"),
        ('api_key_file = "empty"', "api_key_file: what it names holds no key"),
        ('api_key_file = "gone"', "cannot read"),
        ('api_key_command = "echo sk"', "no shell reads it"),
        ("api_key_command = []", "is no command"),
        ('api_key_command = [""]', "is no command"),
        ('api_key_command = ["sh", 1]', "is no command"),
        ('api_key_command = ["sh\\u0000"]', "is no command"),
        ('api_key_command = ["not-a-program"]', "there is no program not-a-program"),
        ('api_key_command = ["./key"]', "there is no program"),
        ('api_key_env = "A"\napi_key_ttl = 5', "api_key_ttl: goes with api_key_command"),
        ('api_key_command = ["sh"]\napi_key_ttl = 0', "out of range"),
        ("api_keys = [{}]", "needs one source of one key"),
        ('api_keys = [{ env = "A", file = "key" }]', "needs one source of one key"),
        ('api_keys = [{ env = "A", ttl = 1 }]', "ttl: goes with command"),
        ('api_keys = [{ env = "A", key = "sk" }]', "unknown key"),
        ('api_keys = ["A"]', "is not a table"),
        ('api_keys = [{ env = "MISSING" }]', "the environment variable MISSING is not set"),
        ('api_key = "sk-pasted"', "a key may not stand in the file"),
    ],
)  # fmt: skip
def test_what_is_no_source_of_keys_is_a_mistake_that_shows_none(read, lines, words):
    with pytest.raises(ConfigError) as caught:
        read(lines)
    told = "\n".join(map(str, caught.value.mistakes))
    assert words in told
    assert not any(secret in told for secret in ("sk-a", "sk-b", "sk-file", "sk-pasted", "two words"))


def test_settings_with_a_command_show_no_argument(read):
    assert "hunter2" not in repr(read('api_key_command = ["sh", "--password=hunter2"]'))


def test_a_source_that_is_named_twice_is_told_also_where_the_file_is_only_checked(read):
    with pytest.raises(ConfigError, match="is there already"):
        read('api_keys = [{ env = "A" }, { env = "A" }]', read_keys=False)


def test_one_program_with_other_arguments_is_another_source(read):
    assert len(read('api_keys = [{ command = ["sh", "-c", "1"] }, { command = ["sh", "-c", "2"] }]')) == 2
