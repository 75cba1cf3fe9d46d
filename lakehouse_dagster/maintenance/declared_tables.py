"""Whether what a policy says of tables is about tables that the project has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatchcase

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.listing import tables_meant
from lakehouse_dagster.maintenance.spec import MaintenancePolicy, is_pattern
from lakehouse_dagster.sql.model import Project


def check_tables(
    policy: MaintenancePolicy,
    project: Project,
    tables: Collection[str],
    *,
    may_be_found: Callable[[str], bool],
) -> tuple[str, ...]:
    """What of a policy is about no table, as warnings; what cannot be meant is refused.

    Args:
        policy: of the lakehouse.
        project: its scripts.
        tables: all of the project, as ``database.table``.
        may_be_found: whether a table may yet be found in the catalog.

    Raises:
        ConfigurationError: a table is named that the project does not have, or one whose partitions
            cannot expire as is said.
    """
    keys = {table.name.key: table.partition_keys for table in project.tables if table.columns_known}
    jobs = {table.key for job in project.jobs for table in (*job.sinks, *job.reads)}
    for name in policy.tables:
        if is_pattern(name):
            continue
        if name not in tables and not may_be_found(name):
            raise _unknown(name, tables)
        if name in keys:
            _check_partitions(policy, name, keys[name])
    return tuple(_about_nothing(policy, jobs))


def _unknown(name: str, tables: Collection[str]) -> ConfigurationError:
    return ConfigurationError(
        f"The maintenance policy names the table {name}, which the project does not have.",
        remedy=tables_meant(name, tables),
        field=("maintenance", "tables", name),
    )


def _check_partitions(policy: MaintenancePolicy, name: str, keys: tuple[str, ...]) -> None:
    spec = policy.tables[name].partitions
    if spec is None or spec == policy.default.partitions:
        return  # nothing is said of this very table
    if not keys or (spec.column is not None and spec.column not in keys):
        which = f"has no partition column {spec.column}" if keys else "has no partitions"
        raise ConfigurationError(
            f"Partitions of {name} are to expire, which {which}.",
            remedy=f"Its partition columns are {', '.join(keys)}." if keys else "Leave it out.",
            field=("maintenance", "tables", name, "partitions"),
        )


def _about_nothing(policy: MaintenancePolicy, of_jobs: Collection[str]) -> Iterator[str]:
    for name in policy.tables:
        if is_pattern(name):
            if not any(fnmatchcase(table, name) for table in of_jobs):
                yield f"maintenance.tables: {name!r} fits no table that jobs write or read."
        elif name not in of_jobs:
            yield f"maintenance.tables: no job writes or reads {name}, so nothing is done to it."
