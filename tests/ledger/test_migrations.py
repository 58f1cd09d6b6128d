"""The schema: made from nothing, kept up to date under a lock, and refused when a newer version made it."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from modelmeter_server.ledger import migrations
from modelmeter_server.ledger.storage import StorageSettings, open_ledger
from modelmeter_server.ledger.stores import SchemaMismatch
from modelmeter_server.ledger.tables import metadata


async def run(url: str, *statements: str) -> list:
    """Run statements on a database, and return what the last one finds."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        found = [connection.execute(each).fetchall() for each in statements][-1]
        connection.close()
        return found
    server = await asyncpg.connect(url)
    found = [await server.fetch(each) for each in statements][-1]
    await server.close()
    return [tuple(record) for record in found]


def test_the_head_is_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    assert ScriptDirectory.from_config(config).get_current_head() == migrations.HEAD


async def test_an_empty_database_gets_the_schema_and_keeps_it(ledger_url):
    for _ in range(2):
        await (await open_ledger(StorageSettings(url=ledger_url))).aclose()
    assert await run(ledger_url, "SELECT version_num FROM alembic_version") == [(migrations.HEAD,)]
    # Two servers, each of which gave its lease back.
    assert await run(ledger_url, "SELECT COUNT(*) FROM servers") == [(2,)]


async def test_the_migrations_make_what_the_tables_say(ledger_url):
    def differences(connection):
        return compare_metadata(MigrationContext.configure(connection), metadata)

    ledger = await open_ledger(StorageSettings(url=ledger_url))
    found = await ledger.read(differences)
    await ledger.aclose()
    assert [each for each in found if each[0] != "remove_table"] == []


async def test_two_servers_that_start_at_once_on_an_empty_database_both_open_it(ledger_url):
    ledgers = await asyncio.gather(*(open_ledger(StorageSettings(url=ledger_url)) for _ in range(2)))
    assert ledgers[0].owner != ledgers[1].owner
    for ledger in ledgers:
        await ledger.aclose()


async def test_a_database_of_a_newer_version_is_refused_and_both_versions_are_named(ledger_url):
    await (await open_ledger(StorageSettings(url=ledger_url))).aclose()
    await run(ledger_url, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(
        SchemaMismatch, match=f"schema 9999, and this version knows schemas up to {migrations.HEAD}"
    ):
        await open_ledger(StorageSettings(url=ledger_url))
    assert await run(ledger_url, "SELECT COUNT(*) FROM servers") == [(1,)]


def test_the_first_schema_does_not_change_with_the_present_tables(tmp_path):
    from modelmeter_server.ledger.migrations.versions import r0001_ledger

    assert r0001_ledger.metadata is not metadata
    engine = create_engine(f"sqlite:///{tmp_path}/first.db")
    with engine.begin() as connection:
        migrations.migrate(connection)
        assert migrations.schema_version(connection) == migrations.HEAD
    engine.dispose()
