"""The first schema: calls with attempts and contents, sums, ceilings with windows, halts, servers."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Sequence,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The schema as it was in this revision, in full: later changes of `tables` must not change what this makes.
metadata = MetaData()

# Names order and compare by their bytes on both databases; PostgreSQL would otherwise go by the locale it was made in.
_Name = Text().with_variant(Text(collation="C"), "postgresql")
_Count = BigInteger
# SQLite counts rows by itself only in a column that is spelt INTEGER.
_Id = BigInteger().with_variant(Integer(), "sqlite")
_Labels = JSON().with_variant(JSONB(), "postgresql")


def _amounts() -> list[Column[int]]:
    names = ("settled", "held", "unsettled", "written_off")
    return [
        Column(f"{name}_{unit}", _Count, nullable=False) for name in names for unit in ("tokens", "nanos")
    ]


calls = Table(
    "calls",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("tenant", _Name, nullable=False),
    Column("call_id", _Name, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("run_id", _Name, nullable=False),
    Column("effect_key", _Name, nullable=False),
    Column("request", LargeBinary, nullable=False),
    Column("operation", _Name, nullable=False),
    Column("model", _Name, nullable=False),
    Column("target", _Name, nullable=False),
    Column("reserved_at", BigInteger, nullable=False),
    Column("labels", _Labels, nullable=False),
    Column("currency", _Name, nullable=False),
    Column("dispatch", Integer, nullable=False),
    Column("state", Integer, nullable=False),
    Column("owner", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("expires_at", BigInteger),
    Column("kind", _Name, nullable=False),
    Column("certainty", _Name, nullable=False),
    Column("input_tokens", _Count),
    Column("output_tokens", _Count),
    *_amounts(),
    Column("possibly_billed", Integer, nullable=False),
    Column("content_expires_at", BigInteger),
    Column("content_gone", _Name, nullable=False),
    Column("detail", LargeBinary, nullable=False),
)
Index("calls_key", calls.c.tenant, calls.c.call_id, calls.c.generation, unique=True)
# Newest first within a tenant: the order of listings, and the way to a period.
Index("calls_by_time", calls.c.tenant, calls.c.reserved_at)
_in_run = calls.c.run_id != ""
Index(
    "calls_by_effect",
    calls.c.tenant,
    calls.c.run_id,
    calls.c.effect_key,
    calls.c.generation,
    sqlite_where=_in_run,
    postgresql_where=_in_run,
)
_open = calls.c.state <= 2
Index("calls_open", calls.c.owner, sqlite_where=_open, postgresql_where=_open)
_unsettled = calls.c.state == 4
Index("calls_unsettled", calls.c.expires_at, sqlite_where=_unsettled, postgresql_where=_unsettled)

attempts = Table(
    "attempts",
    metadata,
    Column("call", BigInteger, primary_key=True, autoincrement=False),
    Column("dispatch", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("detail", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

contents = Table(
    "contents",
    metadata,
    Column("call", _Id, primary_key=True, autoincrement=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("outcome", LargeBinary, nullable=False),
    Column("provider_body", LargeBinary, nullable=False),
    Index("contents_by_expiry", "expires_at"),
)

spend = Table(
    "spend",
    metadata,
    Column("tenant", _Name, primary_key=True),
    Column("dimension", _Name, primary_key=True),
    Column("name", _Name, primary_key=True),
    Column("value", _Name, primary_key=True),
    Column("quarter", BigInteger, primary_key=True, autoincrement=False),
    Column("currency", _Name, primary_key=True),
    Column("calls", _Count, nullable=False),
    Column("input_tokens", _Count, nullable=False),
    Column("output_tokens", _Count, nullable=False),
    *_amounts(),
    Column("possibly_billed_calls", _Count, nullable=False),
    Index("spend_by_time", "tenant", "dimension", "name", "quarter"),
    sqlite_with_rowid=False,
)

ceilings = Table(
    "ceilings",
    metadata,
    Column("tenant", _Name, primary_key=True),
    Column("ceiling_id", _Name, primary_key=True),
    Column("scope", _Name, nullable=False),
    Column("name", _Name, nullable=False),
    Column("window_kind", _Name, nullable=False),
    Column("time_zone", _Name, nullable=False),
    Column("seconds", BigInteger, nullable=False),
    Column("tokens", _Count),
    Column("nano_units", _Count),
    Column("currency", _Name, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("by_admin", Boolean, nullable=False),
    Index("ceilings_by_subject", "tenant", "scope", "name"),
)

ceiling_windows = Table(
    "ceiling_windows",
    metadata,
    Column("ceiling_id", _Name, primary_key=True),
    Column("name", _Name, primary_key=True),
    Column("starts_at", BigInteger, primary_key=True, autoincrement=False),
    *(column for column in _amounts() if not column.name.startswith("written_off")),
    Column("soft_limit", Integer, nullable=False),
    sqlite_with_rowid=False,
)

halts = Table(
    "halts",
    metadata,
    Column("tenant", _Name, primary_key=True),
    Column("scope", _Name, primary_key=True),
    Column("name", _Name, primary_key=True),
    Column("mode", _Name, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("by_admin", Boolean, nullable=False),
)

servers = Table(
    "servers",
    metadata,
    Column("owner", _Id, primary_key=True, autoincrement=True),
    Column("lease_until", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
    # A token that was given out is never given out again, also after its row was removed.
    sqlite_autoincrement=True,
)

call_ids = Sequence("call_ids", metadata=metadata, increment=1000)
"""Blocks of ids for new calls, on PostgreSQL; SQLite has one writer at a time, which counts on."""


def upgrade() -> None:
    """Create everything."""
    metadata.create_all(op.get_bind(), checkfirst=False)
