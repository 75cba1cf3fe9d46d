"""Tables of which an action of ours found a file to be gone: nothing more is done to them.

A table's facts come from its manifests, so a data file that somebody deleted is first missed by
whoever reads it. From then on the table counts as corrupt, until the file is back or not needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lakehouse_dagster.errors import SnapshotNotFoundError
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.paimon.file_facts import TableFacts

_NOT_FOUND = "FileNotFoundException"
"""What Java's ways to files raise, of every file system."""


@dataclass(frozen=True)
class Damage:
    """What failed for want of a file and was not done since; asked once for many tables."""

    keeper: Keeper

    def seen_in(self, facts: TableFacts) -> TableFacts:
        """The facts, with a ``problem`` if a file of the newest snapshot is still gone.

        Raises:
            CatalogError: it cannot be looked for.
        """
        told = self._told.get(facts.table)
        if told is None or facts.problem is not None:
            return facts
        try:
            path = self.keeper.runtime.catalog.open().table(facts.table).missing_file(told)
        except SnapshotNotFoundError as error:
            return replace(facts, problem=str(error))
        if path is None:
            return facts
        return replace(
            facts,
            problem=f"its file {path} is gone, though its newest snapshot needs it. Put it back, "
            "or write its partition anew.",
        )

    @cached_property
    def _told(self) -> Mapping[str, tuple[str, ...]]:
        return self.keeper.actions.unmended(_NOT_FOUND)
