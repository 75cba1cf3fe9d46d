"""A table that a streaming job of a laboratory writes all the time, by key."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lakehouse_dagster.maintenance.compaction_jobs import compaction_jobs
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.paimon.file_facts import InMemory, TableFacts
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.start import StartOutcome
from tests.support.laboratory import TABLE, Laboratory, until

LOG = logging.getLogger("test")
DEDICATED = MaintenancePolicy(TablePolicy(compaction="dedicated"))

_SCRIPT = """\
SET 'pipeline.name' = '{name}';
SET 'execution.checkpointing.interval' = '500ms';
SET 'execution.checkpointing.dir' = 'file://${{LAB}}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://${{LAB}}/savepoints';
CREATE DATABASE IF NOT EXISTS ods;
CREATE TABLE IF NOT EXISTS ods.copied (id BIGINT, text STRING, amount INT{key}) WITH ({options});
CREATE TEMPORARY TABLE incoming (id BIGINT, text STRING, amount INT) WITH (
  'connector' = 'filesystem', 'path' = '${{LAB}}/incoming', 'format' = 'json',
  'source.monitor-interval' = '200ms'
);
INSERT INTO ods.copied SELECT id, text, amount FROM incoming;
"""


def quick_compaction_jobs(
    policy: MaintenancePolicy, jobs: Mapping[str, StreamingJob]
) -> dict[str, StreamingJob]:
    """The policy's compaction jobs; those of groups look at their tables every 300 ms.

    By default it is every 10 s, and their checkpoints wait for that. Of a single table its option
    ``continuous.discovery-interval`` says it.
    """
    return {name: _looking_often(job) for name, job in compaction_jobs(policy, jobs).items()}


def _looking_often(job: StreamingJob) -> StreamingJob:
    statement = job.definition.statement
    if "compact_database" not in statement.text:
        return job
    options = "table_options => 'continuous.discovery-interval=300ms'"
    text = f"{statement.text.removesuffix(')')}, {options})"
    return replace(job, definition=replace(job.definition, statement=replace(statement, text=text)))


@dataclass
class Written:
    """The table ``ods.copied``, its writer, and the keeper of the lakehouse."""

    lab: Laboratory
    policy: MaintenancePolicy = DEDICATED

    def declare(self, *, keyed: bool = True, **options: str) -> None:
        """Write the script that declares and fills the table."""
        given = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        key = ", PRIMARY KEY (id) NOT ENFORCED" if keyed else ""
        self.lab.script.write_text(_SCRIPT.format(name=self.lab.job, key=key, options=given))

    @cached_property
    def runtime(self) -> Runtime:
        """With the policy's compaction jobs."""
        runtime = self.lab.runtime()
        jobs = quick_compaction_jobs(self.policy, runtime.jobs)
        return replace(runtime, jobs={**runtime.jobs, **jobs})

    @cached_property
    def keeper(self) -> Keeper:
        return Keeper(self.runtime)

    def start(self) -> StartOutcome:
        return self.lab.start(self.runtime)

    def facts(self) -> TableFacts:
        """As read anew."""
        return self.lab.catalog.open().table(TABLE).facts(InMemory())

    @property
    def level0_files(self) -> int:
        return sum(bucket.level0_files for bucket in self.facts().buckets)

    @property
    def rows_told(self) -> int:
        """Rows in the changelogs of all snapshots: what streaming readers have been told of."""
        (folder,) = self.lab.folder.rglob("ods.db/copied/snapshot")
        snapshots = [json.loads(path.read_text()) for path in folder.glob("snapshot-*")]
        return sum(snapshot.get("changelogRecordCount") or 0 for snapshot in snapshots)

    def write(self, times: int) -> None:
        """Write rows, each time only when those before have been committed."""
        for _ in range(times):
            self.lab.source.write(20)
            self.lab.copied()

    def restarts(self, job_id: str) -> int:
        return self.lab.checkpoints(job_id).restored_count

    def checkpoint(self, job_id: str) -> None:
        until(lambda: self.lab.checkpoints(job_id).completed_count > 0, "a checkpoint")
