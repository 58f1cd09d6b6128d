"""How many files this process may open: a call has a connection to its provider, and its caller one to us."""

from __future__ import annotations

import resource

_ENDLESS = 2**31


def allow_open_files(wanted: int) -> int:
    """Raise the limit on open files to `wanted`; return what holds then.

    Never above what the operating system allows, and never below what held before.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _ENDLESS
    most = _ENDLESS if hard == resource.RLIM_INFINITY else hard
    allowed = max(soft, min(wanted, most))
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed
