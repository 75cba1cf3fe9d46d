"""What a job was submitted with, remembered: an edited script goes live only when a person says so.

The supervisor brings back what ran, not what stands in the file by then.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace

from lakehouse_dagster.flink import ExecutionPlan
from lakehouse_dagster.flink.redaction import secrets_in
from lakehouse_dagster.sql import transport
from lakehouse_dagster.sql.model import Statement
from lakehouse_dagster.streaming.runtime import HeldJob, Runtime
from lakehouse_dagster.streaming.spec import StreamingJob
from lakehouse_dagster.system_db import Incarnation, ScriptVersion

_VARIABLE = re.compile(r"\$\{\w+\}")
_LOG = logging.getLogger(__name__)


def remember(held: HeldJob, plan: ExecutionPlan) -> None:
    """Save the job as it is declared now, and its plan, before an incarnation is recorded.

    A script with a secret in it is not stored: it stays in its file alone.
    """
    definition = None if holds_secret(held.job) else json.dumps(transport.to_data(held.job))
    held.runtime.memory.save_version(
        held.name, held.job.fingerprint, definition=definition, plan=plan.to_json()
    )


def holds_secret(job: StreamingJob) -> bool:
    """Whether the value of a password or key stands in the script itself, not as ``${NAME}``."""
    statements: tuple[Statement, ...] = (job.definition.statement, *job.definition.setup)
    for script in job.declared_elsewhere:
        statements += script.statements
    found = {secret for statement in statements for secret in secrets_in(statement.text)}
    found |= secrets_in("", job.definition.settings)
    return any(not _VARIABLE.fullmatch(secret) for secret in found)


def deployed(runtime: Runtime, name: str) -> StreamingJob | None:
    """The job as its newest incarnation was submitted; None when that is not known."""
    latest = runtime.memory.latest(name)
    return None if latest is None else job_of(runtime, latest)


def job_of(runtime: Runtime, incarnation: Incarnation) -> StreamingJob | None:
    """The job as an incarnation was submitted; None when that is not known."""
    declared = runtime.jobs.get(incarnation.job_name)
    if declared is not None and declared.fingerprint == incarnation.fingerprint:
        return declared
    version = _version(runtime, incarnation)
    if version is None or version.definition is None:
        return None
    try:
        job = transport.from_data(StreamingJob, json.loads(version.definition))
        # A renamed job keeps its versions, which were written under its old name.
        return replace(job, definition=replace(job.definition, name=incarnation.job_name))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _LOG.warning(
            "The script that incarnation %d of %s ran is not readable any more (%s).",
            incarnation.number,
            incarnation.job_name,
            type(error).__name__,
        )
        return None


def plan_of(runtime: Runtime, incarnation: Incarnation) -> ExecutionPlan | None:
    """The plan that an incarnation was submitted with; None when that is not known."""
    version = _version(runtime, incarnation)
    if version is None or version.plan is None:
        return None
    try:
        return ExecutionPlan.from_json(version.plan)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _LOG.warning("The plan of %s is not readable (%s).", incarnation.job_name, error)
        return None


def _version(runtime: Runtime, incarnation: Incarnation) -> ScriptVersion | None:
    return runtime.memory.version(incarnation.job_name, incarnation.fingerprint)
