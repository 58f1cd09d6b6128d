"""How many files a process of the tests may open."""

from __future__ import annotations

import os
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


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no file and no socket inside this block; what is open works on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
