"""What was done to a job, told in one sentence and as one row of a table."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse_dagster.streaming.adopt import AdoptedHow, AdoptOutcome
from lakehouse_dagster.streaming.apply import Applied, Outcome
from lakehouse_dagster.streaming.forget import ForgetOutcome
from lakehouse_dagster.streaming.start import StartOutcome
from lakehouse_dagster.streaming.stop import StopOutcome, StoppedHow
from lakehouse_dagster.streaming.upgrade import UpgradedHow, UpgradeOutcome


@dataclass(frozen=True)
class OutcomeRow:
    """One job in the table of what a run did; empty where it does not apply."""

    job: str
    outcome: str
    incarnation: str = ""
    flink_job_id: str = ""
    restore_point: str = ""


def in_words(outcome: Outcome) -> str:
    """One sentence without a full stop, beginning with the job's name."""
    if isinstance(outcome, StartOutcome):
        return (
            f"{outcome.job}: {outcome.how.value} as incarnation {outcome.incarnation} "
            f"(Flink job {outcome.flink_job_id}), {outcome.reason}"
        )
    if isinstance(outcome, UpgradeOutcome):
        return _upgraded(outcome)
    if isinstance(outcome, AdoptOutcome):
        return _adopted(outcome)
    if isinstance(outcome, ForgetOutcome):
        return (
            f"{outcome.job}: forgotten with {outcome.incarnations} incarnations; its checkpoints "
            "and savepoints are where they were"
        )
    return _stopped(outcome)


def _stopped(outcome: StopOutcome) -> str:
    if outcome.how is StoppedHow.STOPPED:
        return f"{outcome.job}: stopped with savepoint {outcome.savepoint_path}"
    if outcome.how is StoppedHow.CANCELLED:
        return f"{outcome.job}: cancelled; its checkpoints are kept"
    return f"{outcome.job}: did not run"


def _upgraded(outcome: UpgradeOutcome) -> str:
    if outcome.how is UpgradedHow.UNCHANGED:
        return f"{outcome.job}: runs its declared script already"
    what = "; ".join(outcome.changes) or "no operator with state changed"
    return (
        f"{outcome.job}: {outcome.how.value} as incarnation {outcome.to_incarnation} "
        f"(Flink job {outcome.flink_job_id}), {what}"
    )


def _adopted(outcome: AdoptOutcome) -> str:
    if outcome.how is AdoptedHow.NOTHING:
        text = f"{outcome.job}: nothing of it runs"
    else:
        text = (
            f"{outcome.job}: adopted Flink job {outcome.flink_job_id} ({outcome.how.value}) as "
            f"incarnation {outcome.incarnation}"
        )
    return f"{text}. {outcome.note}".rstrip(" .") if outcome.note else text


def row(applied: Applied) -> OutcomeRow:
    """The outcome, or the failure, of one job as a row."""
    outcome = applied.outcome
    if outcome is None:
        return OutcomeRow(applied.job, f"failed: {applied.error}")
    if isinstance(outcome, StartOutcome):
        return OutcomeRow(
            outcome.job,
            outcome.how.value,
            str(outcome.incarnation),
            outcome.flink_job_id,
            outcome.restored_from or "nothing",
        )
    if isinstance(outcome, UpgradeOutcome):
        return OutcomeRow(
            outcome.job,
            outcome.how.value,
            str(outcome.to_incarnation),
            outcome.flink_job_id,
            outcome.savepoint_path or "",
        )
    if isinstance(outcome, AdoptOutcome):
        return OutcomeRow(
            outcome.job,
            f"adopted: {outcome.how.value}",
            str(outcome.incarnation or ""),
            outcome.flink_job_id or "",
        )
    if isinstance(outcome, ForgetOutcome):
        return OutcomeRow(outcome.job, "forgotten")
    return OutcomeRow(
        outcome.job,
        outcome.how.value,
        str(outcome.incarnation or ""),
        restore_point=outcome.savepoint_path or "",
    )
