"""How one configuration differs from another: which keys, and which of them wait for a restart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trustme

from modelmeter_server.config import Changes, Settings, compare, load

BASE = """
[server]
drain_seconds = 5
[ledger]
url = "none"
[providers.p]
kind = "anthropic"
api_key_file = "p.key"
[providers.q]
kind = "replay"
[models.m]
provider = "p"
model = "claude"
price = { currency = "USD", input = "1", output = "2" }
[identity]
tokens_file = "tokens.json"
[tenants.acme]
models = ["m"]
"""


class Folder:
    """A configuration and the files it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "p.key").write_text("sk-first")

    def load(self, *replaced: tuple[str, str], text: str = BASE) -> Settings:
        for find, put in replaced:
            assert find in text
            text = text.replace(find, put)
        (self.path / "m.toml").write_text(text)
        return load(self.path / "m.toml", {})

    def changed(self, *replaced: tuple[str, str]) -> Changes:
        return compare(self.load(), self.load(*replaced))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a configuration to change."""
    return Folder(tmp_path)


def test_the_same_configuration_read_twice_differs_in_nothing(folder):
    changes = folder.changed()
    assert (changes.applied, changes.restart) == ((), ())


@pytest.mark.parametrize(
    ("find", "put", "names"),
    [
        ("drain_seconds = 5", "drain_seconds = 6", ["server.drain_seconds"]),
        ('model = "claude"', 'model = "other"', ["models.m.model"]),
        ('input = "1"', 'input = "3"', ["models.m.price"]),
        ("[models.m]", '[models.n]\nprovider = "p"\nmodel = "x"\n[models.m]', ["models.n"]),
        ("[providers.q]", "[providers.r]", ["providers.q", "providers.r"]),
        (
            'kind = "replay"',
            'kind = "replay"\nallow_direct_models = true',
            ["providers.q.allow_direct_models"],
        ),
        ('models = ["m"]', 'models = ["m"]\nadmin = true', ["tenants.acme.is_admin"]),
        ("[tenants.acme]", "[tenants.other]\n[tenants.acme]", ["tenants.other"]),
        ("[identity]", "[identity]\nopen_health = true", ["identity.open_health"]),
        ('url = "none"', 'url = "none"\n[telemetry.redaction]\npatterns = ["x+"]', ["telemetry.redaction"]),
    ],
)
def test_a_change_is_known_by_the_name_of_its_key(folder, find, put, names):
    changes = folder.changed((find, put))
    assert (changes.listed(), changes.waiting()) == (names, [])


@pytest.mark.parametrize(
    ("find", "put", "name"),
    [
        ("drain_seconds = 5", 'drain_seconds = 5\nlisten = "127.0.0.1:1"', "server.listen"),
        ("drain_seconds = 5", "drain_seconds = 5\nworkers = 2", "server.workers"),
        ("drain_seconds = 5", "drain_seconds = 5\nallow_insecure = true", "server.allow_insecure"),
        ("drain_seconds = 5", "drain_seconds = 5\nreflection = false", "server.reflection"),
        (
            "drain_seconds = 5",
            "drain_seconds = 5\nmax_connection_age_seconds = 9",
            "server.max_connection_age_seconds",
        ),
        ("drain_seconds = 5", 'drain_seconds = 5\nprivate_listen = "127.0.0.1:1"', "server.private_listen"),
        ('url = "none"', 'url = "sqlite:///l.db"', "ledger.url"),
        ('url = "none"', 'url = "none"\nlease = 3', "ledger.lease"),
        ('url = "none"', 'url = "none"\n[telemetry]\nmax_series = 7', "telemetry.max_series"),
    ],
)
def test_what_needs_a_restart_is_said_and_stays_as_it_was(folder, find, put, name):
    old, new = folder.load(), folder.load((find, put))
    changes = compare(old, new)
    assert (changes.listed(), changes.waiting()) == ([], [name])
    section, key = name.split(".")
    was, is_now = getattr(old, section), getattr(changes.settings, section)
    assert getattr(is_now, key) == getattr(was, key) != getattr(getattr(new, section), key)


def test_what_may_change_is_taken_over_beside_what_may_not(folder):
    changes = folder.changed(("drain_seconds = 5", 'drain_seconds = 6\nlisten = "127.0.0.1:1"'))
    assert changes.settings.server.drain_seconds == 6
    assert changes.settings.server.listen == ("127.0.0.1:50051",)


@pytest.mark.parametrize("order", ["removed", "added"])
def test_whether_callers_are_asked_who_they_are_is_not_changed_by_a_reload(folder, order):
    asked, open_house = folder.load(), folder.load(text=BASE.split("[identity]")[0])
    old, new = (asked, open_house) if order == "removed" else (open_house, asked)
    changes = compare(old, new)
    assert changes.waiting() == ["identity"]
    assert changes.settings.identity == old.identity


def test_a_file_with_other_contents_is_a_change_of_the_key_that_names_it(folder):
    old = folder.load()
    (folder.path / "p.key").write_text("sk-second")
    changes = compare(old, folder.load())
    assert changes.listed() == ["providers.p.api_key_file", "providers.p.keys"]
    assert changes.touch("providers", "p")
    assert not changes.touch("providers", "q")
    assert "sk-" not in repr(changes)


def test_authorities_that_are_replaced_under_the_same_name_are_a_change(folder):
    trust = ('api_key_file = "p.key"', 'api_key_file = "p.key"\nca_file = "ca.pem"')
    trustme.CA().cert_pem.write_to_path(folder.path / "ca.pem")
    old = folder.load(trust)
    trustme.CA().cert_pem.write_to_path(folder.path / "ca.pem")
    assert compare(old, folder.load(trust)).listed() == ["providers.p.ca_file"]


def test_targets_are_told_under_the_model_that_has_them(folder):
    routed = BASE + '[models.smart]\ntargets = [{ model = "m" }]\n'
    with_targets = folder.load(text=routed)
    assert compare(folder.load(), with_targets).listed() == ["models.smart"]
    weighted = folder.load(text=routed + 'strategy = "weighted"\n')
    assert compare(with_targets, weighted).listed() == ["models.smart.strategy"]


def test_scripts_that_say_something_else_are_a_change(folder):
    named = ('kind = "replay"', 'kind = "replay"\nscripts = "s.toml"')
    (folder.path / "s.toml").write_text('[scripts.mine]\ntext = "One."\n')
    old = folder.load(named)
    assert compare(old, folder.load(named)).listed() == []
    (folder.path / "s.toml").write_text('[scripts.mine]\ntext = "Two."\n')
    assert compare(old, folder.load(named)).listed() == ["providers.q.scripts"]


def tls(folder: Folder, *, clients: bool = False) -> tuple[str, str]:
    certificate = trustme.CA().issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(folder.path / "server.pem")
    certificate.private_key_pem.write_to_path(folder.path / "server.key")
    trustme.CA().cert_pem.write_to_path(folder.path / "clients.pem")
    asked = ', client_ca = "clients.pem"' if clients else ""
    return (
        "drain_seconds = 5",
        f'drain_seconds = 5\ntls = {{ certificate = "server.pem", key = "server.key"{asked} }}',
    )


def test_other_certificates_are_taken_over_but_not_whether_there_are_any(folder):
    with_tls = tls(folder)
    old = folder.load(with_tls)
    tls(folder)
    assert compare(old, folder.load(with_tls)).listed() == ["server.tls.certificate", "server.tls.key"]
    for before, after in ((old, folder.load()), (folder.load(), old)):
        changes = compare(before, after)
        assert changes.settings.server.tls == before.server.tls
        assert "server.tls" in changes.waiting()
        assert changes.listed() == []


def test_whether_clients_show_certificates_waits_for_a_restart(folder):
    old = folder.load(tls(folder))
    changes = compare(old, folder.load(tls(folder, clients=True)))
    assert "server.tls" in changes.waiting()
    assert changes.settings.server.tls == old.server.tls


def test_the_place_of_a_process_among_the_workers_stays(folder):
    old = msgspec.structs.replace(
        folder.load(), share=msgspec.structs.replace(folder.load().share, index=1, count=2)
    )
    assert compare(old, folder.load()).settings.share == old.share


def test_a_configuration_knows_its_own_file_and_those_it_names(folder):
    paths = {each.path for each in folder.load().files}
    assert paths == {folder.path / "m.toml", folder.path / "p.key"}


def test_no_digest_of_a_file_is_shown(folder):
    for each in folder.load().files:
        assert each.digest
        assert repr(each) == f"NamedFile({each.path})"
