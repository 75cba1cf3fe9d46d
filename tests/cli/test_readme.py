"""The README's own project, exactly as it is printed there, on a real cluster."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import click
import pyarrow as pa
import pytest

from lakehouse_dagster.cli.project import load_project
from lakehouse_dagster.flink import FlinkCluster
from lakehouse_dagster.paimon import TableReader
from tests.cli.projects import Project, Said, own_process, project
from tests.conftest import RunningFlink
from tests.support.laboratory import until

__all__ = ["project"]

README = Path(__file__).parent.parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    """The README's code blocks in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def shop(project: Project, flink_stack: RunningFlink, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The README's project; only the addresses are this cluster's, and the name is our own."""
    (sql,) = blocks("sql")
    (python,) = blocks("python")
    name = f"readme-{uuid4().hex[:8]}"
    adapted = python
    for written, ours in (
        ('"http://localhost:8081"', f'"{flink_stack.rest_url}"'),
        ('"http://localhost:8083"', f'"{flink_stack.sql_gateway_url}"'),
        ("lake = Lakehouse(\n", f'lake = Lakehouse(\n    name="{name}",\n'),
    ):
        assert adapted.count(written) == 1, written
        adapted = adapted.replace(written, ours)
    option = "execution.checkpointing.savepoint-dir"
    with FlinkCluster(flink_stack.rest_url, flink_stack.sql_gateway_url).job_manager() as flink:
        if option not in flink.configuration():  # which `lakehouse stack up` has
            sql = f"SET '{option}' = 'file://{project.folder}/savepoints';\n{sql}"
    project.write("sql/orders.sql", sql)
    project.write("definitions.py", adapted)
    home = project.folder / ".dagster"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    return Shop(project, name, flink_stack)


class Shop:
    """The project of the README on the shared cluster."""

    def __init__(self, project: Project, name: str, flink: RunningFlink) -> None:
        self.project = project
        self.name = name
        self.cluster = FlinkCluster(flink.rest_url, flink.sql_gateway_url)

    def lakehouse(self, *arguments: str) -> Said:
        return self.project.run(*arguments, "-m", "definitions")

    def done(self, *arguments: str) -> Said:
        said = self.lakehouse(*arguments)
        assert said.code == 0, said.err
        return said

    def running(self) -> list[str]:
        """The Flink ids of the project's own jobs that run, of any incarnation."""
        memory = load_project("definitions").runtime.memory
        own = {i.flink_job_id for job in ("orders", "sales") for i in memory.incarnations(job)}
        with self.cluster.job_manager() as job_manager:
            return [
                job.job_id
                for job in job_manager.jobs()
                if job.job_id in own and not job.status.is_terminal
            ]

    def snapshot(self, table: str) -> int:
        return self.table(table).latest_snapshot_id() or 0

    def table(self, table: str) -> TableReader:
        return load_project("definitions").lakehouse.catalog.open().table(table)

    def clean_up(self) -> None:
        with self.cluster.job_manager() as job_manager:
            for job_id in self.running():
                job_manager.cancel(job_id)


@pytest.fixture
def clean_shop(shop: Shop) -> Iterator[Shop]:
    try:
        yield shop
    finally:
        shop.clean_up()


def test_the_readme_says_what_exists() -> None:
    """Every command, option and file that the README names is there."""
    from lakehouse_dagster.cli import main

    text = README.read_text()
    named = set(re.findall(r"`(?:\.venv/bin/)?lakehouse (\w+)", text))
    assert named == set(main.list_commands(click.Context(main)))
    for link in re.findall(r"\]\(((?!http)[^)#]+)", text):
        assert (README.parent / link).exists(), link


