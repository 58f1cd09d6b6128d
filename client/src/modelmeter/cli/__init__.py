"""The `modelmeter` command. It needs the extra `cli`; the server's distribution adds its own commands."""

from __future__ import annotations

import sys

_NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line; without the packages it needs, say how to install them."""
    try:
        from .program import program
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise
        sys.exit(
            f"the command modelmeter needs the package {error.name}, which is not installed here.\n"
            "Install it with:  pip install 'modelmeter[cli]'"
        )
    program(prog_name="modelmeter")
