"""The `modelmeter` command. It needs the extra `cli`; the server's distribution adds its own commands."""

from __future__ import annotations

import os
import sys

_NEEDED = ("click", "rich")


def main() -> None:
    """Run the command line; without the packages it needs, say how to install them."""
    # gRPC's C core reads it once, on import. What it would print beside our own words, such as a line in its own
    # format for a port in use, is for its developers: set the variable to ERROR to see it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
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
