"""A table that a streaming job of a laboratory writes all the time, by key."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property

from lakehouse_dagster.maintenance.compaction_jobs import compaction_jobs
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, TablePolicy
from lakehouse_dagster.paimon.file_facts import InMemory, TableFacts
from lakehouse_dagster.streaming.runtime import Runtime
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
        return replace(runtime, jobs={**runtime.jobs, **compaction_jobs(self.policy, runtime.jobs)})

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

    def write(self, times: int) -> None:
        """Write rows, each time only when those before have been committed."""
        for _ in range(times):
            self.lab.source.write(20)
            self.lab.copied()

    def restarts(self, job_id: str) -> int:
        return self.lab.checkpoints(job_id).restored_count

    def checkpoint(self, job_id: str) -> None:
        until(lambda: self.lab.checkpoints(job_id).completed_count > 0, "a checkpoint")
