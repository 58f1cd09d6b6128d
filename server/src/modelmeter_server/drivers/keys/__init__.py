"""The keys of a provider instance: where they come from, and which of several the next request goes with."""

from .command import KeyCommand
from .file import KeyFile, read_key_file
from .ring import KeyLease, KeyRing, ring_of
from .source import FixedKey, Key, KeySource, is_key

__all__ = [
    "FixedKey",
    "Key",
    "KeyCommand",
    "KeyFile",
    "KeyLease",
    "KeyRing",
    "KeySource",
    "is_key",
    "read_key_file",
    "ring_of",
]