@pytest.mark.flink
def test_the_readmes_project_runs_stops_goes_on_and_is_cancelled(clean_shop: Shop) -> None:
    shop = clean_shop
    start = ("jobs", "start", "orders", "sales", "--json", "-m", "definitions")
    said = own_process(*start, folder=shop.project.folder, seconds=120)
    assert said.code == 0, said.err
    first = {entry["job"]: entry for entry in said.json}
    assert {name: entry["how"] for name, entry in first.items()} == {
        "orders": "started",
        "sales": "started",
    }
    assert sorted(entry["flink_job_id"] for entry in first.values()) == sorted(shop.running())
    assert [entry["restored_from"] for entry in first.values()] == [None, None]
    assert len(shop.running()) == 2
    again = shop.done("jobs", "start", "orders", "--json").json
    assert (again[0]["how"], again[0]["incarnation"]) == ("adopted", 1)

    def enough() -> bool:
        """So many orders that each of the sixteen products is among them."""
        if shop.snapshot("shop.orders") < 3 or shop.snapshot("shop.sales") < 1:
            return False
        return shop.table("shop.orders").read().num_rows >= 200

    until(enough, "enough orders", seconds=180)
    status = shop.done("status", "--json").json
    assert [(job["name"], job["desired"], job["observed"]) for job in status["jobs"]] == [
        ("orders", "RUNNING", "RUNNING"),
        ("sales", "RUNNING", "RUNNING"),
    ]
    assert {table["name"] for table in status["tables"]} == {"shop.orders", "shop.sales"}
    assert all(table["snapshot"] >= 1 for table in status["tables"])

    stopped = shop.done("jobs", "stop", "orders", "sales")
    lines = sorted(stopped.out.splitlines())
    assert [line.rsplit(" ", 1)[0] for line in lines] == [
        "orders: stopped with savepoint",
        "sales: stopped with savepoint",
    ]
    savepoints = {line.split(":")[0]: line.rsplit(" ", 1)[1] for line in lines}
    assert shop.running() == []
    assert shop.done("jobs", "stop", "orders").out == "orders: did not run\n"

    look_into_the_tables(shop)

    second = shop.done("jobs", "start", "orders", "sales", "--json").json
    assert {entry["job"]: entry["restored_from"] for entry in second} == savepoints
    assert [entry["incarnation"] for entry in second] == [2, 2]
    assert len(shop.running()) == 2

    cancelled = shop.done("jobs", "cancel", "orders", "sales", "--json").json
    assert [(entry["how"], entry["savepoint_path"]) for entry in cancelled] == [
        ("cancelled", None),
        ("cancelled", None),
    ]
    assert shop.running() == []
    states = {job["name"]: job["desired"] for job in shop.done("status", "--json").json["jobs"]}
    assert states == {"orders": "CANCELED", "sales": "CANCELED"}


def look_into_the_tables(shop: Shop) -> None:
    """``query`` in every format, now and at an older snapshot, against what pypaimon reads."""
    orders = shop.table("shop.orders")
    newest = orders.latest_snapshot_id()
    assert newest is not None
    rows, older = orders.read().num_rows, orders.read(snapshot_id=2).num_rows
    assert older < rows
    count = "SELECT COUNT(*) AS n FROM shop.orders"
    assert shop.done("query", count, "--json").json == [{"n": rows}]
    assert shop.done("query", count, "--at", "shop.orders=2", "--json").json == [{"n": older}]
    assert shop.done("query", count, "--at", f"shop.orders={newest}", "--json").json == [
        {"n": rows}
    ]

    sales = (
        "SELECT product, COUNT(*) AS orders, SUM(price) AS revenue FROM shop.orders "
        "GROUP BY product ORDER BY product"
    )
    text = shop.done("query", sales, "--format", "csv").out
    found = list(csv.DictReader(io.StringIO(text)))
    assert sum(int(row["orders"]) for row in found) == rows
    assert len(found) == 16  # datagen's strings are hexadecimal digits

    said = shop.done("query", sales, "--limit", "3")
    shown = [line.split() for line in said.out.splitlines()]
    assert shown[0] == ["product", "orders", "revenue"]
    assert shown[1:] == [list(row.values()) for row in found[:3]]
    assert said.err == "Only the first 3 rows are shown (--limit).\n"

    shop.done("query", sales, "--format", "arrow", "--output", "sales.arrow")
    with pa.ipc.open_file(shop.project.folder / "sales.arrow") as reader:
        table = reader.read_all()
    assert table.schema == pa.schema(
        {"product": pa.string(), "orders": pa.int64(), "revenue": pa.int32()}
    )
    assert table.column("orders").to_pylist() == [int(row["orders"]) for row in found]

    refused = shop.lakehouse("query", "WITH x AS (SELECT 1) INSERT INTO shop.sales SELECT * FROM x")
    assert refused.code == 1
    assert "Incorrect syntax near the keyword 'INSERT'" in refused.err
    assert orders.latest_snapshot_id() == newest
