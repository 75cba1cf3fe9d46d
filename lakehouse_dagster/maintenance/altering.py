"""Changes a table's options through the gateway; whoever runs already does not notice."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakehouse_dagster.errors import LakehouseError
from lakehouse_dagster.flink import qualified, string_literal
from lakehouse_dagster.maintenance.flink_calls import gateway_session
from lakehouse_dagster.maintenance.held import HeldTables, Keeper
from lakehouse_dagster.maintenance.paused import without_interruption


def set_option(held: HeldTables, option: str, value: str | None, log: logging.Logger) -> None:
    """Set an option of the one table that is held; None takes it back to its default.

    A lost answer is no error if the table has the option afterwards.
    """
    (table,) = held.tables
    statement = _statement(table, option, value)
    try:
        with gateway_session(held.runtime, f"maintenance of {table}", log) as session:
            held.still_ours()
            session.execute(statement, on_wait=held.runtime.clock.on_wait)
    except LakehouseError:
        if held.keeper.facts(table).options.get(option) != value:
            raise
    log.info("%s", statement)


@contextmanager
def altered(held: HeldTables, option: str, value: str, log: logging.Logger) -> Iterator[None]:
    """Set an option; it is as before if the block fails."""
    (table,) = held.tables
    before = held.keeper.facts(table).options.get(option)
    try:
        set_option(held, option, value, log)
        yield
    except BaseException:
        patient = replace(held, keeper=Keeper(without_interruption(held.runtime)))
        try:
            set_option(patient, option, before, log)
        except LakehouseError as error:
            log.error("Run it yourself: %s (%s)", _statement(table, option, before), error.message)
        raise


def _statement(table: str, option: str, value: str | None) -> str:
    name = qualified(*table.split(".", 1))
    if value is None:
        return f"ALTER TABLE {name} RESET ({string_literal(option)})"
    return f"ALTER TABLE {name} SET ({string_literal(option)} = {string_literal(value)})"
