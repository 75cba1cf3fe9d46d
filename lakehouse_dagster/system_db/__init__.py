"""Where the project remembers: jobs, their incarnations, and the leases of whoever acts on them.

The names are exported lazily, because SQLAlchemy and alembic take most of a second to import and
loading definitions needs neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_dagster.system_db.clock import Clock, utc_now
    from lakehouse_dagster.system_db.database import SystemDatabase
    from lakehouse_dagster.system_db.engine import Database
    from lakehouse_dagster.system_db.incarnations import IncarnationChanges
    from lakehouse_dagster.system_db.jobs import Jobs
    from lakehouse_dagster.system_db.leases import Leases
    from lakehouse_dagster.system_db.records import (
        DesiredState,
        HistoryPolicy,
        Incarnation,
        IncarnationState,
        JobRecord,
        JobsState,
        Lease,
        Origin,
        ScriptVersion,
        flink_job_id,
    )

_HOMES = {
    "Clock": "clock",
    "Database": "engine",
    "DesiredState": "records",
    "HistoryPolicy": "records",
    "Incarnation": "records",
    "IncarnationChanges": "incarnations",
    "IncarnationState": "records",
    "JobRecord": "records",
    "Jobs": "jobs",
    "JobsState": "records",
    "Lease": "records",
    "Leases": "leases",
    "Origin": "records",
    "ScriptVersion": "records",
    "SystemDatabase": "database",
    "flink_job_id": "records",
    "utc_now": "clock",
}

__all__ = [
    "Clock",
    "Database",
    "DesiredState",
    "HistoryPolicy",
    "Incarnation",
    "IncarnationChanges",
    "IncarnationState",
    "JobRecord",
    "Jobs",
    "JobsState",
    "Lease",
    "Leases",
    "Origin",
    "ScriptVersion",
    "SystemDatabase",
    "flink_job_id",
    "utc_now",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
