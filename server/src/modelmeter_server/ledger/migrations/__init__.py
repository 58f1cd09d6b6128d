"""Bring a database to the schema of this version, or refuse it.

A migration is a module of `versions`, numbered on, with an `upgrade` that does not import the present schema. `HEAD` is
raised with it. There are no downgrades: an older server refuses a newer database.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text

from ..stores import SchemaMismatch

if TYPE_CHECKING:
    from sqlalchemy import Connection

HEAD = "0001"
"""The newest revision in `versions`."""

LOCK = 0x6D6D_6C67
"""Key of the advisory lock on PostgreSQL under which one server migrates."""


def schema_version(connection: Connection) -> str | None:
    """Return the revision of a database, `None` for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return version


def migrate(connection: Connection) -> None:
    """Upgrade a database to `HEAD`, within the transaction of `connection`, which holds the lock.

    Raises SchemaMismatch for one that a newer version has made.
    """
    found = schema_version(connection)
    if found == HEAD:
        return
    if found is not None and found > HEAD:
        message = f"the ledger's database has schema {found}, and this version knows schemas up to {HEAD}: update it"
        raise SchemaMismatch(message)
    # Alembic takes a quarter of a second to import, and most starts have nothing to migrate.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
