"""Kinds of other distributions in the configuration: what keeps a driver from being used, each told with its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from modelmeter_server.config import ConfigError, load
from modelmeter_server.drivers import plugin

MODULE = """
from modelmeter_server.core.accumulators import AnthropicAccumulator
from modelmeter_server.drivers.anthropic import CAPABILITIES, encode
from modelmeter_server.drivers.plugin import DriverPlugin, SettingError, WireFormat, key_header

def wire_format(settings):
    if "broken" in settings:
        raise ZeroDivisionError("of its own")
    if "odd" in settings:
        raise SettingError("odd", "is odd", "make it even")
    return WireFormat(kind=settings.get("kind", "heron"), capabilities=CAPABILITIES, encode=encode,
                      accumulator=AnthropicAccumulator, authenticate=key_header("x-key"))

PLUGIN = DriverPlugin(protocol={protocol}, kind="{kind}", wire_format=wire_format, base_url="{base_url}")
"""
PROVIDER = '[providers.p]\nkind = "{kind}"\napi_key_env = "KEY"\nallow_direct_models = true\n{more}'


class Site:
    """A folder of installed distributions, and the configuration that is read beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(
        self,
        name: str = "heron-driver",
        kind: str = "heron",
        *,
        module: str = "heron_driver",
        target: str = "PLUGIN",
        code: str = MODULE,
        own_kind: str = "heron",
        protocol: int = plugin.PROTOCOL,
        base_url: str = "https://heron.example",
    ) -> None:
        """Install a distribution with one driver."""
        filled = code.replace("{protocol}", str(protocol)).replace("{kind}", own_kind)
        (self.folder / f"{module}.py").write_text(filled.replace("{base_url}", base_url))
        info = self.folder / f"{name.replace('-', '_')}-2.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1\n")
        (info / "entry_points.txt").write_text(f"[{plugin.GROUP}]\n{kind} = {module}:{target}\n")

    def load(self, kind: str = "heron", more: str = ""):
        file = self.folder / "m.toml"
        file.write_text(PROVIDER.format(kind=kind, more=more))
        return load(file, {"KEY": "k"})

    def mistakes(self, kind: str = "heron", more: str = "") -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.load(kind, more)
        return [f"{each.path}: {each.problem}; {each.fix}" for each in caught.value.mistakes]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder on the path of this process; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) and str(tmp_path) in str(module.__file__):
            del sys.modules[name]


def test_an_installed_kind_is_a_kind_like_any_other(site):
    site.install()
    (provider,) = site.load().providers
    assert (provider.kind, provider.base_url) == ("heron", "https://heron.example")
    assert provider.wire is not None
    assert provider.wire.kind == "heron"


def test_a_kind_without_an_address_in_common_asks_for_one(site):
    site.install(base_url="")
    assert site.mistakes() == [
        "providers.p: has no base_url, and servers of this sort have none in common;"
        " write base_url = the address of your server"
    ]
    assert site.load(more='base_url = "https://x.example"\n').providers[0].base_url == "https://x.example"


def test_an_unknown_kind_lists_the_built_in_and_the_installed_ones(site):
    site.install()
    (told,) = site.mistakes("albatross")
    assert told.startswith('providers.p.kind: "albatross" is not a kind of provider; write "anthropic", ')
    assert told.endswith('"replay" or "heron", or install the driver of it')
    assert site.mistakes("herom")[0].endswith('did you mean "heron"?')


def test_a_driver_that_cannot_be_imported_is_refused_with_its_distribution(site):
    site.install(code="import a_module_that_is_not_there\n")
    assert site.mistakes() == [
        'providers.p.kind: the driver of "heron-driver 2.1" cannot be loaded'
        " (ModuleNotFoundError: No module named 'a_module_that_is_not_there');"
        " install it anew, in a version for this server"
    ]


def test_a_broken_driver_stops_nobody_who_does_not_use_it(site):
    site.install(code="raise SystemError\n")
    assert site.load("anthropic").providers[0].kind == "anthropic"


@pytest.mark.parametrize("protocol", [plugin.PROTOCOL - 1, plugin.PROTOCOL + 1])
def test_a_driver_of_another_protocol_is_refused_with_its_distribution(site, protocol):
    site.install(protocol=protocol)
    assert site.mistakes() == [
        f'providers.p.kind: the driver of "heron-driver 2.1" was written for protocol {protocol}, and this server'
        f" has {plugin.PROTOCOL}; install a version of it for this server"
    ]


def test_what_is_no_plugin_is_refused(site):
    site.install(target="wire_format")
    assert 'the entry point of "heron-driver 2.1" is no DriverPlugin but a function' in site.mistakes()[0]


def test_a_driver_that_says_another_kind_than_its_entry_point_is_refused(site):
    site.install(own_kind="crane")
    assert 'the driver of "heron-driver 2.1" says that its kind is "crane"' in site.mistakes()[0]


def test_no_distribution_can_take_the_place_of_a_built_in_kind(site):
    site.install(kind="anthropic", own_kind="anthropic")
    (told,) = site.mistakes("anthropic")
    assert told.startswith('providers.p.kind: "heron-driver 2.1" claims this built-in kind; uninstall it')


def test_two_distributions_with_one_kind_are_both_named(site):
    site.install()
    site.install("heron-fork", module="heron_fork")
    (told,) = site.mistakes()
    assert '"heron-driver 2.1"' in told
    assert '"heron-fork 2.1"' in told
    assert "both bring a driver of this kind" in told


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{ odd = 1 }", "providers.p.settings.odd: is odd; make it even"),
        ("{ broken = 1 }", "providers.p.settings: the driver of kind \"heron\" failed on these settings"),
        ('{ kind = "crane" }', 'providers.p.settings: the driver of kind "heron" made no wire format of its kind'),
        ("3", "providers.p.settings: is an integer; write a table"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_settings_is_told_at_its_key(site, settings, told):
    site.install()
    assert site.mistakes(more=f"settings = {settings}\n")[0].startswith(told)


def test_a_built_in_kind_has_no_settings(site):
    assert "providers.p.settings: unknown key" in site.mistakes("anthropic", "settings = {}\n")[0]
