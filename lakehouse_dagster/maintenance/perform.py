"""Carries out what is due, on record from before it begins to after it has ended."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.errors import (
    ClusterUnreachableError,
    LakehouseError,
    LeaseHeldError,
    LeaseLostError,
    MaintenanceConflictError,
    MaintenanceError,
)
from lakehouse_dagster.flink import JobManager, Session
from lakehouse_dagster.listing import some
from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.budget import COMPACTIONS, ActionGroup
from lakehouse_dagster.maintenance.calls import Call, calls_of
from lakehouse_dagster.maintenance.expire import EXPIRIES, next_expiry
from lakehouse_dagster.maintenance.flink_calls import (
    FlinkWork,
    call_in_gateway,
    cancel_job,
    gateway_session,
    has_finished,
    run_job,
)
from lakehouse_dagster.maintenance.held import HeldTables, Keeper
from lakehouse_dagster.maintenance.own_commits import will_commit, with_commit_users
from lakehouse_dagster.maintenance.writers import (
    counts_of_writers,
    restarts_since,
    wait_for_their_commits,
)
from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.streaming.session import close
from lakehouse_dagster.system_db.maintenance_actions import (
    ActionChanges,
    ActionRecord,
    ActionState,
)

_ID_NAMESPACE = uuid.UUID("0b8b7d0e-51a7-5a6e-8d1c-3f1b8a1f6c55")
_CALLS_AT_MOST = 200
"""An expiry that is called until nothing is left stops after so many, and goes on next time."""
_FIRST_PAUSE_SECONDS = 5.0
_TOLD_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Performing:
    """How actions are carried out.

    Args:
        attempts: of a compaction that loses against its writer's commits.
        timeout_seconds: of a CALL that the gateway carries out by itself.
        writers_seconds: how long writers are watched after a compaction, to tell whether it made
            them restart.
        on_progress: told what happens while it lasts.
    """

    attempts: int = 3
    timeout_seconds: float = 600.0
    writers_seconds: float = 60.0
    first_pause_seconds: float = _FIRST_PAUSE_SECONDS
    on_progress: Callable[[str], None] = lambda _: None
    log: logging.Logger = LOGGER


def perform(held: HeldTables, group: ActionGroup, how: Performing) -> tuple[ActionRecord, ...]:
    """Carry out a group of actions; one record an action comes back, whatever became of it.

    What an earlier run left undone on the tables is settled first: its Flink job is cancelled.

    Raises:
        LeaseLostError: somebody else took over: what becomes of it is theirs to say.
        ClusterUnreachableError: nobody answers; the records stay open and are settled next time.
    """
    with held.runtime.cluster.job_manager() as job_manager:
        for table in held.tables:
            settle(held, table, job_manager, how.log)
        before = {action.table: held.keeper.facts(action.table) for action in group.actions}
        calls = calls_of(group)
        records = [
            _begin(held, action, before[action.table], len(calls)) for action in group.actions
        ]
        work = _Work(held, group, calls, records, job_manager, how)
        try:
            return work.done()
        except LeaseLostError:
            raise
        except LakehouseError as error:
            if work.answers is not None:
                how.log.warning("What writers did meanwhile is not known: %s", error)
                return work.over(ActionState.DONE)
            if isinstance(error, ClusterUnreachableError):
                raise
            how.log.error("%s", error)
            return work.over(ActionState.FAILED, error=str(error))
        except BaseException:
            if not work.may_run_on:  # else it stays open, and whoever comes next settles it
                work.cancelled()
            raise


def settle(
    held: HeldTables, table: str, job_manager: JobManager, log: logging.Logger
) -> tuple[ActionRecord, ...]:
    """Bring actions to an end whose run is gone: we hold the lease, so nobody works on them.

    Raises:
        ClusterUnreachableError: nothing is known, and nothing new may begin.
        MaintenanceError: a Flink job of theirs may still run.
    """
    left = [r for r in held.keeper.actions.running() if r.table_name == table]
    return tuple(_settled(held, record, job_manager, log) for record in left)


def _settled(
    held: HeldTables, record: ActionRecord, job_manager: JobManager, log: logging.Logger
) -> ActionRecord:
    done = False
    with held.runtime.cluster.sql_gateway() as gateway:
        session = gateway.session(record.session_handle) if record.session_handle else None
        held.still_ours()
        if record.flink_job_id is not None:
            if not cancel_job(held.runtime, record.flink_job_id, job_manager, log, session=session):
                raise MaintenanceError(
                    f"The Flink job {record.flink_job_id} of an earlier {record.kind} of "
                    f"{record.table_name} may still run.",
                    remedy="Cancel it by hand if it does; the next run looks again.",
                )
            only_call = json.loads(record.details).get("calls") == 1
            done = only_call and has_finished(record.flink_job_id, job_manager)
        elif session is not None:
            close(session, log)  # what the gateway still does for it ends
    changes: ActionChanges = {
        "state": ActionState.DONE if done else ActionState.INTERRUPTED,
        "ended_at": held.runtime.clock.now(),
        "error": None if done else f"Its run ({record.holder}) ended before it did.",
        "after": _figures_now(held, record.table_name),
        "details": with_commit_users(held.keeper, record.table_name, record.details),
    }
    return held.keeper.actions.update(record.id, changes)


def settle_all(keeper: Keeper, holder: str, log: logging.Logger) -> tuple[LakehouseError, ...]:
    """Settle what is on record as under way though nobody works on it; why some could not be."""
    errors: list[LakehouseError] = []
    for table in sorted({record.table_name for record in keeper.actions.running()}):
        try:
            with (
                keeper.hold([table], holder) as held,
                held.runtime.cluster.job_manager() as job_manager,
            ):
                settle(held, table, job_manager, log)
        except LeaseHeldError:
            continue  # somebody does work on it
        except LakehouseError as error:
            errors.append(error)
    return tuple(errors)


@dataclass
class _Work:
    held: HeldTables
    group: ActionGroup
    calls: tuple[Call, ...]
    records: list[ActionRecord]
    job_manager: JobManager
    how: Performing
    may_run_on: bool = False
    """Its Flink job could not be cancelled for certain."""
    answers: list[tuple[str, ...]] | None = None
    """Of all CALLs, once the last has done its work."""

    def done(self) -> tuple[ActionRecord, ...]:
        runtime, tables = self.held.runtime, self.held.tables
        before = counts_of_writers(runtime, tables, self.job_manager)
        try:
            self.answers = self._answers()
            if self.group.actions[0].kind in COMPACTIONS:
                seconds = self.how.writers_seconds
                wait_for_their_commits(runtime, tables, self.job_manager, seconds=seconds)
        finally:
            after = counts_of_writers(runtime, tables, self.job_manager)
            if restarts := restarts_since(before, after):
                self._note({"writer_restarts": restarts})
        return self.over(ActionState.DONE)

    def cancelled(self) -> None:
        """Write down what became of it when its run was cancelled, perhaps too late to matter."""
        if self.answers is not None:
            self.over(ActionState.DONE)
        else:
            self.over(ActionState.CANCELLED, error="The run was cancelled.")

    def _answers(self) -> list[tuple[str, ...]]:
        if self.group.actions[0].kind in EXPIRIES:
            self._expire(self.group.actions[0])
            return []
        return [self._run(number, call) for number, call in enumerate(self.calls)]

    def _run(self, number: int, call: Call) -> tuple[str, ...]:
        if call.starts_job:
            self._run_job(number, call)
            return ()
        with self._session() as session:
            return self._in_gateway(session, call.text)

    def _expire(self, action: Action) -> None:
        """Let go what may, in bounded CALLs; what is left after so many is for the next run."""
        runtime = self.held.runtime
        table = runtime.catalog.open().table(action.table)
        with self._session() as session:
            for _ in range(_CALLS_AT_MOST):
                expiry = next_expiry(table, action, runtime.clock.now())
                if expiry is None:
                    return
                answer = self._in_gateway(session, expiry.text)
                if answer[:1] == ("0",):
                    return  # Paimon keeps more: a consumer came, or the writer was faster
                self.how.on_progress(f"{self._told_as}: {answer[0]} are gone, {expiry.left} to go")

    @contextmanager
    def _session(self) -> Iterator[Session]:
        name = f"maintenance of {', '.join(self.held.tables)}"
        with gateway_session(self.held.runtime, name[:200], self.how.log) as session:
            self._note({"session_handle": session.handle})
            yield session

    def _in_gateway(self, session: Session, text: str) -> tuple[str, ...]:
        told = self._now_and_then("the gateway")
        return call_in_gateway(
            self.held,
            session,
            text,
            timeout_seconds=self.how.timeout_seconds,
            on_poll=lambda seconds: told(seconds, "at work"),
        )

    def _run_job(self, number: int, call: Call) -> None:
        """Run it as often as it may be tried, each time as another Flink job."""
        for attempt in range(1, self.how.attempts + 1):
            name = f"maintenance: {self._what} of {', '.join(self.held.tables)}"
            work = FlinkWork(call.text, _job_id(self.records[0].id, number, attempt), name[:200])
            with self._session() as session:
                self._note({"flink_job_id": work.job_id, "attempts": attempt})
                self.how.on_progress(f"{self._told_as}: attempt {attempt}, Flink job {work.job_id}")
                try:
                    self._watched(session, work, last=number == len(self.calls) - 1)
                    return
                except MaintenanceConflictError as error:
                    if attempt == self.how.attempts:
                        raise MaintenanceConflictError(
                            f"{error.message} So it did {attempt} times.",
                            remedy="Give the table a compaction job of its own "
                            "(compaction: dedicated), or compact it in a quieter hour.",
                        ) from error
                    self.how.log.warning("%s", error)
            self.held.runtime.clock.sleep(self.how.first_pause_seconds * 2 ** (attempt - 1))

    def _watched(self, session: Session, work: FlinkWork, *, last: bool) -> None:
        """Run a Flink job to its end; whatever breaks this off ends the job as well."""
        try:
            run_job(
                self.held,
                session,
                work,
                self.job_manager,
                self.how.log,
                on_poll=self._now_and_then(f"Flink job {work.job_id}"),
            )
        except (MaintenanceError, ClusterUnreachableError, LeaseLostError):
            raise
        except BaseException:
            self.may_run_on = not cancel_job(
                self.held.runtime, work.job_id, self.job_manager, self.how.log, session=session
            )
            if last and has_finished(work.job_id, self.job_manager):
                self.answers = []  # it was faster than whoever cancelled
            raise

    def _now_and_then(self, who: str) -> Callable[[float, str], None]:
        """Tells every few seconds in which state whoever does the work is."""
        told = 0.0

        def poll(seconds: float, state: str) -> None:
            nonlocal told
            if seconds - told >= _TOLD_EVERY_SECONDS:
                told = seconds
                self.how.on_progress(f"{self._told_as}: {who} is {state} after {in_words(seconds)}")

        return poll

    @property
    def _what(self) -> str:
        return self.group.actions[0].kind.value

    @property
    def _told_as(self) -> str:
        """How progress begins: others may be under way at the same time."""
        return f"{self._what} of {some(self.held.tables)}"

    def _note(self, changes: ActionChanges) -> None:
        actions = self.held.keeper.actions
        self.records = [actions.update(record.id, changes) for record in self.records]

    def over(self, state: ActionState, *, error: str | None = None) -> tuple[ActionRecord, ...]:
        """Write down how it ended, with the tables' figures as they are now."""
        done = []
        for action, record in zip(self.group.actions, self.records, strict=True):
            changes: ActionChanges = {
                "state": state,
                "ended_at": self.held.runtime.clock.now(),
                "error": error,
                "after": _after(self.held, action, self.answers or ()),
                "details": with_commit_users(self.held.keeper, action.table, record.details),
            }
            done.append(self.held.keeper.actions.update(record.id, changes))
        self.records = done
        return tuple(done)


