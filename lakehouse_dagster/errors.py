"""Every exception that a user of lakehouse-dagster can meet.

A message says what happened, to which job, table or file, and ``remedy`` says what to do about it.
Text that comes from a server is kept, but only its root cause: Flink's exception text can hold row
data, so whoever stores it redacts it first (``lakehouse_dagster.flink.redaction``).
"""

from __future__ import annotations


class LakehouseError(Exception):
    """Base class: what happened, and, where there is one, what to do about it."""

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        if not self.remedy:
            return self.message
        # What Flink says ends as it likes.
        stop = "" if self.message.endswith((".", "!", "?", ":", "…")) else "."
        return f"{self.message}{stop} {self.remedy}"


class ConfigurationError(LakehouseError):
    """Something the user declared is wrong or missing; nothing was done.

    ``field`` leads to the setting that is meant, from the object that refused it: ``("uri",)``.
    """

    def __init__(
        self, message: str, *, remedy: str | None = None, field: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.field = field


class MissingVariableError(ConfigurationError):
    """A script or a setting names an environment variable that is not set."""


class UnsupportedByEngineError(ConfigurationError):
    """The engine (this Flink with this Paimon) cannot do what was declared."""


class ScriptError(ConfigurationError):
    """A Flink SQL script cannot be read; carries the file, line and column."""

    def __init__(
        self, message: str, *, path: str, line: int, column: int, remedy: str | None = None
    ) -> None:
        super().__init__(f"{path}:{line}:{column}: {message}", remedy=remedy)
        self.path = path
        self.line = line
        self.column = column


class UnsafeIdentifierError(ConfigurationError):
    """A name or value cannot be written into SQL safely, so it is refused."""


class FlinkError(LakehouseError):
    """Base of what goes wrong between us and a Flink cluster."""


class ClusterUnreachableError(FlinkError):
    """The JobManager or the SQL Gateway gave no answer; nothing is known about its jobs."""


class FlinkRequestError(FlinkError):
    """The cluster answered with an error; ``root_cause`` is the last cause it named."""

    def __init__(
        self, message: str, *, status_code: int, root_cause: str, remedy: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.status_code = status_code
        self.root_cause = root_cause


class NotFoundError(FlinkRequestError):
    """The cluster answered that the job, session, operation or trigger does not exist (404)."""


class SqlExecutionError(FlinkError):
    """The SQL Gateway could not run a statement; ``root_cause`` is the last cause it named."""

    def __init__(self, message: str, *, root_cause: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.root_cause = root_cause


class AnswerLostError(FlinkError):
    """A POST was sent but its answer never came: it may or may not have taken effect."""


class OperationTimeoutError(FlinkError):
    """Something on the cluster did not end within its bound."""


class CheckpointMetadataError(FlinkError):
    """What a restore point holds cannot be known: its metadata is missing, damaged or foreign."""


class CatalogError(LakehouseError):
    """The Paimon catalog cannot be read or was declared wrongly."""


class CatalogUnreachableError(CatalogError):
    """The catalog's server or its file system gave no answer; nothing is known about its tables."""


class TableNotFoundError(CatalogError):
    """The catalog has no such table."""


class SnapshotNotFoundError(CatalogError):
    """The table has no such snapshot any more (it has expired), or does not have it yet."""


class SystemDatabaseError(LakehouseError):
    """The system database cannot be reached, is of another version, or refused a record."""


class IncarnationConflictError(SystemDatabaseError):
    """This incarnation of a job, or a later one, is recorded already: ours must not run."""


class LeaseHeldError(SystemDatabaseError):
    """Another run or command acts on this job or table now."""


class LeaseLostError(SystemDatabaseError):
    """Our lease expired and someone else took over: whatever we meant to do must not be done."""


class StreamingJobError(LakehouseError):
    """A streaming job could not be brought to the state it should be in."""


class JobNotFoundError(StreamingJobError):
    """No streaming job of that name is declared."""


class ForeignJobError(StreamingJobError):
    """A job of the same name, started by somebody else, runs on the cluster."""


class NoRestorePointError(StreamingJobError):
    """The job ran before, but nothing is left to restore its state from."""


class StateIncompatibleError(StreamingJobError):
    """The job's kept state does not fit its changed script."""


class StateWouldBeLostError(StreamingJobError):
    """A changed script cannot take over all of its job's state; nothing was stopped or started."""


class StateWouldMoveError(StateWouldBeLostError):
    """A changed script would hand the state of one source or operator to another."""


class UpgradeFailedError(StreamingJobError):
    """A new version did not come to work; the message says whether the old one runs again."""


class StackError(LakehouseError):
    """The local stack cannot be started, fetched or stopped."""


class DownloadError(StackError):
    """A file of the local stack cannot be fetched, or is not the file it should be."""


class JavaNotFoundError(StackError):
    """No Java of a version that Flink can use."""


class MaintenanceError(LakehouseError):
    """A piece of maintenance failed; the next run goes on where it was."""


class MaintenanceConflictError(MaintenanceError):
    """A compaction lost against a commit of the table's writer: nothing of it was taken."""


class MaintenanceRefusedError(MaintenanceError):
    """Looked at once more, the action must not be done; nothing was changed."""
