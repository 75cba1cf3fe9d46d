"""Compares a table with the rows that it must hold: ``EXCEPT ALL`` both ways, in DuckDB.

``EXCEPT ALL`` counts: a row that is there twice and should be there once is a surplus row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

SAMPLE_ROWS = 5


@dataclass(frozen=True)
class TableComparison:
    """How one table differs from what it must hold.

    A wrong row counts twice: the right one is missing, the wrong one is surplus. ``samples`` are a
    few of each, column by column. ``problem`` is set when the rows could not be compared at all.
    """

    table: str
    rows_expected: int
    rows_found: int
    missing_rows: int
    surplus_rows: int
    missing_samples: tuple[Mapping[str, Any], ...] = ()
    surplus_samples: tuple[Mapping[str, Any], ...] = ()
    problem: str | None = None

    @property
    def equal(self) -> bool:
        """Whether the table holds exactly the expected rows."""
        return self.problem is None and self.missing_rows == 0 and self.surplus_rows == 0

    def describe(self) -> str:
        """One line for a person; samples on lines of their own."""
        if self.equal:
            return f"{self.table}: equal, {self.rows_found} rows"
        if self.problem:
            return f"{self.table}: {self.problem}"
        lines = [
            f"{self.table}: {self.missing_rows} rows missing, {self.surplus_rows} surplus "
            f"(expected {self.rows_expected}, found {self.rows_found})"
        ]
        lines += [f"  missing {dict(row)}" for row in self.missing_samples]
        lines += [f"  surplus {dict(row)}" for row in self.surplus_samples]
        return "\n".join(lines)


def compare(
    connection: duckdb.DuckDBPyConnection, table: str, expected_sql: str, found: pa.Table | None
) -> TableComparison:
    """Compare ``found`` with the result of ``expected_sql`` in this DuckDB connection.

    ``found`` is None when the table does not exist yet or has no snapshot: it holds no rows. Its
    columns must have the expected names; they are matched by name and cast to the expected types.
    """
    expected_columns = _columns(connection, expected_sql)
    if found is None:
        count = _count(connection, expected_sql)
        return TableComparison(table, count, 0, count, 0, problem=None if count == 0 else "no rows")
    if sorted(found.column_names) != sorted(expected_columns):
        return TableComparison(
            table,
            rows_expected=_count(connection, expected_sql),
            rows_found=found.num_rows,
            missing_rows=0,
            surplus_rows=0,
            problem=(
                f"has columns {sorted(found.column_names)}, expected {sorted(expected_columns)}"
            ),
        )
    columns = ", ".join(
        f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in expected_columns.items()
    )
    connection.register("found_arrow", found)
    try:
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE found AS SELECT {columns} FROM found_arrow"  # noqa: S608
        ).fetchall()
        connection.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {expected_sql}").fetchall()
    finally:
        connection.unregister("found_arrow")
    missing, missing_samples = _difference(connection, "expected", "found")
    surplus, surplus_samples = _difference(connection, "found", "expected")
    return TableComparison(
        table,
        rows_expected=_count(connection, "FROM expected"),
        rows_found=found.num_rows,
        missing_rows=missing,
        surplus_rows=surplus,
        missing_samples=missing_samples,
        surplus_samples=surplus_samples,
    )


def _difference(
    connection: duckdb.DuckDBPyConnection, left: str, right: str
) -> tuple[int, tuple[Mapping[str, Any], ...]]:
    """How many rows ``left`` has more than ``right``, and a few of them."""
    difference = f"FROM {left} EXCEPT ALL FROM {right}"
    count = _count(connection, difference)
    if count == 0:
        return 0, ()
    cursor = connection.execute(f"SELECT * FROM ({difference}) ORDER BY ALL LIMIT {SAMPLE_ROWS}")  # noqa: S608
    names = [column[0] for column in cursor.description]
    return count, tuple(dict(zip(names, row, strict=True)) for row in cursor.fetchall())


def _columns(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, str]:
    """The names and types of a query's columns."""
    described = connection.execute(f"DESCRIBE {sql}").fetchall()
    return {str(name): str(kind) for name, kind, *_ in described}


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    # Fetched to the end: DuckDB 2 refuses other work on a connection with a result left open.
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()  # noqa: S608
    return int(count)
