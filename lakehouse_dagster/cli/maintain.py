"""``lakehouse maintain``: says what tables are due for and why, and does it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from lakehouse_dagster.cli.output import print_json, reports_errors, show_progress
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.errors import ConfigurationError, TableNotFoundError
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.maintenance.actions import Action, ActionKind, Decision, describe
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.streaming.runtime import this_process

if TYPE_CHECKING:
    from lakehouse_dagster.maintenance.maintain import Maintained
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

_KINDS = {kind.name.lower().replace("_", "-"): kind for kind in ActionKind}


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE...]")
@project_options
@click.option("--all", "every", is_flag=True, help="All tables that jobs write or read.")
@click.option("--dry-run", is_flag=True, help="Say what is due and why; do nothing.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(_KINDS)), help="Only such actions."
)
@click.option(
    "--now", "at_once", is_flag=True, help="Do not wait for the windows (cron) of the policy."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document: see docs/command.md.")
@reports_errors
def maintain(
    tables: tuple[str, ...],
    module: str | None,
    lakehouse_name: str | None,
    every: bool,
    dry_run: bool,
    kinds: tuple[str, ...],
    at_once: bool,
    as_json: bool,
) -> None:
    """Do what tables are due for by the maintenance policy, with the figures behind it.

    Ctrl-C cancels what runs, with its Flink job.
    """
    from lakehouse_dagster.maintenance.maintain import maintain_in_rounds, plan
    from lakehouse_dagster.maintenance.spec import without_windows

    if every == bool(tables):
        raise click.UsageError("Name the tables, or say --all.")
    lake = load_project(module, lakehouse_name)
    policy = without_windows(_policy(lake)) if at_once else _policy(lake)
    chosen = None if every else _existing(lake, tables)
    wanted = frozenset(_KINDS[kind] for kind in kinds) or frozenset(ActionKind)
    if dry_run:
        outcome, _ = plan(lake.keeper, policy, chosen, kinds=wanted)
    else:
        show_progress()
        outcome = maintain_in_rounds(
            lake.keeper,
            policy,
            chosen,
            holder=this_process("lakehouse maintain"),
            kinds=wanted,
        )
    if as_json:
        print_json(as_data(outcome))
    else:
        _say(outcome, dry_run)
    failed = [r for r in outcome.done if r.state.value != "done"]
    for failure in outcome.failures:
        click.echo(f"Error: {', '.join(failure.tables)}: {failure.error}", err=True)
    for record in failed:
        click.echo(f"Error: {record.table_name}: {record.kind}: {record.error}", err=True)
    if failed or outcome.failures:
        sys.exit(1)


def _policy(lake: LoadedLakehouse) -> MaintenancePolicy:
    if lake.lakehouse.maintenance is None:
        raise ConfigurationError(
            f"The lakehouse {lake.lakehouse.name} has no maintenance policy.",
            remedy="Give Lakehouse(maintenance=MaintenancePolicy()), or maintenance: {} in "
            "defs.yaml.",
        )
    return lake.lakehouse.maintenance


def _existing(lake: LoadedLakehouse, tables: Sequence[str]) -> tuple[str, ...]:
    catalog = lake.runtime.catalog.open()
    for table in tables:
        if not catalog.table(table).exists():
            known = ", ".join(lake.graph.tables)
            raise TableNotFoundError(
                f"There is no table {table}.", remedy=f"Tables of the project: {known}."
            )
    return tuple(dict.fromkeys(tables))


def _say(outcome: Maintained, dry_run: bool) -> None:
    from lakehouse_dagster.maintenance.events import line

    for record in outcome.done:
        click.echo(line(record))
    later = {(p.action.table, p.action.kind): p.reason for p in outcome.postponed}
    for decision in outcome.decisions:
        for action in decision.actions:
            reason = later.get((action.table, action.kind))
            if reason is not None:
                click.echo(f"{describe(action)} Not now: {reason}")
            elif dry_run:
                click.echo(describe(action))
        for why in (*decision.held_back, *decision.advice):
            click.echo(f"{decision.table}: {why}")
        if dry_run and not decision.actions:
            click.echo(f"{decision.table}: nothing is due")
    if not dry_run and not outcome.done:
        click.echo("Nothing was done.")


def as_data(outcome: Maintained) -> dict[str, Any]:
    """What was decided and done, as the command's JSON has it."""
    later = {(p.action.table, p.action.kind): p.reason for p in outcome.postponed}
    return {
        "tables": [_decision(decision, later) for decision in outcome.decisions],
        "done": [_record(record) for record in outcome.done],
        "errors": [
            {"tables": list(failure.tables), "error": str(failure.error)}
            for failure in outcome.failures
        ],
    }


def _decision(decision: Decision, later: dict[tuple[str, ActionKind], str]) -> dict[str, Any]:
    return {
        "table": decision.table,
        "due": [
            {**_action(action), "postponed": later.get((action.table, action.kind))}
            for action in decision.actions
        ],
        "held_back": list(decision.held_back),
        "advice": list(decision.advice),
    }


def _action(action: Action) -> dict[str, Any]:
    return {
        "kind": action.kind.value,
        "reason": action.reason,
        "figures": dict(action.figures),
        "partitions": None if action.partitions is None else [dict(p) for p in action.partitions],
        "rewrite_bytes": action.rewrite_bytes,
        "benefit_files": action.benefit,
    }


def _record(record: ActionRecord) -> dict[str, Any]:
    ended = record.ended_at
    return {
        "table": record.table_name,
        "kind": record.kind,
        "state": record.state.value,
        "reason": record.reason,
        "before": json.loads(record.before) if record.before else None,
        "after": json.loads(record.after) if record.after else None,
        "seconds": None if ended is None else round((ended - record.started_at).total_seconds(), 1),
        "flink_job_id": record.flink_job_id,
        "attempts": record.attempts,
        "writer_restarts": record.writer_restarts,
        "error": record.error,
    }
