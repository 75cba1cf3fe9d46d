"""The table of script versions, inside a transaction of the caller's."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, select, update

from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.records import ScriptVersion

_versions = schema.script_versions
_incarnations = schema.incarnations


def find(
    connection: Connection, lakehouse: str, name: str, fingerprint: str
) -> ScriptVersion | None:
    """The version of the job's script with this fingerprint."""
    query = select(
        _versions.c.job_name,
        _versions.c.fingerprint,
        _versions.c.definition,
        _versions.c.plan,
        _versions.c.recorded_at,
    ).where(_this(lakehouse, name, fingerprint))
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else ScriptVersion(**row)


def save(connection: Connection, lakehouse: str, version: ScriptVersion) -> ScriptVersion:
    """Remember the version; a definition or plan that is known already is replaced, not erased."""
    known = find(connection, lakehouse, version.job_name, version.fingerprint)
    if known is None:
        connection.execute(
            _versions.insert().values(
                lakehouse=lakehouse,
                job_name=version.job_name,
                fingerprint=version.fingerprint,
                definition=version.definition,
                plan=version.plan,
                recorded_at=version.recorded_at,
            )
        )
        return version
    merged = replace(
        known,
        definition=known.definition if version.definition is None else version.definition,
        plan=known.plan if version.plan is None else version.plan,
    )
    connection.execute(
        update(_versions)
        .where(_this(lakehouse, version.job_name, version.fingerprint))
        .values(definition=merged.definition, plan=merged.plan)
    )
    return merged


def move(connection: Connection, lakehouse: str, old: str, new: str) -> None:
    """Give the versions of ``old`` to ``new``, which has none."""
    remove(connection, lakehouse, new)
    connection.execute(update(_versions).where(_of(lakehouse, old)).values(job_name=new))


def remove(connection: Connection, lakehouse: str, name: str) -> None:
    """Delete all versions of the job's script."""
    connection.execute(delete(_versions).where(_of(lakehouse, name)))


def remove_unused(connection: Connection, lakehouse: str, older_than: datetime) -> None:
    """Delete versions that no incarnation was recorded with.

    Young ones stay: a version is remembered before its incarnation is.
    """
    used = exists().where(
        _incarnations.c.lakehouse == _versions.c.lakehouse,
        _incarnations.c.job_name == _versions.c.job_name,
        _incarnations.c.fingerprint == _versions.c.fingerprint,
    )
    connection.execute(
        delete(_versions).where(
            _versions.c.lakehouse == lakehouse, _versions.c.recorded_at < older_than, ~used
        )
    )


def _of(lakehouse: str, name: str) -> ColumnElement[bool]:
    return and_(_versions.c.lakehouse == lakehouse, _versions.c.job_name == name)


def _this(lakehouse: str, name: str, fingerprint: str) -> ColumnElement[bool]:
    return and_(_of(lakehouse, name), _versions.c.fingerprint == fingerprint)
