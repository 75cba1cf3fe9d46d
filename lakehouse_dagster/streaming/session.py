"""The gateway session that one INSERT is submitted in: catalog, tables, then the script so far.

The INSERT is explained there before anything is recorded or stopped: a script that does not compile
does no harm, and what it means for the job's state is known beforehand.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakehouse_dagster.errors import (
    CatalogError,
    FlinkError,
    NotFoundError,
    SqlExecutionError,
    StreamingJobError,
)
from lakehouse_dagster.flink import (
    ExecutionPlan,
    Session,
    SqlGateway,
    create_catalog,
    explain,
    use_catalog,
)
from lakehouse_dagster.flink.redaction import secrets_in
from lakehouse_dagster.paimon import CatalogReader, PaimonCatalog
from lakehouse_dagster.sql import as_one_statement, variables
from lakehouse_dagster.sql.model import Statement, StatementKind
from lakehouse_dagster.streaming import settings as job_settings
from lakehouse_dagster.streaming.compacting import refuse_unfit_tables
from lakehouse_dagster.streaming.runtime import HeldJob

# The second sign is the loser of a race between two sessions that create the same table.
_EXISTS_ALREADY = ("already exist", "Schema in filesystem exists")
_MAY_EXIST = (
    StatementKind.CREATE_TABLE,
    StatementKind.CREATE_DATABASE,
    StatementKind.CREATE_CATALOG,
)


@dataclass(frozen=True)
class Prepared:
    """A session in which a statement can be submitted, the statement, its settings, its plan."""

    session: Session
    statement: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    plan: ExecutionPlan
    operator_name: str


def prepare(
    held: HeldJob,
    gateway: SqlGateway,
    log: logging.Logger,
    *,
    plan: ExecutionPlan | None = None,
    operator_name: str | None = None,
) -> Prepared:
    """Open a session for the job's INSERT and explain it there; nothing is submitted.

    ``plan`` is that of an earlier start of the same script: then it is not explained again.
    ``operator_name`` is what operator ids are made from, if not what is on record for the job.
    Raises ``StreamingJobError`` naming the place in the script when Flink refuses it.
    """
    definition = held.job.definition
    statement = fill_in(definition.statement, held.runtime.environ)
    if operator_name is None:
        operator_name = held.runtime.memory.ensure(held.name).effective_operator_name
    settings = job_settings.job_settings(
        definition,
        environ=held.runtime.environ,
        catalog=held.runtime.catalog.name,
        operator_name=operator_name,
        flink_restart_attempts=held.runtime.policy.flink_restart_attempts,
    )
    session = _open(held, gateway, log)
    try:
        if held.job.compacts:
            # Flink explains no CALL; and there is no state that a plan would have to fit.
            refuse_unfit_tables(held)
            plan = ExecutionPlan(())
        plan = plan or _explained(held, session, statement, settings)
    except BaseException:
        close(session, log)
        raise
    usable = {key: v for key, v in settings.items() if key not in plan.unusable_options}
    return Prepared(session, statement, usable, plan, operator_name)


def still_open(prepared: Prepared) -> bool:
    """Whether the gateway still has the session; one that idles too long is closed."""
    try:
        prepared.session.heartbeat()
    except NotFoundError:
        return False
    return True


def _explained(
    held: HeldJob, session: Session, statement: str, settings: Mapping[str, str]
) -> ExecutionPlan:
    try:
        return explain(
            session,
            statement,
            settings,
            secrets=secrets_in(statement, settings),
            timeout_seconds=held.runtime.policy.seconds("submission_timeout"),
            on_wait=held.runtime.clock.on_wait,
        )
    except SqlExecutionError as error:
        at = held.job.definition.location
        raise StreamingJobError(
            f"Flink refuses {held.name} ({at.path}:{at.line}): {error.root_cause}",
            remedy="Correct the script; nothing was started or stopped.",
        ) from error


def fill_in(statement: Statement, environ: Mapping[str, str]) -> str:
    """The statement with ``${NAME}`` filled in; raises ``MissingVariableError``."""
    return variables.substitute(as_one_statement(statement), environ, path=str(statement.location))


def _open(held: HeldJob, gateway: SqlGateway, log: logging.Logger) -> Session:
    """Open a session in which the job's INSERT can be submitted.

    Tables that other scripts of the project declare and nobody has created yet are created first,
    each script in a session of its own, so that temporary names never meet.
    """
    catalog = held.runtime.catalog.open()
    for script in held.job.declared_elsewhere:
        if not _all_exist(catalog, script.tables):
            close(_run_script(held, gateway, script.statements, log), log)
    return _run_script(held, gateway, held.job.definition.setup, log)


def _all_exist(catalog: CatalogReader, tables: Sequence[str]) -> bool:
    """Whether the tables are known to exist; to declare one again does no harm."""
    try:
        return all(catalog.table(table).exists() for table in tables)
    except CatalogError:
        return False  # Flink may reach what cannot be read from here


def close(session: Session, log: logging.Logger) -> None:
    """Delete a session that submits nothing; the gateway closes one that is left by itself."""
    try:
        session.delete()
    except FlinkError as error:
        log.warning("Gateway session %s could not be closed: %s", session.handle, error)


def _run_script(
    held: HeldJob, gateway: SqlGateway, statements: Sequence[Statement], log: logging.Logger
) -> Session:
    catalog = held.runtime.catalog
    filled = [(s, fill_in(s, held.runtime.environ)) for s in statements]
    insert = fill_in(held.job.definition.statement, held.runtime.environ)
    others = named_catalogs(held.runtime.other_catalogs, [insert, *(text for _, text in filled)])
    held.still_ours()
    session = gateway.open_session(f"{held.runtime.lakehouse}-{held.name}")
    try:
        for known in (catalog, *others):
            _create_catalog(held, session, known)
        session.execute(use_catalog(catalog.name), on_wait=held.runtime.clock.on_wait)
        for statement, text in filled:
            held.still_ours()
            _execute(held, session, statement, text, log)
    except BaseException:
        close(session, log)
        raise
    return session


def named_catalogs(
    catalogs: Sequence[PaimonCatalog], texts: Sequence[str]
) -> tuple[PaimonCatalog, ...]:
    """The catalogs whose names stand in one of the texts.

    To create a catalog is to connect to it: one that is down shall not keep jobs from starting
    that do not use it.
    """

    def is_named(name: str) -> bool:
        word = re.compile(rf"(?<![\w$]){re.escape(name.replace('`', '``'))}(?![\w$])")
        return any(word.search(text) for text in texts)

    return tuple(catalog for catalog in catalogs if is_named(catalog.name))


def _create_catalog(held: HeldJob, session: Session, catalog: PaimonCatalog) -> None:
    try:
        session.execute(
            create_catalog(catalog.name, catalog.flink_options()),
            timeout_seconds=held.runtime.policy.seconds("submission_timeout"),
            on_wait=held.runtime.clock.on_wait,
        )
    except SqlExecutionError as error:
        raise StreamingJobError(
            f"Flink cannot open the catalog {catalog.name}, which {held.name} needs: "
            f"{error.root_cause}",
            remedy="Look at the catalog's address and options, and whether the gateway has the "
            "jars that it needs; nothing was started.",
        ) from error


def _execute(
    held: HeldJob, session: Session, statement: Statement, text: str, log: logging.Logger
) -> None:
    try:
        session.execute(
            text,
            timeout_seconds=held.runtime.policy.seconds("submission_timeout"),
            on_wait=held.runtime.clock.on_wait,
        )
    except SqlExecutionError as error:
        exists = any(sign in error.root_cause for sign in _EXISTS_ALREADY)
        if exists and statement.kind in _MAY_EXIST:
            log.debug("%s: %s", statement.location, error.root_cause)
            return
        at = statement.location
        raise StreamingJobError(
            f"{at.path}:{at.line}:{at.column}: Flink refused a statement that {held.name} needs: "
            f"{error.root_cause}",
            remedy="Correct the statement; nothing was started.",
        ) from error
