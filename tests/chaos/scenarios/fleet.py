"""Twenty real jobs all dead at once: one run sees to them, a few at a time, and all come back."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lakehouse_dagster.local.services import Service
from lakehouse_dagster.streaming.apply import apply, verb
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.supervise import Look, SupervisorCursor, claim, look
from tests.chaos.plan import Row
from tests.chaos.scenario import scenario
from tests.chaos.scene import POLICY, Scene
from tests.chaos.stack import job_manager_log
from tests.support.history import job_manager_history
from tests.support.laboratory import QUICK, until
from tests.support.proof import violations
from tests.support.rows import wait_until_equal

JOBS = 20


@dataclass
class Fleet:
    """Many jobs of one lakehouse that each copy the same source into a table of their own."""

    scene: Scene

    def __post_init__(self) -> None:
        lab = self.scene.lab
        self.names = [f"{lab.job}-{number:02d}" for number in range(1, JOBS + 1)]
        self.tables = [f"ods.copied_{number:02d}" for number in range(1, JOBS + 1)]
        text = lab.write_script(interval="2s").read_text()
        self.scripts = [
            self._script(text, name, table)
            for name, table in zip(self.names, self.tables, strict=True)
        ]
        self.runtime: Runtime = lab.runtime(
            *self.scripts,
            policy=replace(QUICK, **{**POLICY, "concurrency": 4, "submission_timeout": "60s"}),
        )

    def _script(self, text: str, name: str, table: str) -> Path:
        file = self.scene.lab.folder / f"{name}.sql"
        text = text.replace(f"'{self.scene.lab.job}'", f"'{name}'")
        file.write_text(re.sub(r"ods\.copied\b", table, text))
        return file

    def start(self) -> None:
        work = [(name, verb("start")) for name in self.names]
        errors = [one.error for one in apply(self.runtime, work, holder="person") if one.error]
        assert errors == []

    def alive(self) -> dict[str, list[str]]:
        """The ids that run under each name, with all tasks."""
        found: dict[str, list[str]] = {name: [] for name in self.names}
        with self.runtime.cluster.job_manager() as job_manager:
            for job in job_manager.jobs():
                if job.name in found and not job.status.is_terminal:
                    found[job.name].append(job.job_id)
        return found

    def cancel_all(self) -> None:
        with self.runtime.cluster.job_manager() as job_manager:
            for ids in self.alive().values():
                for job_id in ids:
                    job_manager.cancel(job_id)

    def seen_dead(self) -> Look:
        """Look until one look asks for all of them."""
        cursor, most = SupervisorCursor(), 0

        def once() -> Look | None:
            nonlocal cursor, most
            seen = look(self.runtime, cursor)
            cursor = seen.cursor
            most = max(most, len(seen.actions))
            return seen if len(seen.actions) == JOBS else None

        return until(once, f"one run for all {JOBS} (at most {most})", seconds=40)

    def bring_back(self, seen: Look) -> None:
        """The one run that the sensor asks for."""
        claim(self.runtime, seen.actions)
        work = [(action.job, verb(action.verb.value)) for action in seen.actions]
        began = time.monotonic()
        results = apply(self.runtime, work, holder="run")
        self.scene.at(f"one run of {len(work)} jobs, {time.monotonic() - began:.0f} s")
        for again in range(3):
            failed = [result.job for result in results if result.error]
            if not failed:
                return
            self.scene.at(f"{len(failed)} tried again: {again + 1}")
            results = apply(self.runtime, [(n, verb("start")) for n in failed], holder="run")
        assert not any(result.error for result in results)

    def copied(self) -> None:
        for table in self.tables:
            wait_until_equal(self.scene.lab.catalog, table, self.scene.lab.source, seconds=60)

    def prove(self) -> None:
        """What Scene.prove does for one job, for each."""
        self.copied()
        time.sleep(3)  # a checkpoint more: a second writer would have shown itself
        alive = self.alive()
        history = job_manager_history(job_manager_log(self.scene.stack))
        found: list[str] = []
        for name, table in zip(self.names, self.tables, strict=True):
            newest = self.runtime.memory.latest(name)
            assert newest is not None
            evidence = self.scene.evidence(newest.flink_job_id, [], name, table, history)
            found += [f"{name}: {one}" for one in violations(evidence)]
            found += [] if len(alive[name]) == 1 else [f"{name}: {alive[name]} run"]
        assert not found, "; ".join(found)
        self.scene.proved = True


def _all_dead_at_once(scene: Scene, kill: str) -> None:
    scene.lab.source.write(40)
    fleet = Fleet(scene)
    fleet.start()
    fleet.copied()
    scene.lab.source.write(20)
    if kill == "cancelled":
        fleet.cancel_all()
    else:
        scene.kill(Service.JOB_MANAGER)
        scene.stack.up()
    fleet.bring_back(fleet.seen_dead())
    fleet.prove()


@scenario(
    Row.FLEET, "twenty jobs cancelled on the cluster at once", cluster_wide=True, limit_seconds=420
)
def cancelled(scene: Scene) -> None:
    _all_dead_at_once(scene, "cancelled")


@scenario(Row.FLEET, "twenty jobs lost with their JobManager", cluster_wide=True, limit_seconds=420)
def lost(scene: Scene) -> None:
    _all_dead_at_once(scene, "lost")
