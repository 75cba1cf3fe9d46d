"""The settings that a job is submitted with; the user's SQL stays as it was written.

Everything is passed as session options of the one statement (``executionConfig`` of the SQL
Gateway), so a script that runs in Flink's own SQL client runs here unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lakehouse_dagster.flink.execution_plan import SINK_SUFFIX, SOURCE_SUFFIX
from lakehouse_dagster.sql import variables
from lakehouse_dagster.sql.model import JobDefinition, TableName
from lakehouse_dagster.streaming.marker import GLOBAL_JOB_PARAMETERS, Marker, marker_parameters

PIPELINE_NAME = "pipeline.name"
JOB_ID = "$internal.pipeline.job-id"
RESTORE_PATH = "execution.state-recovery.path"
IGNORE_UNCLAIMED_STATE = "execution.state-recovery.ignore-unclaimed-state"
CHECKPOINT_DIRECTORIES = ("execution.checkpointing.dir", "state.checkpoints.dir")
SAVEPOINT_DIRECTORIES = ("execution.checkpointing.savepoint-dir", "state.savepoints.dir")


def job_settings(
    definition: JobDefinition,
    *,
    environ: Mapping[str, str],
    catalog: str,
    operator_name: str,
    flink_restart_attempts: int,
) -> dict[str, str]:
    """What every incarnation of a job has: our defaults, then the script's, then what must hold.

    Operator ids are fixed from the first run on: without the two ``operator-uid.suffix`` options
    even an added WHERE cannot be restored (facts: operating.md, "Operator ids"). A job that was
    started by hand has other ids: ``operator_name`` is then empty, and they are left to Flink.
    """
    return {
        **_defaults(definition, flink_restart_attempts),
        **script_settings(definition, environ),
        **_table_options(definition, catalog, operator_name),
        **_RESTORABLE,
    }


def incarnation_settings(
    settings: Mapping[str, str],
    marker: Marker,
    *,
    flink_job_id: str,
    restore_from: str | None,
    ignore_unclaimed_state: bool = False,
) -> dict[str, str]:
    """The job's settings and what one incarnation of it adds: who it is, what it starts from."""
    own = settings.get(GLOBAL_JOB_PARAMETERS)
    identity = {
        PIPELINE_NAME: marker.job,
        JOB_ID: flink_job_id,
        GLOBAL_JOB_PARAMETERS: marker_parameters(marker, own),
    }
    if restore_from is not None:
        identity[RESTORE_PATH] = restore_from
        # NO_CLAIM: the restore point stays ours, so a failed start can be repeated from it.
        identity["execution.state-recovery.claim-mode"] = "NO_CLAIM"
        if ignore_unclaimed_state:
            identity[IGNORE_UNCLAIMED_STATE] = "true"
    return {**settings, **identity}


def script_settings(definition: JobDefinition, environ: Mapping[str, str]) -> dict[str, str]:
    """The script's own SET options with ``${NAME}`` filled in."""
    at = str(definition.location)
    return {
        key: variables.substitute(value, environ, path=at)
        for key, value in definition.settings.items()
    }


_RESTORABLE = {
    "execution.runtime-mode": "streaming",
    # The INSERT must return once it is submitted; the job itself never ends.
    "table.dml-sync": "false",
    # Not left to the script: a folder without a complete checkpoint must prove that none ever
    # completed (restore.py), so Flink must not delete them when a job ends.
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
}


def _defaults(definition: JobDefinition, flink_restart_attempts: int) -> dict[str, str]:
    """What a careful operator would set; a script that says otherwise has its way."""
    defaults = {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "1 s",
        "restart-strategy.exponential-delay.max-backoff": "1 min",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": str(
            flink_restart_attempts
        ),
    }
    if definition.sinks and definition.dependencies_known:
        # Paimon's sink merges by key itself and refuses Flink's materializer: with the default,
        # a join or aggregation with another key than the sink's fails at its first record.
        defaults["table.exec.sink.upsert-materialize"] = "NONE"
    return defaults


def _table_options(definition: JobDefinition, catalog: str, operator_name: str) -> dict[str, str]:
    suffix = operator_suffix(operator_name)
    options: dict[str, str] = {}
    for table in definition.sinks:
        user = suffix or operator_suffix(definition.name)
        options[_table_option(catalog, table, "commit.user-prefix")] = user
    if not suffix:
        return options
    for table in definition.sinks:
        options[_table_option(catalog, table, SINK_SUFFIX)] = uid_suffix(table, operator_name)
    for table in definition.reads:
        options[_table_option(catalog, table, SOURCE_SUFFIX)] = uid_suffix(table, operator_name)
    return options


def uid_suffix(table: TableName, operator_name: str) -> str:
    """What we make the uids of a table's operators end with.

    With the database in it: Paimon's own part of an id has the table's bare name, and two tables
    of one name in two databases would meet.
    """
    return f"{table.database}.{operator_suffix(operator_name)}"


def _table_option(catalog: str, table: TableName, option: str) -> str:
    return f"paimon.{table.catalog or catalog}.{table.database}.{table.table}.{option}"


def commit_user_start(operator_name: str) -> str:
    """What the commit users of a job begin with: Paimon puts its own part after our prefix.

    Empty for a job whose operator ids are not ours: its commits are not marked.
    """
    return f"{operator_suffix(operator_name)}_" if operator_name else ""


def operator_suffix(job_name: str) -> str:
    """The job's name as it may stand in operator ids and commit users."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", job_name)


def checkpoint_directory(
    cluster_configuration: Mapping[str, str],
    definition: JobDefinition,
    environ: Mapping[str, str],
) -> str | None:
    """Where the job's checkpoints are retained: its own setting, else the cluster's."""
    own = _first(script_settings(definition, environ), CHECKPOINT_DIRECTORIES)
    return own or _first(cluster_configuration, CHECKPOINT_DIRECTORIES)


def savepoint_directory(definition: JobDefinition, environ: Mapping[str, str]) -> str | None:
    """Where the script wants savepoints; None leaves it to the cluster.

    The JobManager looks only at its own configuration, so a script's wish is passed on by us.
    """
    return _first(script_settings(definition, environ), SAVEPOINT_DIRECTORIES)


def _first(settings: Mapping[str, str], options: Sequence[str]) -> str | None:
    return next((settings[option] for option in options if settings.get(option)), None)


def checkpoint_interval_is_set(
    cluster_configuration: Mapping[str, str], definition: JobDefinition
) -> bool:
    """Whether checkpoints are taken at all; without them Paimon never commits."""
    option = "execution.checkpointing.interval"
    return bool(definition.settings.get(option) or cluster_configuration.get(option))
