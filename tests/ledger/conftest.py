"""The two databases of a ledger: a file, and a PostgreSQL server that each process of the tests starts once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import MISSING, PostgresServer, postgres_server, programs

DATABASES = ("sqlite", "postgresql")


def _require_postgres() -> None:
    if programs() is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI tests both databases: {MISSING}")
        pytest.skip(MISSING)


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


@pytest.fixture(params=DATABASES)
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty ledger, on each database in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
