"""``lakehouse query``: one reading statement and nothing else, printed in four formats."""

from __future__ import annotations

import csv
import io
import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lakehouse_dagster.cli import query as command
from lakehouse_dagster.cli.output import print_json
from lakehouse_dagster.flink import StatementResult
from tests.cli.projects import Project, project
from tests.cli.test_status import write_orders

__all__ = ["project"]

REFUSED = (
    "Error: This command runs one reading statement (SELECT, SHOW, DESCRIBE, EXPLAIN). "
    "Put changes into a script.\n"
)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "  -- nothing\n",
        ";",
        "INSERT INTO shop.orders SELECT 1, 'a'",
        "DROP TABLE shop.orders",
        "CREATE TABLE shop.x (id INT)",
        "ALTER TABLE shop.orders SET ('a' = 'b')",
        "DELETE FROM shop.orders",
        "UPDATE shop.orders SET v = 'x'",
        "TRUNCATE TABLE shop.orders",
        "CALL sys.compact('shop.orders')",
        "SET 'a' = 'b'",
        "USE CATALOG default_catalog",
        "STOP JOB 'x'",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE shop.orders",
        "/* SELECT */ DROP TABLE shop.orders",
    ],
)
def test_anything_but_one_reading_statement_is_refused(project: Project, sql: str) -> None:
    project.module()
    said = project.run("query", sql, "-m", "shop")
    assert (said.code, said.out, said.err) == (1, "", REFUSED)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT ';' ;",
        "with x as (select 1) select * from x",
        "SHOW TABLES",
        "DESCRIBE shop.orders",
        "EXPLAIN SELECT 1",
        "VALUES (1, 2)",
        "SELECT 'DROP TABLE x; DROP' -- a comment",
    ],
)
def test_reading_statements_go_to_the_gateway(project: Project, sql: str) -> None:
    project.module()
    said = project.run("query", sql, "-m", "shop")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("Error: The SQL Gateway of cluster 'flink' at http://127.0.0.1:9 ")


def test_a_snapshot_or_table_that_is_not_there_is_refused_before_anything_is_asked(
    project: Project,
) -> None:
    project.module()
    write_orders(project, 2)
    read = ("query", "SELECT 1", "-m", "shop", "--at")
    assert project.run(*read, "shop.orders=7").err == (
        "Error: The table shop.orders has no snapshot 7. Its newest is 2; old ones expire.\n"
    )
    assert project.run(*read, "shop.ordres=1").err.startswith("Error: ")
    assert "shop.ordres" in project.run(*read, "shop.ordres=1").err
    assert "SQL Gateway" in project.run(*read, "shop.orders=1").err


RESULT = StatementResult(
    columns=("id", "amount", "ratio", "at", "utc", "day", "clock", "raw", "tags"),
    column_types=(
        "BIGINT",
        "DECIMAL(10, 2)",
        "DOUBLE",
        "TIMESTAMP(3)",
        "TIMESTAMP_LTZ(6)",
        "DATE",
        "TIME(0)",
        "BYTES",
        "ARRAY<INT>",
    ),
    rows=(
        (
            1,
            Decimal("12.50"),
            0.5,
            datetime(2026, 3, 1, 12, 0, 1, 5000),
            datetime(2026, 3, 1, 12, tzinfo=timezone.utc),
            date(2026, 3, 1),
            time(12, 30),
            b"\x00\xff",
            (1, 2),
        ),
        (2, None, float("nan"), None, None, None, None, None, None),
    ),
    row_kinds=("+I", "+I"),
    job_id=None,
    truncated=False,
)


def test_json_is_valid_whatever_the_values_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([dict(zip(RESULT.columns, row, strict=True)) for row in RESULT.rows])
    first, second = json.loads(
        capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name)
    )
    assert first == {
        "id": 1,
        "amount": "12.50",
        "ratio": 0.5,
        "at": "2026-03-01T12:00:01.005000",
        "utc": "2026-03-01T12:00:00+00:00",
        "day": "2026-03-01",
        "clock": "12:30:00",
        "raw": "AP8=",
        "tags": [1, 2],
    }
    assert (second["ratio"], second["amount"], second["at"]) == ("nan", None, None)


def test_csv_has_a_header_and_unix_lines(capsys: pytest.CaptureFixture[str]) -> None:
    command._as_csv(RESULT)
    text = capsys.readouterr().out
    assert "\r" not in text
    header, first, _ = csv.reader(io.StringIO(text))
    assert header == list(RESULT.columns)
    assert first[:2] == ["1", "12.50"]


def test_arrow_has_the_types_of_the_query_also_without_rows(tmp_path: Path) -> None:
    wanted = {
        "id": pa.int64(),
        "amount": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "at": pa.timestamp("us"),
        "utc": pa.timestamp("us", tz="UTC"),
        "day": pa.date32(),
        "clock": pa.time64("us"),
        "raw": pa.binary(),
    }
    for rows in (RESULT.rows, ()):
        result = StatementResult(
            RESULT.columns, RESULT.column_types, rows, (), job_id=None, truncated=False
        )
        path = tmp_path / f"{len(rows)}.arrow"
        command._as_arrow(result, str(path))
        with pa.ipc.open_file(path) as reader:
            table = reader.read_all()
        assert {n: table.schema.field(n).type for n in wanted} == wanted
        assert table.num_rows == len(rows)
    assert table.num_rows == 0


def test_arrow_keeps_a_value_that_python_has_no_form_for_as_text(tmp_path: Path) -> None:
    result = StatementResult(
        ("at",), ("TIMESTAMP(3)",), (("12000-01-01T00:00:00",), (None,)), (), None, False
    )
    command._as_arrow(result, str(tmp_path / "x.arrow"))
    with pa.ipc.open_file(tmp_path / "x.arrow") as reader:
        assert reader.read_all().to_pylist() == [{"at": "12000-01-01T00:00:00"}, {"at": None}]


def test_the_table_shows_null_and_brackets_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command._as_table(
        StatementResult(("[bold]a",), ("STRING",), (("[red]x",), (None,)), (), None, False)
    )
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines == ["[bold]a", "[red]x", "NULL"]
