"""What every test has: a scrubbed environment, the way to the recorded material when there is any, and the two
databases of a ledger: a file, and a PostgreSQL server that each process of the tests starts once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from modelmeter_server.telemetry import log
from tests.support import postgres as debian
from tests.support.material import MISSING, SHARED, has_material
from tests.support.postgres import PostgresServer, postgres_server

_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "grpc_proxy", "no_grpc_proxy"}

# Read before anything is scrubbed.
_OUTSIDE = dict(os.environ)


# A machine that is busy with the other half of the suite is no fault of the code under test.
# In CI the examples follow from the code, so that a failure is the change's own; elsewhere every run tries new ones.
settings.register_profile("modelmeter", deadline=None, derandomize="CI" in os.environ)
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


DATABASES = ("sqlite", "postgresql")


def _require_postgres() -> None:
    if debian.programs() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI tests both databases: {debian.MISSING}")
        pytest.skip(debian.MISSING)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Return a server that runs as long as this process of the tests."""
    _require_postgres()
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """Return a server that a test may stop and start."""
    _require_postgres()
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """Return the URL of an empty database."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Undo what a test did to the process's logging."""
    before, outputs = structlog.get_config(), dict(log._outputs)
    handlers, level = list(logging.root.handlers), logging.root.level
    yield
    if structlog.get_config() != before:
        structlog.configure(**before)
        log._outputs.clear()
        log._outputs.update(outputs)
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


@pytest.fixture(params=DATABASES)
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty ledger, on each database in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of crashes that are tried."""
    parser.addoption("--crashes", type=int, default=20, help="kill a server in mid-flight so many times")
