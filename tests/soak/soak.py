"""One soak: writers, supervisor and maintainer at work, kills, and what must hold at the end."""

from __future__ import annotations

import itertools
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.local.services import Service
from lakehouse_dagster.local.stack import LocalStack
from lakehouse_dagster.maintenance.actions import ActionKind
from lakehouse_dagster.maintenance.flink_calls import gateway_session
from lakehouse_dagster.paimon.file_facts import InMemory, TableFacts
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import utc_now
from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, ActionState
from tests.chaos.stack import QUICK_TO_NOTICE, job_manager_log, start_one
from tests.soak.lake import (
    APPEND,
    CHANGELOGS_AT_LEAST,
    DEDICATED,
    FOLLOWED,
    JOBS,
    KEEP_AT_LEAST,
    LOOKUP,
    LOOKUP_AT_MOST,
    READER,
    SMALL_FILES,
    VECTORS,
    WRITERS,
    Place,
)
from tests.soak.orphans import a_day_later
from tests.soak.processes import Worker
from tests.soak.restarts import Restarts
from tests.support.faults import kill
from tests.support.history import job_manager_history
from tests.support.rows import compare

MAINTAINER = "maintainer"
_KILLS = (
    MAINTAINER, MAINTAINER, MAINTAINER, Service.SQL_GATEWAY, Service.SQL_GATEWAY,
    Service.TASK_MANAGER, Service.JOB_MANAGER,
)  # fmt: skip
_PATIENCE_SECONDS = 420.0
"""Until all is in order at the end: an action that failed last is tried again after 5 minutes."""
_LONG_MINUTES = 8.0
_ALL_KINDS = (
    ActionKind.COMPACT, ActionKind.EXPIRE_TAGS, ActionKind.EXPIRE_PARTITIONS,
    ActionKind.EXPIRE_SNAPSHOTS, ActionKind.EXPIRE_CHANGELOGS, ActionKind.COMPACT_MANIFESTS,
    ActionKind.FIND_ORPHANS, ActionKind.REMOVE_ORPHANS,
)  # fmt: skip
"""What there is to do in a long run."""
_BATCH = {"execution.runtime-mode": "batch", "table.dml-sync": "true"}


def soak_stack(folder: str, engine: str) -> LocalStack:
    """A small cluster of its own, which notices quickly that a part of it is gone."""
    return LocalStack(
        Path(folder),
        engine,
        slots=12,
        task_manager_memory_mib=1600,
        checkpoint_interval_seconds=1,
        extra_config=QUICK_TO_NOTICE,
    )


@dataclass
class Outcome:
    """What came of it; nothing may stand in ``violations``."""

    violations: list[str] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)


