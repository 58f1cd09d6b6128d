"""Driver of the provider Parrot: what is said to it, how its answers are read, and how it says no."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from modelmeter_server.drivers.plugin import DriverPlugin, SettingError, WireFormat, key_header

from .accumulator import ParrotAccumulator
from .encode import CAPABILITIES, encode
from .errors import classify

VOICES = ("soft", "loud")


def wire_format(settings: Mapping[str, Any]) -> WireFormat:
    """Return the row of an instance; its one setting is the voice that answers. Raises SettingError."""
    for key in settings.keys() - {"voice"}:
        raise SettingError(key, "unknown key", 'known here is "voice"')
    voice = settings.get("voice", VOICES[0])
    if voice not in VOICES:
        raise SettingError("voice", "is no voice", f"write {' or '.join(VOICES)}")
    return WireFormat(
        kind="parrot",
        capabilities=CAPABILITIES,
        encode=partial(encode, voice=voice),
        accumulator=ParrotAccumulator,
        authenticate=key_header("x-parrot-key"),
        classify=classify,
    )


PLUGIN = DriverPlugin(
    protocol=1,
    kind="parrot",
    wire_format=wire_format,
    base_url="https://api.parrot.example",
    key_example="PARROT_KEY",
)