def _begin(held: HeldTables, action: Action, before: TableFacts, calls: int) -> ActionRecord:
    details = {
        "calls": calls,
        "partitions": [dict(partition) for partition in action.partitions or ()],
        "names": list(action.names),
        "older_than": action.older_than.isoformat() if action.older_than else None,
        "figures": dict(action.figures),
    }
    if action.kind is ActionKind.EXPIRE_PARTITIONS:
        details |= will_commit(before.snapshot_id, only_removes=True)
    return held.keeper.actions.begin(
        action.table,
        action.kind.value,
        reason=action.reason,
        details=json.dumps(details),
        holder=held.holder,
        before=json.dumps(before.figures),
    )


def _after(held: HeldTables, action: Action, answers: Sequence[tuple[str, ...]]) -> str | None:
    orphans = {}
    if action.kind in (ActionKind.FIND_ORPHANS, ActionKind.REMOVE_ORPHANS) and answers:
        files, size = (*answers[-1], "0", "0")[:2]
        orphans = {"orphan_files": int(files), "orphan_bytes": int(size)}
    return _figures_now(held, action.table, orphans)


def _figures_now(
    held: HeldTables, table: str, besides: Mapping[str, int] = MappingProxyType({})
) -> str | None:
    """The table's figures as they go on record; None where they cannot be read."""
    try:
        facts = held.keeper.facts(table)
    except LakehouseError:
        return None
    return None if facts.problem is not None else json.dumps({**facts.figures, **besides})


def _job_id(record_id: str, number: int, attempt: int) -> str:
    return uuid.uuid5(_ID_NAMESPACE, f"{record_id}/{number}/{attempt}").hex
