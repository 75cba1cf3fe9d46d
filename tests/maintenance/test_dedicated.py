"""Which compaction jobs a policy asks for, and who counts as somebody else who writes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.actions import Situation
from lakehouse_dagster.maintenance.advice import advice_on
from lakehouse_dagster.maintenance.compaction_jobs import compaction_jobs
from lakehouse_dagster.maintenance.row_counts import counting
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.maintenance.status import table_files
from lakehouse_dagster.maintenance.strangers import still_writing
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.paimon.file_facts import BucketFacts, TableFacts
from lakehouse_dagster.sql import transport
from lakehouse_dagster.sql.reader import read_project
from lakehouse_dagster.streaming.spec import StartPolicy, StreamingJob
from tests.maintenance.test_definitions import Looked, asked

SCRIPT = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '5s';
SET 'parallelism.default' = '4';
CREATE TABLE {table} (id INT, PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '1');
CREATE TEMPORARY TABLE s (id INT) WITH ('connector' = 'datagen');
INSERT INTO {table} SELECT id FROM s;
"""
NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


def writers(folder: Path, *tables: str, names: tuple[str, ...] = ()) -> dict[str, StreamingJob]:
    paths = []
    for number, table in enumerate(tables):
        name = names[number] if names else f"write-{table}"
        path = folder / f"{number}.sql"
        path.write_text(SCRIPT.format(name=name, table=table))
        paths.append(path)
    project = read_project(paths, catalog="lake", base=folder)
    return {job.name: StreamingJob(job, StartPolicy.ON_LOAD) for job in project.jobs}


def dedicated(**tables: str | None) -> MaintenancePolicy:
    """A policy with compaction jobs for tables of ``ods``: alone, or in a group."""
    return MaintenancePolicy(
        tables={
            f"ods.{name}": TablePolicy(compaction="dedicated", compaction_group=group)
            for name, group in tables.items()
        }
    )


def test_every_dedicated_table_gets_a_compaction_job_that_writes_nothing(tmp_path: Path) -> None:
    jobs = writers(tmp_path, "ods.a", "ods.b", "ods.c")
    made = compaction_jobs(dedicated(a=None, c=None), jobs)
    assert list(made) == ["compact-ods.a", "compact-ods.c"]
    job = made["compact-ods.a"]
    assert job.definition.statement.text == "CALL sys.compact(`table` => 'ods.a')"
    assert (job.compacts, job.sink_keys, job.keeps_state) == (("ods.a",), (), False)
    # It is looked after as the writer is, and keeps its checkpoints in the same place.
    assert job.start is StartPolicy.ON_LOAD
    assert job.definition.settings == {"execution.checkpointing.interval": "5s"}
    assert job.declared_elsewhere[0].tables == ("ods.a",)
    assert jobs["write-ods.a"].keeps_state
    assert transport.from_data(StreamingJob, transport.to_data(job)) == job


def test_tables_of_a_group_share_a_compaction_job(tmp_path: Path) -> None:
    jobs = writers(tmp_path, "ods.a", "ods.b", "ods.c")
    made = compaction_jobs(dedicated(a="small", b="small", c=None), jobs)
    assert list(made) == ["compact-small", "compact-ods.c"]
    assert made["compact-small"].compacts == ("ods.a", "ods.b")
    text = made["compact-small"].definition.statement.text
    assert r"`including_tables` => 'ods\.a|ods\.b'" in text
    assert "`mode` => 'combined'" in text


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    jobs = writers(tmp_path, "ods.a", names=("compact-ods.a",))
    with pytest.raises(ConfigurationError, match="as is a job of a script"):
        compaction_jobs(dedicated(a=None), jobs)
    jobs = writers(tmp_path, "ods.a", "ods.b")
    with pytest.raises(ConfigurationError, match="named after the table"):
        compaction_jobs(dedicated(a=None, b="ods.a"), jobs)


def test_a_group_needs_dedicated_compaction() -> None:
    with pytest.raises(ConfigurationError, match="not dedicated"):
        TablePolicy(compaction_group="small")
    with pytest.raises(ConfigurationError, match="compaction_group is 'a b'"):
        TablePolicy(compaction="dedicated", compaction_group="a b")