@dataclass
class Soak:
    """``minutes`` of work and kills; ``kills`` in this order instead of random ones."""

    stack: LocalStack
    place: Place
    minutes: float
    seed: int = 1
    kill_every_seconds: tuple[float, float] = (20.0, 40.0)
    kills: tuple[Service | str, ...] | None = None
    done: Counter[str] = field(default_factory=Counter)
    marked: int = 0
    """The most rows that were marked as deleted at a time."""

    def run(self) -> Outcome:
        """Start everything, strike, let it settle, judge."""
        keeper = self.place.keeper
        self.chance = random.Random(self.seed)
        self.restarts = Restarts(self.place)
        self.place.source.write(20)
        for applied in apply(keeper.runtime, [(j, verb("start")) for j in JOBS], holder="soak"):
            assert applied.error is None, applied.error
        self.workers = {what: Worker(what, self.place) for what in ("supervisor", MAINTAINER)}
        try:
            with self.restarts:
                self._work()
                return self._judged()
        finally:
            for worker in self.workers.values():
                worker.kill()

    # at work

    def _work(self) -> None:
        began, length = time.monotonic(), self.minutes * 60
        next_kill = began + self.chance.uniform(*self.kill_every_seconds)
        odd_jobs = itertools.count(1)
        stopped = started = False
        while (passed := time.monotonic() - began) < length:
            self.place.source.write(self.chance.randint(1, 20))
            if passed > 0.2 * length and not stopped:
                stopped = self._reader("stop")
            if passed > 0.6 * length and stopped and not started:
                started = self._reader("start")
            if time.monotonic() >= next_kill and passed < 0.9 * length:
                self._strike()
                next_kill = time.monotonic() + self.chance.uniform(*self.kill_every_seconds)
            self._odd_job(number := next(odd_jobs))
            if not number % 5:
                self._count_marked()
            time.sleep(self.chance.uniform(0.5, 1.5))
        self._junk(0)
        if stopped and not started:
            self._until(lambda: self._reader("start"), "the reader started")

    def _reader(self, what: str) -> bool:
        (applied,) = apply(self.place.keeper.runtime, [(READER, verb(what))], holder="soak")
        if applied.error is not None:
            self._say(f"{what} of the reader: {applied.error!r}")
        return applied.error is None

    def _strike(self) -> None:
        number = self.done.total()
        fixed = self.kills
        if fixed is not None and number >= len(fixed):
            return
        what = fixed[number] if fixed is not None else self.chance.choice(_KILLS)
        self.done[what.value if isinstance(what, Service) else what] += 1
        self._say(f"kill {what}")
        if not isinstance(what, Service):
            self.workers[MAINTAINER].kill()
            self.workers[MAINTAINER] = Worker(MAINTAINER, self.place)
            return
        if what is not Service.SQL_GATEWAY:
            self.restarts.cluster_killed()
        kill(self.stack, what)
        start_one(self.stack, what)
        self.stack.up()
        if what is not Service.SQL_GATEWAY:
            self.restarts.cluster_killed()

    def _odd_job(self, number: int) -> None:
        """Every eighth time junk, a tag or an old partition, in turn."""
        turn, rest = divmod(number, 8)
        if rest:
            return
        if turn % 3 == 0:
            self._junk(turn)
        elif turn % 3 == 1:
            self._sql(f"CALL sys.create_tag(`table` => '{LOOKUP}', tag => 'soak-{turn}')")
        else:
            day = f"2020-01-{turn % 28 + 1:02d}"
            self._sql(f"INSERT INTO {APPEND} VALUES (-{turn}, 'old', 1, '{day}')")

    def _junk(self, number: int) -> None:
        """Files that no snapshot knows, five days old."""
        for table in WRITERS:
            for folder in self.place.table_path(table).rglob("bucket-0"):
                for _ in range(2):
                    # Paimon counts orphans of one name in several folders once.
                    file = folder / f"data-junk-{number}-{uuid4()}-0.parquet"
                    file.write_bytes(b"junk")
                    old = time.time() - 5 * 86400
                    os.utime(file, (old, old))

    def _count_marked(self) -> None:
        buckets = self._facts(VECTORS).buckets
        self.marked = max(self.marked, sum(bucket.deleted_records for bucket in buckets))

    def _sql(self, text: str) -> None:
        log = logging.getLogger("soak")
        with (
            suppress(LakehouseError),
            gateway_session(self.place.keeper.runtime, "soak", log) as session,
        ):
            session.execute(text, config=_BATCH, timeout_seconds=60)

    # at the end

    def _judged(self) -> Outcome:
        found = Outcome()
        for what, holds in (
            ("all jobs run", self._all_run),
            ("all rows are there", self._all_rows),
            ("all tables are tidy", lambda: not self._untidy()),
        ):
            if not self._until(holds, what):
                found.violations.append(f"not so in {_PATIENCE_SECONDS:g} s: {what}")
                found.violations += self._untidy()
        for what, worker in self.workers.items():
            if not worker.end():
                found.violations.append(f"the {what} did not end")
            found.violations += worker.unexpected()
        found.violations += a_day_later(self.place)
        found.violations += self._wrong_rows() + self._left_behind() + self._doubled()
        found.violations += self._idle()
        if self.restarts.unexplained[DEDICATED]:
            found.violations.append(f"restarts without a kill: {self.restarts.unexplained}")
        found.figures = self._figures()
        return found

    def _all_run(self) -> bool:
        with (
            suppress(LakehouseError),
            self.place.keeper.runtime.cluster.job_manager() as job_manager,
        ):
            alive = Counter(
                job.name
                for job in job_manager.jobs()
                if job.status.value == "RUNNING" and job.all_tasks_run
            )
            return all(alive[job] == 1 for job in JOBS)
        return False

    def _all_rows(self) -> bool:
        return not self._wrong_rows()

    def _wrong_rows(self) -> list[str]:
        wrong = []
        for table in (*WRITERS, FOLLOWED):
            rows = compare(self.place.catalog, table, self.place.source)
            if not rows.equal:
                wrong.append(f"{table}: {rows}")
        return wrong

    def _facts(self, table: str) -> TableFacts:
        return self.place.catalog.open().table(table).facts(InMemory())

    def _untidy(self) -> list[str]:
        """What the policy should have brought in order, once nothing comes any more."""
        found = []
        for table in WRITERS:
            facts = self._facts(table)
            if facts.problem:
                found.append(f"{table}: {facts.problem}")
            most = LOOKUP_AT_MOST if table == LOOKUP else KEEP_AT_LEAST
            if facts.snapshot_count > most + 2:
                found.append(f"{table} has {facts.snapshot_count} snapshots")
            if facts.changelog_count > CHANGELOGS_AT_LEAST + 2:
                found.append(f"{table} has {facts.changelog_count} changelogs")
            files = max((bucket.files for bucket in facts.buckets), default=0)
            if files > SMALL_FILES + 3:
                found.append(f"{table} has {files} files in a bucket")
            if any((dict(b.partition).get("dt") or "2099") < "2021" for b in facts.buckets):
                found.append(f"{table} has partitions that are past")
            bound = datetime.now(timezone.utc) - timedelta(seconds=60)
            old = [n for n, t in facts.tags.items() if t.created_at and t.created_at < bound]
            if old:
                found.append(f"{table} has old tags: {', '.join(old)}")
        return found

    def _left_behind(self) -> list[str]:
        keeper = self.place.keeper
        found = [f"on record as running: {record}" for record in keeper.actions.running()]
        with keeper.runtime.cluster.job_manager() as job_manager:
            found += [
                f"an orphaned Flink job: {job.name}"
                for job in job_manager.jobs()
                if not job.status.is_terminal and job.name not in JOBS
            ]
        return found

    def _idle(self) -> list[str]:
        """What a long run must have had to do, and had not."""
        if self.minutes < _LONG_MINUTES:
            return []
        records = self._records()
        done = {record.kind for record in records if record.state is ActionState.DONE}
        never = sorted(set(_ALL_KINDS) - done)
        found = [f"there was never a {kind}" for kind in never]
        return found + ([] if self.marked else ["no row was ever marked as deleted"])

    def _records(self) -> tuple[ActionRecord, ...]:
        return tuple(
            self.place.keeper.actions.ended_since(datetime.now(timezone.utc) - timedelta(days=1))
        )

    def _doubled(self) -> list[str]:
        history = job_manager_history(job_manager_log(self.stack))
        return [f"two jobs named {name} at once" for name, *_ in history.overlaps if name in JOBS]

    def _figures(self) -> dict[str, object]:
        records = self._records()
        ended: Counter[str] = Counter(f"{r.kind} {r.state.value}" for r in records)
        conflicts = sum(max(0, record.attempts - 1) for record in records)
        return {
            "rows": self.place.source.last,
            "kills": dict(self.done),
            "actions": dict(sorted(ended.items())),
            "compactions tried again": conflicts,
            "rows marked as deleted at a time": self.marked,
            "restarts after kills": dict(self.restarts.explained),
            "restarts without a kill": dict(self.restarts.unexplained),
            "writer restarts on record": sum(record.writer_restarts for record in records),
            "snapshots made": {t: self._facts(t).snapshot_id for t in WRITERS},
        }

    def _until(self, look: Callable[[], bool], what: str) -> bool:
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE_SECONDS:
            if look():
                self._say(f"{what} after {time.monotonic() - began:.0f} s")
                return True
            time.sleep(2.0)
        return False

    def _say(self, text: str) -> None:
        print(f"{utc_now():%H:%M:%S} {text}", flush=True)
