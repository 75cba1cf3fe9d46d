"""Scripts that change, and what is common to the tests of upgrades."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lakehouse_dagster.streaming.runtime import Clock, Runtime
from lakehouse_dagster.streaming.upgrade import UpgradeOutcome, upgrade
from lakehouse_dagster.system_db import IncarnationState
from tests.support.laboratory import QUICK, Laboratory
from tests.support.rows import SourceFolder

SLOW_CHECKPOINTS = "SET 'execution.checkpointing.interval' = '4s'"
"""So that rows can come between two checkpoints."""
NO_CHECKPOINTS = "SET 'execution.checkpointing.interval' = '1 h'"
"""So that the first rows are met before any checkpoint: Flink begins at a random time within the
interval, and a checkpoint of its own makes the state the new version's."""
WATCHED = replace(QUICK, start_timeout="30s", first_checkpoint_timeout="30s")

_HEAD = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
SET 'restart-strategy.exponential-delay.initial-backoff' = '200 ms';
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.copied (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS ods.others (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS ods.totals (k BIGINT, total DOUBLE, PRIMARY KEY (k) NOT ENFORCED)
WITH ('bucket' = '1');
"""

COPY = "INSERT INTO ods.copied SELECT id, text, amount FROM incoming"
OTHERS = "INSERT INTO ods.others SELECT id, text, amount FROM other"


def statement_set(*inserts: str) -> str:
    return f"EXECUTE STATEMENT SET BEGIN {'; '.join(inserts)}; END"


def source(name: str, folder: str, *, amount: str = "INT") -> str:
    return (
        f"CREATE TEMPORARY TABLE {name} (id BIGINT, text STRING, amount {amount}) WITH (\n"
        f"  'connector' = 'filesystem', 'path' = '${{LAB}}/{folder}', 'format' = 'json',\n"
        f"  'source.monitor-interval' = '200ms'\n);\n"
    )


def write(
    lab: Laboratory, statement: str, *, sources: str | None = None, settings: Sequence[str] = ()
) -> Path:
    """Make the lab's script say this."""
    declared = sources or source("incoming", "incoming") + source("other", "other")
    head = _HEAD.format(name=lab.job) + "".join(f"{setting};\n" for setting in settings)
    lab.script.write_text(f"{head}{declared}{statement};\n")
    return lab.script


def others(lab: Laboratory) -> SourceFolder:
    """The second source."""
    return SourceFolder(lab.folder / "other")


def upgraded(
    lab: Laboratory, runtime: Runtime | None = None, *, allow_state_loss: bool = False
) -> UpgradeOutcome:
    """Upgrade the lab's job as a run or command would."""
    runtime = runtime or lab.runtime(policy=WATCHED)
    with runtime.hold(lab.job, "upgrade") as held:
        return upgrade(held, allow_state_loss=allow_state_loss)


def count(lab: Laboratory, table: str) -> int:
    reader = lab.catalog.open().table(table)
    return int(reader.read(columns=["id"]).num_rows) if reader.latest_snapshot_id() else 0


def writing_once(lab: Laboratory, number: int, state: IncarnationState) -> Clock:
    """Rows come once that incarnation is seen in that state.

    Once the first is STOPPED, the second fails as soon as it begins; once that is RUNNING, all its
    tasks have run before.
    """
    written: list[bool] = []

    def sleep(seconds: float) -> None:
        if not written and (number, state) in [(i.number, i.state) for i in lab.incarnations()]:
            written.append(True)
            lab.source.write()
        time.sleep(seconds)

    return Clock(sleep=sleep)
