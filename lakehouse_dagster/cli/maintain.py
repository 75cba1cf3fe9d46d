"""``lakehouse maintain``: says what tables are due for and why, and does it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from lakehouse_dagster.cli.named_tables import absent, existing
from lakehouse_dagster.cli.output import (
    INTERRUPTED,
    answers_ctrl_c,
    names_or_all,
    print_json,
    reports_errors,
    show_progress,
)
from lakehouse_dagster.cli.project import load_project, project_options
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.lakehouse import LoadedLakehouse
from lakehouse_dagster.maintenance.actions import (
    Action,
    ActionKind,
    Decision,
    describe,
    in_brackets,
)
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.streaming.runtime import this_process

if TYPE_CHECKING:
    from lakehouse_dagster.maintenance.maintain import Maintained
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord

_KINDS = [kind.value for kind in ActionKind]


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE...]")
@project_options
@click.option("--all", "every", is_flag=True, help="All tables that jobs write or read.")
@click.option("--dry-run", is_flag=True, help="Say what is due and why; do nothing.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Only such actions."
)
@click.option(
    "--now", "at_once", is_flag=True, help="Wait for no window (cron), nor after failures."
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

    Ctrl-C cancels what runs, with its Flink job. Exits with 1 also when a table that was named
    waits because somebody else acts on it, or after a failure.
    """
    from lakehouse_dagster.maintenance.definitions import maintained_tables
    from lakehouse_dagster.maintenance.maintain import maintain_in_rounds, plan
    from lakehouse_dagster.maintenance.spec import without_windows

    names_or_all(tables, every, "tables")
    lake = load_project(module, lakehouse_name)
    policy = without_windows(_policy(lake)) if at_once else _policy(lake)
    chosen = None if every else existing(lake, tables)
    wanted = frozenset(map(ActionKind, kinds)) or frozenset(ActionKind)
    if dry_run:
        outcome, _ = plan(lake.keeper, policy, chosen, kinds=wanted, at_once=at_once)
    else:
        show_progress()
        holder = this_process("lakehouse maintain")
        with _cancellable(lake, holder, as_json):
            outcome = maintain_in_rounds(
                lake.keeper, policy, chosen, holder=holder, kinds=wanted, at_once=at_once
            )
    errors = _errors(outcome, wanted, named=chosen is not None and not dry_run)
    missing = absent(lake, maintained_tables(lake.keeper, lake.graph)) if every else ()
    if as_json:
        print_json(as_data(outcome, errors, missing))
    else:
        _say(outcome, dry_run, told_later=[text for _, text in errors])
        for table in missing:
            click.echo(f"{table}: left out: the catalog has no such table (yet).")
    failed = [r for r in outcome.done if r.state.value != "done"]
    for names, text in errors:
        click.echo(f"Error: {', '.join(names)}: {text}", err=True)
    for record in failed:
        click.echo(f"Error: {record.table_name}: {record.kind}: {record.error}", err=True)
    if failed or errors:
        sys.exit(1)


@contextmanager
def _cancellable(lake: LoadedLakehouse, holder: str, as_json: bool) -> Iterator[None]:
    """Let Ctrl-C cancel what runs: say so at once, and at the end what came of it."""
    began = lake.keeper.runtime.clock.now()
    with answers_ctrl_c("Cancelling what runs, with its Flink jobs: this takes seconds."):
        try:
            yield
        except KeyboardInterrupt:
            _say_what_was_cancelled(lake, holder, began, as_json)


def _say_what_was_cancelled(
    lake: LoadedLakehouse, holder: str, began: datetime, as_json: bool
) -> NoReturn:
    from lakehouse_dagster.maintenance.maintain import Maintained

    actions = lake.keeper.actions
    ended = tuple(record for record in actions.ended_since(began) if record.holder == holder)
    if as_json:
        print_json(as_data(Maintained((), ended)))
    else:
        _say(Maintained((), ended), dry_run=False)
    for record in (record for record in actions.running() if record.holder == holder):
        click.echo(
            f"{record.table_name}: {record.kind} may still run: whoever acts on the table next "
            "ends it first.",
            err=True,
        )
    resting = dict.fromkeys(r.table_name for r in ended if r.state.value == "cancelled")
    if resting:
        click.echo(
            f"Cancelled: the sensor leaves {', '.join(resting)} alone for an hour; `lakehouse "
            "maintain` does not wait.",
            err=True,
        )
    sys.exit(INTERRUPTED)


def _errors(
    outcome: Maintained, wanted: frozenset[ActionKind], *, named: bool
) -> list[tuple[tuple[str, ...], str]]:
    """Tables with why they could not be looked at, or, if named, why nothing could be begun."""
    found = [(failure.tables, str(failure.error)) for failure in outcome.failures]
    if not named:
        return found
    found += [(failure.tables, str(failure.error)) for failure in outcome.held]
    for decision in outcome.decisions:
        for blocked in decision.blocked:
            if blocked.kind is None:
                found.append(((decision.table,), f"{blocked.reason} {blocked.remedy}".strip()))
            elif blocked.kind in wanted:
                found.append(((decision.table,), f"{blocked.reason} With --now it does not wait."))
    if not outcome.done and not outcome.failures:
        found += [
            ((p.action.table,), f"{p.action.kind.value}: {p.reason}") for p in outcome.postponed
        ]
    return found


def _policy(lake: LoadedLakehouse) -> MaintenancePolicy:
    if lake.lakehouse.maintenance is None:
        raise ConfigurationError(
            f"The lakehouse {lake.lakehouse.name} has no maintenance policy.",
            remedy="Give Lakehouse(maintenance=MaintenancePolicy()), or maintenance: {} in "
            "defs.yaml.",
        )
    return lake.lakehouse.maintenance


def _say(outcome: Maintained, dry_run: bool, *, told_later: Sequence[str] = ()) -> None:
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
            if not any(text.startswith(why) for text in told_later):
                click.echo(f"{decision.table}: {why}")
        at_a_stand = any(blocked.kind is None for blocked in decision.blocked)
        if dry_run and not decision.actions and not at_a_stand:
            click.echo(f"{decision.table}: nothing is due{in_brackets(decision.figures)}")
    if not dry_run and not outcome.done:
        click.echo("Nothing was done.")


def as_data(
    outcome: Maintained,
    errors: Sequence[tuple[tuple[str, ...], str]] = (),
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """What was decided and done, as the command's JSON has it."""
    later = {(p.action.table, p.action.kind): p.reason for p in outcome.postponed}
    return {
        "tables": [_decision(decision, later) for decision in outcome.decisions],
        "done": [_record(record) for record in outcome.done],
        "errors": [{"tables": list(tables), "error": text} for tables, text in errors],
        "absent": list(missing),
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
        "figures": dict(decision.figures),
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
