"""How many files a process of the tests may open."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


def most_files() -> int:
    """Return how many descriptors a process can be given here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if hard == resource.RLIM_INFINITY else hard


@contextmanager
def files(count: int) -> Iterator[None]:
    """Let the processes that are started inside this block open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
