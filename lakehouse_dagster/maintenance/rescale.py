"""Give a table another number of buckets while nobody writes it: stop, rewrite, compare, resume.

Flink 1.20's Paimon rewrites beside a live writer and doubles rows, newer ones refuse; so ours are
stopped first, on every engine, and nothing is begun beside writers of others.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakehouse_dagster.errors import (
    LakehouseError,
    MaintenanceError,
    MaintenanceRefusedError,
)
from lakehouse_dagster.flink import JobManager
from lakehouse_dagster.flink.procedures import call
from lakehouse_dagster.maintenance.actions import Partition
from lakehouse_dagster.maintenance.altering import set_option
from lakehouse_dagster.maintenance.calls import partition_spec
from lakehouse_dagster.maintenance.case import partition_in_words
from lakehouse_dagster.maintenance.damage import Damage
from lakehouse_dagster.maintenance.flink_calls import FlinkWork, gateway_session, run_job
from lakehouse_dagster.maintenance.held import HeldTables, Keeper
from lakehouse_dagster.maintenance.own_commits import will_commit, with_commit_users
from lakehouse_dagster.maintenance.paused import Paused, paused, without_interruption
from lakehouse_dagster.maintenance.perform import settle
from lakehouse_dagster.maintenance.row_counts import row_counts
from lakehouse_dagster.maintenance.writers import jobs_of_table
from lakehouse_dagster.paimon.file_facts import (
    DYNAMIC_BUCKETS,
    POSTPONED_BUCKETS,
    TableFacts,
    TableKind,
)
from lakehouse_dagster.streaming.runtime import LOGGER
from lakehouse_dagster.system_db import DesiredState
from lakehouse_dagster.system_db.maintenance_actions import ActionChanges, ActionState

RESCALE = "rescale"
_KINDS_WITHOUT_BUCKETS = {
    DYNAMIC_BUCKETS: "it has no fixed number of buckets ('bucket' = '-1'): Paimon adds them itself",
    POSTPONED_BUCKETS: "its compaction puts rows into as many buckets as it needs ('bucket' = "
    "'-2')",
}


@dataclass(frozen=True)
class Rescaled:
    """A table with another number of buckets, its jobs at work again.

    Args:
        partitions: how many were rewritten; 1 for a table without partitions.
        rows: of these, the same before and after.
        writers: the jobs that were stopped and resumed.
    """

    table: str
    from_buckets: int
    to_buckets: int
    partitions: int
    rows: int
    writers: tuple[str, ...]
    flink_job_ids: tuple[str, ...]
    notes: tuple[str, ...] = ()


def rescale(
    keeper: Keeper,
    table: str,
    buckets: int,
    *,
    partitions: Sequence[Mapping[str, str | None]] | None = None,
    holder: str,
    log: logging.Logger = LOGGER,
) -> Rescaled:
    """Rewrite a table into so many buckets.

    Its jobs stand still meanwhile. If anything fails before the files are rewritten, or if they can
    be written back, all is as before; what happened else is in the error, and the jobs stay
    stopped. Batch readers of tables with deletion vectors, and of first-row tables, see no rows
    between the rewriting and the compaction after it on Paimon 1.3.

    Args:
        keeper: of the lakehouse.
        table: ``database.table``.
        buckets: how many.
        partitions: those to rewrite; None for all, in one commit. The others keep their number
            and cannot be written any more.
        holder: who it is, for leases and records.

    Raises:
        MaintenanceRefusedError: the table has no fixed buckets, or somebody else writes it.
        LeaseHeldError: somebody else acts on the table or one of its jobs.
        LakehouseError: whatever went wrong.
    """
    runtime = keeper.runtime
    with keeper.hold([table], holder) as held:
        facts = Damage(keeper).seen_in(keeper.facts(table))
        refuse_unfit(facts, buckets)
        chosen = chosen_partitions(facts, partitions)
        with runtime.cluster.job_manager() as job_manager:
            settle(held, table, job_manager, log)
            jobs = jobs_of_table(runtime, table)
            # Not wanted RUNNING meanwhile: should we die, nobody may write beside the rewriting.
            with paused(held, jobs, meanwhile=DesiredState.SUSPENDED, log=log) as pause:
                done = _Rescaling(held, facts, buckets, chosen, pause, job_manager, log).done()
    return done


def refuse_unfit(facts: TableFacts, buckets: int) -> None:
    """Raise ``MaintenanceRefusedError`` unless the table can have so many buckets."""
    table = facts.table
    if facts.problem is not None:
        raise MaintenanceRefusedError(f"{table} is left as it is: {facts.problem}")
    if buckets < 1:
        raise MaintenanceRefusedError(f"{buckets} is no number of buckets.")
    why = _KINDS_WITHOUT_BUCKETS.get(facts.total_buckets)
    if why is not None:
        raise MaintenanceRefusedError(f"{table} is not rescaled: {why}.")
    if facts.total_buckets == buckets:
        raise MaintenanceRefusedError(f"{table} has {buckets} buckets already.")


def chosen_partitions(
    facts: TableFacts, partitions: Sequence[Mapping[str, str | None]] | None
) -> tuple[Partition, ...] | None:
    """Those that are named, each once; None for all.

    Raises ``MaintenanceRefusedError`` for one that is not there, or cannot be named to Paimon.
    """
    if partitions is None:
        return None
    if not facts.partition_keys:
        raise MaintenanceRefusedError(
            f"{facts.table} has no partitions.", remedy="Rescale it as a whole."
        )
    there = {bucket.partition for bucket in facts.buckets if bucket.partition}
    chosen = []
    for given in partitions:
        partition = tuple((column, given.get(column)) for column in facts.partition_keys)
        told = partition_in_words(tuple(given.items()))
        if partition not in there or set(given) != set(facts.partition_keys):
            raise MaintenanceRefusedError(
                f"{facts.table} has no partition {told}.",
                remedy=f"Give a value for each of: {', '.join(facts.partition_keys)}.",
            )
        if partition_spec(partition) is None:
            raise MaintenanceRefusedError(
                f"The partition {told} of {facts.table} cannot be named to Paimon's "
                "procedure: a value holds one of , ; = ' \\.",
                remedy="Rescale the whole table.",
            )
        chosen.append(partition)
    return tuple(dict.fromkeys(chosen))


@dataclass
class _Rescaling:
    held: HeldTables
    facts: TableFacts
    buckets: int
    chosen: tuple[Partition, ...] | None
    pause: Paused
    job_manager: JobManager
    log: logging.Logger
    rewritten: list[Partition | None] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    record_id: str = ""
    details: str = "{}"
    altered: bool = False
    differs: bool = False
    """Its rows are not what they were; the error says what to do."""

    def done(self) -> Rescaled:
        self._begin()
        try:
            self._merge(rewritten=False)
            before = row_counts(self.held, self.facts, self.log)
            self.pause.refuse_new_commits()
            try:
                for partition in self.chosen if self.chosen is not None else (None,):
                    self._rewrite(partition, self.buckets)
                set_option(self.held, "bucket", str(self.buckets), self.log)
                self.altered = True
                self._merge(rewritten=True)
                self._compare(before)
            except BaseException as error:
                self._go_back(error)
                raise
        except LakehouseError as error:
            error.message = f"{error.message} {self._stands()}".strip()
            self._over(ActionState.FAILED, str(error))
            raise
        except Exception as error:
            self._over(ActionState.FAILED, f"{error} {self._stands()}")
            raise
        except BaseException:
            self.log.warning("%s", self._stands())
            self._over(ActionState.CANCELLED, f"It was cancelled. {self._stands()}")
            raise
        self._over(ActionState.DONE, None)
        concerned = [n for key, n in before.items() if self._is_concerned(key)]
        return Rescaled(
            self.facts.table,
            self.facts.total_buckets,
            self.buckets,
            len(concerned),
            sum(rows for rows, _ in concerned),
            self.pause.resumed,
            tuple(self.job_ids),
            self._notes(len(before) - len(concerned)),
        )

    def _notes(self, others: int) -> tuple[str, ...]:
        if not others:
            return ()
        return (
            f"{others} partitions keep {self.facts.total_buckets} buckets: they can be read, but "
            "Paimon refuses to write them.",
        )

    def _stands(self) -> str:
        """What has become of the table when the rescaling failed or was cancelled."""
        if self.pause.keep_stopped is not None:
            return "" if self.differs else self.pause.keep_stopped
        back = "It was written back: " if self.rewritten else ""
        return (
            f"{back}{self.facts.table} has as many buckets as before: {self.facts.total_buckets}."
        )

    # steps

    def _merge(self, *, rewritten: bool) -> None:
        """Merge what batch readers do not see yet, or streaming readers have not been told of.

        It would be lost with the rewriting: batch readers' rows are what is rewritten, and that has
        no changelog. Paimon 1.3 leaves all unmerged that it has ``rewritten`` (run on 1.3.1): of
        that, streaming readers know already.
        """
        facts = self.facts
        unseen = facts.deletion_vectors or facts.kind is TableKind.FIRST_ROW
        if not (unseen or facts.changelog_by_compaction):
            return
        # Of files above level 0 nobody knows whether a changelog by full compaction has them.
        untold = not rewritten and facts.changelog_producer == "full-compaction"
        if untold or self._unmerged():
            specs = None
            if self.chosen is not None:
                specs = ";".join(partition_spec(partition) or "" for partition in self.chosen)
            options = "changelog-producer=none" if rewritten else None
            arguments = {"partitions": specs, "options": options, "compact_strategy": "full"}
            self._run(call("compact", table=facts.table, **arguments), "compact")
        if self._unmerged():
            raise MaintenanceRefusedError(
                f"{facts.table} has rows that not all readers see, also after a compaction.",
                remedy="Compact it, and try again.",
            )

    def _unmerged(self) -> int:
        facts = self.held.keeper.facts(self.facts.table)
        return sum(b.level0_files for b in facts.buckets if self._is_concerned(b.partition))

    def _rewrite(self, partition: Partition | None, buckets: int) -> None:
        spec = None if partition is None else partition_spec(partition)
        text = call("rescale", table=self.facts.table, bucket_num=buckets, partition=spec)
        before = len(self.job_ids)
        try:
            self._run(text, f"rescale to {buckets} buckets")
        except BaseException:
            if len(self.job_ids) > before and self._took_effect(self.job_ids[-1]):
                self.rewritten.append(partition)
            raise
        self.rewritten.append(partition)

    def _took_effect(self, job_id: str) -> bool:
        """Whether the job has committed, though we were not told; if nobody knows, none resumes.

        A job of ours that goes on rewriting must not meet the writers. What the cluster says of it
        is not enough: one that was cancelled, or forgotten, may have committed right before.
        """
        try:
            job = self.job_manager.job(job_id)
            if job is not None and not job.status.is_terminal:
                self._keep_stopped(f"Flink job {job_id} still rewrites it")
            return len(self.pause.commits_since()) > len(self.rewritten)
        except LakehouseError:
            self._keep_stopped(f"what became of Flink job {job_id} is not known")
            return False

    def _run(self, text: str, what: str) -> None:
        """Run a CALL as a Flink job whose id is on record before it is sent."""
        name = f"maintenance: {what} of {self.facts.table}"
        with gateway_session(self.held.runtime, name, self.log) as session:
            job_id = uuid.uuid5(uuid.UUID(self.record_id), str(len(self.job_ids))).hex
            self._note({"flink_job_id": job_id, "session_handle": session.handle})
            self.job_ids.append(job_id)
            self.log.info("%s: Flink job %s.", name, job_id)
            run_job(self.held, session, FlinkWork(text, job_id, name), self.job_manager, self.log)

    def _compare(self, before: Mapping[Partition, tuple[int, int]]) -> None:
        """Raise, and leave the jobs stopped, unless every row is there once."""
        problems = []
        after = row_counts(self.held, self.facts, self.log)
        if after != before:
            differ = [key for key in {*before, *after} if before.get(key) != after.get(key)]
            problems += [
                f"{partition_in_words(key) or 'it'} had {before.get(key)} rows and keys and has "
                f"{after.get(key)}"
                for key in differ[:5]
            ]
        facts = self.held.keeper.facts(self.facts.table)
        problems += [
            f"{partition_in_words(b.partition) or 'it'} has files in bucket {b.bucket}"
            for b in facts.buckets
            if self._is_concerned(b.partition) and not 0 <= b.bucket < self.buckets
        ]
        commits = self.pause.commits_since()
        if len(commits) > len(self.rewritten):
            problems.append(f"somebody else committed meanwhile ({', '.join(commits)})")
        if problems:
            snapshot = self.pause.snapshot_id
            self._keep_stopped(f"the rescaled table is not what it was: {'; '.join(problems)}")
            self.rewritten.clear()  # what is wrong is not rewritten once more
            self.differs = True
            raise MaintenanceError(
                f"After rescaling {self.facts.table}: {'; '.join(problems)}.",
                remedy=f"Its jobs stay stopped. Snapshot {snapshot} is the table as it was: "
                "compare, write it back, and start the jobs.",
            )

    def _go_back(self, error: BaseException) -> None:
        """Rewrite what was rewritten into the old number of buckets, as the table's option says."""
        if not self.rewritten or self.pause.keep_stopped is not None:
            return
        patient = replace(self.held, keeper=Keeper(without_interruption(self.held.runtime)))
        back = replace(self, held=patient)
        self.log.warning("Going back to %d buckets: %s", self.facts.total_buckets, error)
        try:
            if self.altered:
                set_option(patient, "bucket", str(self.facts.total_buckets), self.log)
            for partition in tuple(self.rewritten):
                back._rewrite(partition, self.facts.total_buckets)
            back._merge(rewritten=True)
        except LakehouseError as second:
            self._keep_stopped(
                f"its files are partly in {self.buckets} and partly in {self.facts.total_buckets} "
                f"buckets, and could not be written back: {second.message}"
            )

    def _keep_stopped(self, why: str) -> None:
        self.pause.keep_stopped = (
            f"Stopped to rescale {self.facts.table}, and not resumed, as {why}. Look at the table, "
            f"run `lakehouse tables rescale {self.facts.table} --buckets {self.buckets}` again, "
            "then start this job."
        )

    def _is_concerned(self, partition: Partition) -> bool:
        return self.chosen is None or partition in self.chosen

    # records

    def _begin(self) -> None:
        commits = will_commit(self.facts.snapshot_id, only_removes=False)
        self.details = json.dumps({"buckets": self.buckets, **commits})
        record = self.held.keeper.actions.begin(
            self.facts.table,
            RESCALE,
            reason=f"Asked for {self.buckets} buckets instead of {self.facts.total_buckets}.",
            details=self.details,
            holder=self.held.holder,
            before=json.dumps(self.facts.figures),
        )
        self.record_id = record.id

    def _note(self, changes: ActionChanges) -> None:
        self.held.keeper.actions.update(self.record_id, changes)

    def _over(self, state: ActionState, error: str | None) -> None:
        changes: ActionChanges = {
            "state": state,
            "ended_at": self.held.runtime.clock.now(),
            "error": error,
            "details": with_commit_users(self.held.keeper, self.facts.table, self.details),
        }
        if state is ActionState.DONE:
            facts = self.held.keeper.facts(self.facts.table)
            changes["after"] = json.dumps(facts.figures)
        self._note(changes)