def commits(user: str, *minutes_ago: float, kind: str = "APPEND") -> list[Snapshot]:
    return [
        Snapshot(
            id=1,
            schema_id=0,
            commit_user=user,
            commit_identifier=1,
            commit_kind=kind,
            committed_at=NOW - timedelta(minutes=ago),
            delta_record_count=0,
            changelog_record_count=None,
            watermark=None,
        )
        for ago in minutes_ago
    ]


def test_who_commits_again_and_again_still_writes() -> None:
    def found(*snapshots: list[Snapshot]) -> tuple[str, ...]:
        return still_writing([s for some in snapshots for s in some], ["ours_"], NOW)

    assert found(commits("x", 3, 2, 1)) == ("x",)
    assert found(commits("x", 40, 20)) == ("x",)
    # A batch job that is over, a writer that has stopped, ours, and whoever compacts.
    assert found(commits("x", 1)) == ()
    assert found(commits("x", 90, 70)) == ()
    assert found(commits("ours_1", 3, 2, 1), commits("y", 3, 2, 1, kind="COMPACT")) == ()


def bucket(number: int, size_bytes: int) -> BucketFacts:
    return BucketFacts((), number, 1, size_bytes, 1, 0, 0, 0, 0, size_bytes, 1)


def test_buckets_above_one_gigabyte_get_advice() -> None:
    facts = TableFacts("ods.a", total_buckets=2, buckets=(bucket(0, 10), bucket(1, 3 * 1024**3)))
    (advice,) = advice_on(facts, Situation())
    assert "1 of 2 buckets hold more than 1 GB, the largest 3.0 GB" in advice
    assert "lakehouse tables rescale ods.a --buckets 6" in advice
    small = TableFacts("ods.a", total_buckets=2, buckets=(bucket(0, 1024**3),))
    dynamic = TableFacts("ods.a", total_buckets=-1, buckets=(bucket(0, 3 * 1024**3),))
    assert advice_on(small, Situation()) == advice_on(dynamic, Situation()) == ()


def test_rows_and_keys_are_counted_by_partition() -> None:
    assert counting("ods.a", ["dt"], ["dt", "id"]) == (
        "SELECT `dt`, SUM(`n`), COUNT(*) FROM (SELECT `dt`, `id`, COUNT(*) AS `n` FROM "
        "`ods`.`a` GROUP BY `dt`, `id`) GROUP BY `dt`"
    )
    assert counting("ods.a", [], []) == "SELECT COUNT(*), COUNT(*) FROM `ods`.`a`"


def test_in_dagster_a_compaction_job_has_a_health_check_and_no_asset(tmp_path: Path) -> None:
    import dagster as dg

    from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog
    from lakehouse_dagster.streaming.assets import streaming_assets

    writers(tmp_path, "ods.a")
    lake = Lakehouse(
        catalog=PaimonCatalog(str(tmp_path / "warehouse")),
        flink=FlinkCluster("http://localhost:1", "http://localhost:2"),
        maintenance=dedicated(a=None),
    )
    loaded = lake.load("*.sql", base_folder=tmp_path)
    assert set(loaded.runtime.jobs) == {"write-ods.a", "compact-ods.a"}
    table = dg.AssetKey(["ods", "a"])
    (asset,) = streaming_assets(loaded.runtime, loaded.graph, materialize_timeout_seconds=1)
    assert asset.keys == {table}
    checks = {
        key.name
        for check in loaded.definitions().asset_checks or ()
        for key in check.check_keys
        if key.asset_key == table
    }
    health = {name for name in checks if name.startswith("job_health")}
    assert len(health) == 2
    assert "job_health" in health


def test_a_table_that_was_not_made_over_to_its_compaction_job_is_told_how(tmp_path: Path) -> None:
    looked = Looked(tmp_path, MaintenancePolicy(tables={"ods.*": TablePolicy("dedicated")}))
    looked.write("ods.a", 30)
    looked.write("dwd.b", 30)
    assert asked(looked.tick()) == [["dwd.b"]]
    lake = looked.lake
    (files,) = table_files(lake.keeper, lake.lakehouse.maintenance, ["ods.a"])
    assert (files.due, files.advice) == (
        (),
        (
            "compaction: dedicated is declared, but its writers compact it still: run `lakehouse "
            "tables dedicate ods.a`, or write compaction: batch.",
        ),
    )
