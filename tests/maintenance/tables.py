"""Tables of a laboratory that a test fills by batch INSERTs, and the keeper of its lakehouse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse_dagster.maintenance.flink_calls import gateway_session
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.paimon.file_facts import TableFacts
from tests.support.laboratory import Laboratory

BATCH = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}


@dataclass
class Tables:
    """Makes, fills and looks at tables of the database ``m``."""

    lab: Laboratory
    keeper: Keeper = field(init=False)

    def __post_init__(self) -> None:
        self.keeper = Keeper(self.lab.runtime())

    def run(self, *statements: str) -> None:
        """Run statements in one session with the lake's catalog, each to its end."""
        with gateway_session(self.keeper.runtime, "test", logging.getLogger("test")) as session:
            for statement in ("CREATE DATABASE IF NOT EXISTS m", *statements):
                session.execute(statement, config=BATCH, timeout_seconds=120)

    def ask(self, query: str) -> list[tuple[object, ...]]:
        """The rows of a batch SELECT."""
        with gateway_session(self.keeper.runtime, "test", logging.getLogger("test")) as session:
            result = session.execute(query, config=BATCH, timeout_seconds=120)
            return [tuple(row) for row in result.rows]

    def make(self, name: str, columns: str, *, partitioned: bool = False, **options: str) -> str:
        """Create a table; its full name comes back."""
        given = ", ".join(f"'{key}' = '{v}'" for key, v in options.items())
        by = " PARTITIONED BY (dt)" if partitioned else ""
        self.run(f"CREATE TABLE m.{name} ({columns}){by} WITH ({given})")
        return f"m.{name}"

    @property
    def warehouse(self) -> Path:
        return self.lab.folder / "warehouse"

    def folder(self, table: str) -> Path:
        """Where its files are."""
        return self.warehouse / table.replace(".", ".db/")

    def fill(self, table: str, rows: Callable[[int], str], times: int) -> None:
        """Commit ``rows(0)``, ``rows(1)`` … as one snapshot each."""
        self.run(*(f"INSERT INTO {table} VALUES {rows(number)}" for number in range(times)))

    def facts(self, table: str) -> TableFacts:
        """The facts as read anew."""
        from lakehouse_dagster.paimon.file_facts import InMemory

        return self.lab.catalog.open().table(table).facts(InMemory())

    def rows(self, table: str) -> list[tuple[object, ...]]:
        """All rows, sorted."""
        found = self.lab.catalog.open().table(table).read().to_pylist()
        return sorted((tuple(row.values()) for row in found), key=str)
