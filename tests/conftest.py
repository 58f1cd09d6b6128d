"""What every test has: a scrubbed environment, and the way to the recorded material when there is any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.material import MISSING, SHARED, has_material

_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"}

# Read before anything is scrubbed.
_OUTSIDE = dict(os.environ)


# A machine that is busy with the other half of the suite is no fault of the code under test.
settings.register_profile("modelmeter", deadline=None)
settings.load_profile("modelmeter")


def _is_ambient(name: str) -> bool:
    # The way to the material stays: processes that share the tests start with what is left.
    if name == "MODELMETER_SHARED":
        return False
    return name.lower() in _PROXIES or name.startswith("MODELMETER_")


def pytest_configure() -> None:
    # At start, not in a fixture: session fixtures and gRPC's C core read the environment before any test.
    for name in filter(_is_ambient, list(os.environ)):
        del os.environ[name]


@pytest.fixture(scope="session")
def outside_environment() -> dict[str, str]:
    """Return the environment that pytest was started in, for programs that need its proxies (pip)."""
    return dict(_OUTSIDE)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of recorded provider streams (MODELMETER_SHARED, else beside the checkout)."""
    if not has_material():
        pytest.skip(MISSING)
    return SHARED
