"""A catalog that nobody answers for: an error at its place, soon, and never a stack trace."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import dagster as dg
import pytest

from lakehouse_dagster import Lakehouse, PaimonCatalog, ProgressPolicy, TableSettings
from lakehouse_dagster.errors import CatalogUnreachableError
from lakehouse_dagster.local.ports import HOST, free_ports
from lakehouse_dagster.streaming import commits
from lakehouse_dagster.streaming.discovery import discover
from lakehouse_dagster.streaming.partitions import TablePartitions
from lakehouse_dagster.streaming.progress import ProgressCursor, moved
from lakehouse_dagster.streaming.status import table_statuses
from tests.streaming.making import job, load, source, table

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
SECRET = "do-not-show-this"
THREADS = 4


def _on_s3(port: int) -> PaimonCatalog:
    options = {
        "s3.endpoint": f"http://{HOST}:{port}",
        "s3.access-key": "key",
        "s3.secret-key": SECRET,
        "s3.path.style.access": "true",
    }
    return PaimonCatalog(f"s3://bucket-{port}/lake", options=options)


def _by_rest(port: int) -> PaimonCatalog:
    options = {"token.provider": "bear", "token": SECRET}
    return PaimonCatalog("lake", metastore="rest", uri=f"http://{HOST}:{port}", options=options)


@contextmanager
def _hangs_up() -> Iterator[tuple[int, list[int]]]:
    """A port where every caller is hung up on, and how many there were."""
    calls: list[int] = []
    with socket.create_server((HOST, 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                calls.append(1)
                caller.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listening.getsockname()[1], calls
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture(params=[_on_s3, _by_rest], ids=["s3", "rest"])
def dead(request: pytest.FixtureRequest) -> PaimonCatalog:
    catalog: PaimonCatalog = request.param(free_ports(1)[0])
    return catalog


def test_discovery_says_that_the_catalog_does_not_answer(dead: PaimonCatalog) -> None:
    with pytest.raises(CatalogUnreachableError) as told:
        discover(dead, ["*"])
    assert str(told.value).startswith("Could not list ")
    assert "Traceback" not in str(told.value)
    assert SECRET not in str(told.value)
    assert told.value.__suppress_context__


def test_progress_tells_of_each_table_that_it_cannot_be_read(dead: PaimonCatalog) -> None:
    tables = [f"ods.t{number}" for number in range(5)]
    news = moved(dead.open(), tables, ProgressCursor(), now=NOW, policy=ProgressPolicy())
    assert (news.events, sorted(news.problems)) == ((), tables)
    for name, problem in news.problems.items():
        assert problem.startswith("Could not ")
        assert name.split(".")[1] in problem
        assert SECRET not in problem


@pytest.mark.parametrize(
    ("catalog", "most"),
    [
        # Each thread may be asking when the first learns of it, and each asks at most a few times.
        pytest.param(_on_s3, 8 * THREADS, id="s3"),
        # One connects for all.
        pytest.param(_by_rest, 1, id="rest"),
    ],
)
def test_a_silent_server_is_not_asked_once_a_table(
    catalog: Callable[[int], PaimonCatalog], most: int
) -> None:
    tables = [f"ods.t{number}" for number in range(300)]
    with _hangs_up() as (port, calls):
        news = moved(
            catalog(port).open(),
            tables,
            ProgressCursor(),
            now=NOW,
            policy=ProgressPolicy(threads=THREADS),
        )
        assert len(news.problems) == len(tables)
        assert 0 < len(calls) <= most


def test_another_lakehouses_catalog_is_not_touched_by_one_that_is_down(
    dead: PaimonCatalog, tmp_path: Path
) -> None:
    (tmp_path / "ods.db").mkdir()
    news = moved(dead.open(), ["ods.a"], ProgressCursor(), now=NOW, policy=ProgressPolicy())
    assert list(news.problems) == ["ods.a"]
    assert PaimonCatalog(str(tmp_path)).open().databases() == ("ods",)


def test_definitions_load_and_tables_have_a_status_while_the_catalog_is_down(
    dead: PaimonCatalog, tmp_path: Path
) -> None:
    scripts = {"a": table("ods.a") + source("s", "topic") + job("fill", "ods.a", "s")}
    loaded = load(tmp_path, scripts)
    lake = Lakehouse(
        catalog=dead,
        flink=loaded.lakehouse.flink,
        system_database=loaded.lakehouse.system_database,
    ).load("sql", base_folder=tmp_path)
    assert ["ods", "a"] in [
        list(key.path)
        for key in lake.definitions().get_repository_def().asset_graph.get_all_asset_keys()
    ]
    (status,) = table_statuses(lake.runtime, ["ods.a"])
    assert status.snapshot is None
    assert status.problem is not None
    assert status.problem.startswith("Could not ")


def test_the_progress_sensor_says_so_of_the_first_tables_and_keeps_its_cursor(
    dead: PaimonCatalog, tmp_path: Path
) -> None:
    by_day = TablePartitions.read(
        {"column": "v", "every": "day", "format": "%Y%m%d", "start": "20260101"}
    )
    scripts = {f"t{number}": table(f"ods.t{number}") for number in range(1, 9)}
    scripts["t0"] = "CREATE TABLE ods.t0 (id BIGINT, v STRING) PARTITIONED BY (v);"
    loaded = load(tmp_path, scripts, tables={"ods.t0": TableSettings(partitions=by_day)})
    lake = replace(loaded.lakehouse, catalog=dead).load("sql", base_folder=tmp_path)
    repository = lake.definitions().get_repository_def()
    context = dg.build_sensor_context(
        dg.DagsterInstance.ephemeral(), cursor=None, repository_def=repository
    )
    result = repository.get_sensor_def("lake_progress").evaluate_tick(context)
    assert result.asset_events == []
    said = result.skip_message or ""
    assert said.startswith("0 of 9 tables moved; ods.t0: Could not ")
    assert said.endswith("; and 4 more tables cannot be read.")
    assert SECRET not in said


def test_no_old_restore_point_is_chosen_while_the_commits_cannot_be_asked_for(
    dead: PaimonCatalog,
) -> None:
    with pytest.raises(CatalogUnreachableError):
        commits._first_beyond(dead.open(), "ods.a", "lake-fill", 3, NOW)


def test_a_server_is_asked_again_after_a_while() -> None:
    from lakehouse_dagster.paimon.files import SILENT_SECONDS, Server

    now = [0.0]
    server = Server(lambda: now[0])
    asked = []

    def ask() -> None:
        with server.asked("look", {"token": SECRET}):
            asked.append(now[0])
            if len(asked) == 1:
                raise ConnectionError(f"refused with {SECRET}")

    with pytest.raises(CatalogUnreachableError, match=r"^Could not look: ConnectionError: .*\*\*"):
        ask()
    now[0] = SILENT_SECONDS - 1
    with pytest.raises(CatalogUnreachableError, match=r"^Could not look: ConnectionError: .*\*\*"):
        ask()
    now[0] = SILENT_SECONDS + 1
    ask()
    assert asked == [0.0, SILENT_SECONDS + 1]
