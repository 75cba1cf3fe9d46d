"""Bring several jobs to where they should be, a few at a time, each under its own lease."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from lakehouse_dagster.errors import (
    JobNotFoundError,
    LakehouseError,
    LeaseHeldError,
    LeaseLostError,
)
from lakehouse_dagster.streaming.observe import Verb
from lakehouse_dagster.streaming.runtime import LOGGER, HeldJob, Runtime
from lakehouse_dagster.streaming.start import StartOutcome, start_or_adopt
from lakehouse_dagster.streaming.stop import StopOutcome, cancel, restart, stop_with_savepoint


class CancelledByUserError(BaseException):
    """Raised inside a worker when the run that it belongs to is cancelled.

    A BaseException, as Dagster's own interruption: clean-up runs, nothing swallows it.
    """


@dataclass(frozen=True)
class Applied:
    """How it went with one job: an outcome, or the error that says what to do."""

    job: str
    outcome: StartOutcome | StopOutcome | None
    error: LakehouseError | None


JobVerb = Callable[[HeldJob, logging.Logger], "StartOutcome | StopOutcome"]


def verb(name: str, *, allow_empty_start: bool = False) -> JobVerb:
    """The function behind ``start``, ``stop``, ``cancel`` or ``restart``."""
    verbs: dict[str, JobVerb] = {
        Verb.START.value: lambda held, log: start_or_adopt(
            held, allow_empty_start=allow_empty_start, log=log
        ),
        Verb.STOP.value: lambda held, log: stop_with_savepoint(held, log=log),
        Verb.CANCEL.value: lambda held, log: cancel(held, log=log),
        "restart": lambda held, log: restart(held, log=log),
    }
    return verbs[name]


def apply(
    runtime: Runtime,
    work: Sequence[tuple[str, JobVerb]],
    *,
    holder: str,
    log: logging.Logger = LOGGER,
) -> tuple[Applied, ...]:
    """Do each (job name, verb) with bounded concurrency; one failure leaves the others alone.

    A name that is not declared (any more) is such a failure.

    On KeyboardInterrupt, or Dagster's interruption, every worker is told to stop at its next wait,
    cleans up what it started and releases its lease before this returns.
    """
    cancelled = threading.Event()

    def sleep(seconds: float) -> None:
        if cancelled.wait(seconds):
            raise CancelledByUserError

    cancellable = runtime.with_sleep(sleep)
    with ThreadPoolExecutor(max_workers=runtime.policy.concurrency) as pool:
        futures: list[Future[Applied]] = []
        try:
            for name, job_verb in work:
                futures.append(pool.submit(_one, cancellable, name, job_verb, holder, log))
            return tuple(future.result() for future in futures)
        except BaseException:
            cancelled.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _one(
    runtime: Runtime, name: str, job_verb: JobVerb, holder: str, log: logging.Logger
) -> Applied:
    try:
        runtime.job(name)
        with runtime.hold(name, holder) as held:
            outcome = job_verb(held, log)
    except JobNotFoundError as error:
        log.error("%s", error)
        return Applied(name, None, error)
    except LakehouseError as error:
        # Someone else acts on the job: what is said of it is theirs to say.
        if not isinstance(error, LeaseHeldError | LeaseLostError):
            runtime.memory.ensure(name)
            runtime.memory.set_error(name, str(error))
        log.error("%s", error)
        return Applied(name, None, error)
    return Applied(name, outcome, None)
