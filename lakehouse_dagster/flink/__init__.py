"""Speaks to a Flink cluster: the JobManager's REST API and the SQL Gateway. Knows no Dagster."""

from lakehouse_dagster.flink.capabilities import EngineCapabilities, capabilities_of
from lakehouse_dagster.flink.checkpoint_metadata import (
    CheckpointMetadata,
    OperatorState,
    ReadPosition,
    SourceKind,
    known_checkpoint_metadata,
    read_checkpoint_metadata,
)
from lakehouse_dagster.flink.cluster import BasicAuth, BearerAuth, FlinkCluster
from lakehouse_dagster.flink.execution_plan import ExecutionPlan, PlanNode, explain
from lakehouse_dagster.flink.job_manager import JobManager
from lakehouse_dagster.flink.operation import Operation
from lakehouse_dagster.flink.plan_change import PlanChange, Verdict, compare
from lakehouse_dagster.flink.quoting import (
    create_catalog,
    identifier,
    options_clause,
    qualified,
    string_literal,
    use_catalog,
)
from lakehouse_dagster.flink.recovery import seconds_until_lost
from lakehouse_dagster.flink.redaction import redact
from lakehouse_dagster.flink.restore_points import (
    RestorePoint,
    RestorePointKind,
    complete_checkpoints,
    completed_at,
    delete_checkpoints,
    delete_restore_point,
    is_complete,
    job_ids_with_checkpoints,
    newest_complete_checkpoint,
)
from lakehouse_dagster.flink.sql_gateway import Session, SqlGateway
from lakehouse_dagster.flink.types import (
    Checkpoint,
    CheckpointStatistics,
    ClusterOverview,
    FlinkJobStatus,
    JobConfiguration,
    JobException,
    JobSummary,
    OperationStatus,
    SavepointResult,
    StatementResult,
)

__all__ = [
    "BasicAuth",
    "BearerAuth",
    "Checkpoint",
    "CheckpointMetadata",
    "CheckpointStatistics",
    "ClusterOverview",
    "EngineCapabilities",
    "ExecutionPlan",
    "FlinkCluster",
    "FlinkJobStatus",
    "JobConfiguration",
    "JobException",
    "JobManager",
    "JobSummary",
    "Operation",
    "OperationStatus",
    "OperatorState",
    "PlanChange",
    "PlanNode",
    "ReadPosition",
    "RestorePoint",
    "RestorePointKind",
    "SavepointResult",
    "Session",
    "SourceKind",
    "SqlGateway",
    "StatementResult",
    "Verdict",
    "capabilities_of",
    "compare",
    "complete_checkpoints",
    "completed_at",
    "create_catalog",
    "delete_checkpoints",
    "delete_restore_point",
    "explain",
    "identifier",
    "is_complete",
    "job_ids_with_checkpoints",
    "known_checkpoint_metadata",
    "newest_complete_checkpoint",
    "options_clause",
    "qualified",
    "read_checkpoint_metadata",
    "redact",
    "seconds_until_lost",
    "string_literal",
    "use_catalog",
]
