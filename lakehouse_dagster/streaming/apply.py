"""Bring several jobs to where they should be, a few at a time, each under its own lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    JobNotFoundError,
    LakehouseError,
    LeaseHeldError,
    LeaseLostError,
)
from lakehouse_dagster.streaming.adopt import AdoptOutcome, adopt, adopt_own
from lakehouse_dagster.streaming.forget import ForgetOutcome, forget
from lakehouse_dagster.streaming.observe import Verb
from lakehouse_dagster.streaming.orphans import job_or_orphan
from lakehouse_dagster.streaming.revive import revive
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob, Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.streaming.start import StartOutcome, start_or_adopt
from lakehouse_dagster.streaming.stop import StopOutcome, cancel, stop_with_savepoint
from lakehouse_dagster.streaming.upgrade import UpgradeOutcome, restart, upgrade

Outcome: TypeAlias = StartOutcome | StopOutcome | UpgradeOutcome | AdoptOutcome | ForgetOutcome
JobVerb = Callable[[HeldJob, logging.Logger], Outcome]


class CancelledByUserError(BaseException):
    """Raised inside a worker when the run that it belongs to is cancelled.

    A BaseException, as Dagster's own interruption: clean-up runs, nothing swallows it.
    """


@dataclass(frozen=True)
class Applied:
    """How it went with one job: an outcome, or the error that says what to do."""

    job: str
    outcome: Outcome | None
    error: LakehouseError | None


@dataclass(frozen=True)
class Allowed:
    """What a person permits: to start from nothing, to lose state, to take over which job."""

    empty_start: bool = False
    state_loss: bool = False
    flink_job_id: str | None = None
    foreign: bool = True
    """Whether jobs that were started by hand are adopted, or ours alone."""


@dataclass(frozen=True)
class Acts:
    """A verb as it is applied."""

    act: JobVerb
    on_orphans: bool = False
    """Whether it makes sense for a job whose script is gone."""
    in_order: bool = False
    """Whether upstream jobs must be done first."""


def verb(name: str, allowed: Allowed = Allowed()) -> Acts:
    """The function behind a verb of ``observe.Verb``."""
    return _VERBS[Verb(name)](allowed)


_VERBS: dict[Verb, Callable[[Allowed], Acts]] = {
    Verb.START: lambda allowed: Acts(
        lambda held, log: start_or_adopt(
            held,
            allow_empty_start=allowed.empty_start,
            allow_state_loss=allowed.state_loss,
            log=log,
        )
    ),
    Verb.RECOVER: lambda _: Acts(lambda held, log: start_or_adopt(held, recover=True, log=log)),
    Verb.REVIVE: lambda _: Acts(lambda held, log: revive(held, log=log)),
    Verb.STOP: lambda _: Acts(lambda held, log: stop_with_savepoint(held, log=log), True),
    Verb.CANCEL: lambda _: Acts(lambda held, log: cancel(held, log=log), True),
    Verb.RESTART: lambda allowed: Acts(
        lambda held, log: restart(held, allow_state_loss=allowed.state_loss, log=log)
    ),
    Verb.UPGRADE: lambda allowed: Acts(
        lambda held, log: upgrade(held, allow_state_loss=allowed.state_loss, log=log),
        in_order=True,
    ),
    Verb.ADOPT: lambda allowed: Acts(
        lambda held, log: (
            adopt(held, flink_job_id=allowed.flink_job_id, log=log)
            if allowed.foreign
            else adopt_own(held, log=log)
        )
    ),
    Verb.FORGET: lambda _: Acts(lambda held, log: forget(held, log=log), True),
}


@dataclass
class _Crew:
    """The workers of one call of ``apply``."""

    runtime: Runtime
    holder: str
    log: logging.Logger
    cancelled: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.runtime = self.runtime.with_sleep(self._sleep)

    def _sleep(self, seconds: float) -> None:
        if self.cancelled.wait(seconds):
            raise CancelledByUserError

    def do(self, work: Sequence[tuple[str, Acts]]) -> list[Applied]:
        with ThreadPoolExecutor(max_workers=self.runtime.policy.concurrency) as pool:
            futures: list[Future[Applied]] = []
            try:
                for name, acts in work:
                    futures.append(pool.submit(self._one, name, acts))
                return [future.result() for future in futures]
            except BaseException:
                self.cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _one(self, name: str, acts: Acts) -> Applied:
        runtime = self.runtime
        try:
            job = job_or_orphan(runtime, name) if acts.on_orphans else runtime.job(name)
            with runtime.hold(job, self.holder) as held:
                return Applied(name, acts.act(held, self.log), None)
        except JobNotFoundError as error:
            self.log.error("%s", error)
            return Applied(name, None, error)
        except LakehouseError as error:
            # Someone else acts on the job: what is said of it is theirs to say.
            if not isinstance(error, LeaseHeldError | LeaseLostError):
                runtime.memory.ensure(name)
                runtime.memory.set_error(name, str(error))
            if isinstance(error, ClusterUnreachableError):
                # It comes back by itself one day: backed off, but never left to a person.
                runtime.memory.limit_attempts(name, runtime.policy.max_attempts - 1)
            self.log.error("%s", error)
            return Applied(name, None, error)


def apply(
    runtime: Runtime,
    work: Sequence[tuple[str, Acts]],
    *,
    holder: str,
    log: logging.Logger = LOGGER,
) -> tuple[Applied, ...]:
    """Do each (job name, verb) with bounded concurrency; one failure leaves the others alone.

    A name that is not declared (any more) is such a failure. Upgrades go in the order of the
    graph: a job begins when those that it reads from are done.

    On KeyboardInterrupt, or Dagster's interruption, every worker is told to stop at its next wait,
    cleans up what it started and releases its lease before this returns.
    """
    crew = _Crew(runtime, holder, log)
    done: dict[str, Applied] = {}
    for wave in _waves(runtime, work):
        done |= {applied.job: applied for applied in crew.do(wave)}
    return tuple(done[name] for name, _ in work)


def _waves(
    runtime: Runtime, work: Sequence[tuple[str, Acts]]
) -> Iterable[Sequence[tuple[str, Acts]]]:
    """The work cut into parts that must wait for each other."""
    if not any(acts.in_order for _, acts in work):
        return [work]
    depth = depths([runtime.jobs[name] for name, _ in work if name in runtime.jobs])
    waves: dict[int, list[tuple[str, Acts]]] = {}
    for name, acts in work:
        waves.setdefault(depth.get(name, 0), []).append((name, acts))
    return [waves[level] for level in sorted(waves)]


def depths(jobs: Sequence[StreamingJob]) -> dict[str, int]:
    """How many of these jobs must come before each, by the tables that they write and read.

    Jobs that read from each other in a circle come in the order in which they are given.
    """
    writers: dict[str, list[str]] = {}
    for job in jobs:
        for table in job.sink_keys:
            writers.setdefault(table, []).append(job.name)
    upstream = {
        job.name: {w for t in job.definition.reads for w in writers.get(t.key, ())} - {job.name}
        for job in jobs
    }
    found: dict[str, int] = {}

    def depth(name: str, path: tuple[str, ...]) -> int:
        if name not in found:
            before = [u for u in upstream[name] if u not in path]
            found[name] = max((depth(u, (*path, name)) + 1 for u in before), default=0)
        return found[name]

    for job in jobs:
        depth(job.name, ())
    return found
