"""Build backend of the repository root: says what to install instead, and fails.

The root holds tooling only. A backend in the tree (PEP 517, no requirements) is the one way to answer `pip
install .` with a sentence instead of an empty distribution or a traceback about package discovery.
"""

from __future__ import annotations

import sys
from typing import NoReturn

HINT = """\
The root of this repository is not a distribution. Install what you need from it:

    pip install ./client             the Python client alone
    pip install ./client ./server    the server, with the `modelmeter` command

For development: `make test` (it sets up .venv by itself).
"""


def _refuse(*_args: object, **_kwargs: object) -> NoReturn:
    sys.stderr.write(HINT)
    raise SystemExit(1)


# The hooks that a front end may call first, depending on what it was asked for.
get_requires_for_build_wheel = _refuse
get_requires_for_build_sdist = _refuse
get_requires_for_build_editable = _refuse
build_wheel = _refuse
build_sdist = _refuse
build_editable = _refuse
