"""The embedded provider: plays scripts in real wire formats, for a first look, for demos and for tests of agent hosts.

docs/replay.md describes the scripts and their file format.
"""

from .book import ScriptBook, builtin_scripts, load_scripts
from .driver import KIND, ReplayDriver, ReplayedRequest
from .parse import parse_scripts
from .script import Play, PlayEnd, Script, Wire
from .tables import ScriptMistake, ScriptMistakes

__all__ = [
    "KIND",
    "Play",
    "PlayEnd",
    "ReplayDriver",
    "ReplayedRequest",
    "Script",
    "ScriptBook",
    "ScriptMistake",
    "ScriptMistakes",
    "Wire",
    "builtin_scripts",
    "load_scripts",
    "parse_scripts",
]
