"""Tables that we may act on, as long as their leases are ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lakehouse_dagster.paimon.file_facts import TableFacts
from lakehouse_dagster.streaming.runtime import Runtime

if TYPE_CHECKING:
    from lakehouse_dagster.system_db import Lease
    from lakehouse_dagster.system_db.maintenance_actions import ActionRecord, MaintenanceActions
    from lakehouse_dagster.system_db.table_files import TableFiles


@dataclass(frozen=True)
class Keeper:
    """What every part of this room needs at hand; made once for a lakehouse."""

    runtime: Runtime

    @cached_property
    def actions(self) -> MaintenanceActions:
        """Every action that was begun, and what became of it."""
        from lakehouse_dagster.system_db.maintenance_actions import MaintenanceActions

        return MaintenanceActions(
            self.runtime.database, self.runtime.identity, self.runtime.clock.now
        )

    @cached_property
    def files(self) -> TableFiles:
        """The sums over the files of each table."""
        from lakehouse_dagster.system_db.table_files import TableFiles

        return TableFiles(self.runtime.database, self.runtime.identity, self.runtime.clock.now)

    def facts(self, table: str) -> TableFacts:
        """The facts of a table as of now; raises ``TableNotFoundError``."""
        return self.runtime.catalog.open().table(table).facts(self.files)

    def lease_key(self, table: str) -> str:
        """The lease of whoever changes the table's files by maintenance."""
        return f"table/{self.runtime.identity}/{table}"

    def is_held(self, table: str) -> bool:
        """Whether somebody acts on the table now."""
        return self.runtime.leases.current(self.lease_key(table)) is not None

    def left_behind(self) -> tuple[ActionRecord, ...]:
        """Actions on record as under way on which nobody works; the next run settles them."""
        running = self.actions.running()
        held = self.runtime.leases.all_current(self.lease_key("")) if running else {}
        return tuple(r for r in running if self.lease_key(r.table_name) not in held)

    @contextmanager
    def hold(self, tables: Sequence[str], holder: str) -> Iterator[HeldTables]:
        """Hold the leases of tables while the block runs; released on any exception.

        Raises ``LeaseHeldError`` at once when somebody else acts on one of them.
        """
        seconds = self.runtime.policy.seconds("lease")
        with ExitStack() as stack:
            # In one order everywhere, so that two that want the same tables do not wait for
            # each other (they do not wait anyhow).
            leases = tuple(
                stack.enter_context(
                    self.runtime.leases.held(self.lease_key(table), holder, seconds)
                )
                for table in sorted(tables)
            )
            yield HeldTables(self, tuple(tables), leases, holder)


@dataclass(frozen=True)
class HeldTables:
    """The tables of one action or group of actions."""

    keeper: Keeper
    tables: tuple[str, ...]
    leases: tuple[Lease, ...]
    holder: str

    @property
    def runtime(self) -> Runtime:
        """The lakehouse."""
        return self.keeper.runtime

    def still_ours(self) -> None:
        """Raise ``LeaseLostError`` if someone else took over; asked before every POST."""
        for lease in self.leases:
            self.runtime.leases.check(lease)
