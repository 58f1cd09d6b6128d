"""Paths in the configuration: what is refused, and that nothing of it is a crash or a way out."""

from __future__ import annotations

import pytest

from modelmeter_server.config import ConfigError, load

PLACES = {
    "api_key_file": '[providers.p]\nkind = "anthropic"\nallow_direct_models = true\napi_key_file = "{path}"',
    "ca_file": '[providers.p]\nkind = "anthropic"\napi_key_env = "K"\nallow_direct_models = true\nca_file = "{path}"',
    "scripts": '[providers.p]\nkind = "replay"\nallow_direct_models = true\nscripts = "{path}"',
    "credentials_file": '[providers.p]\nkind = "gemini"\nbase_url = "https://v.test"\nallow_direct_models = true\n'
    'credentials = "google"\ncredentials_file = "{path}"',
    "certificate": '[providers.p]\nkind = "replay"\nallow_direct_models = true\n'
    '[server]\ntls = {{ certificate = "{path}", key = "{path}" }}',
    "jwks_file": '[providers.p]\nkind = "replay"\nallow_direct_models = true\n[tenants.t]\n'
    '[identity.jwt]\nissuer = "i"\naudience = "a"\njwks_file = "{path}"',
    "tokens_file": '[providers.p]\nkind = "replay"\nallow_direct_models = true\n[tenants.t]\n'
    '[identity]\ntokens_file = "{path}"',
}


def mistakes(folder, place, path):
    file = folder / "m.toml"
    file.write_text(PLACES[place].format(path=path))
    with pytest.raises(ConfigError) as caught:
        load(file, {"K": "sk"})
    return "\n".join(map(str, caught.value.mistakes))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "path", ["a\\u0000b", ".", "no/such/file", "../../../../../../no/such", "~nobody-here/x"]
)
def test_a_path_that_is_no_file_is_a_mistake_of_its_key(tmp_path, place, path):
    assert place in mistakes(tmp_path, place, path)


def test_a_relative_path_starts_at_the_folder_of_the_file_and_may_leave_it(tmp_path, monkeypatch):
    inner, elsewhere = tmp_path / "etc", tmp_path / "elsewhere"
    for folder in (inner, elsewhere):
        folder.mkdir()
    (tmp_path / "key").write_text("sk-above")
    (elsewhere / "key").write_text("sk-of-the-working-directory")
    monkeypatch.chdir(elsewhere)
    (inner / "m.toml").write_text(PLACES["api_key_file"].format(path="../key"))
    (provider,) = load(inner / "m.toml", {}).providers
    assert provider.keys[0].value is not None
    assert provider.keys[0].value.reveal() == "sk-above"
    assert provider.keys[0].file == inner / ".." / "key"


def test_a_key_file_that_is_something_else_shows_nothing_of_it(tmp_path):
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nhunter2 hunter2\n")
    found = mistakes(tmp_path, "api_key_file", "passwd")
    assert "holds no key" in found
    assert "hunter2" not in found
