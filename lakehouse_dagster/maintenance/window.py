"""When something may begin: at the ticks of a cron expression, and for a while after each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakehouse_dagster.declared import check_fields
from lakehouse_dagster.durations import duration
from lakehouse_dagster.errors import ConfigurationError

_VALUE = r"(\d+|[A-Za-z]{3})"
_ITEM = rf"(\*|{_VALUE}(-{_VALUE})?)(/\d+)?"
_PLAIN = re.compile(rf"({_ITEM}(,{_ITEM})*(\s+|$)){{5}}")
"""What every reader of cron expressions takes for the same; Dagster's knows no L, W and #."""


@dataclass(frozen=True)
class Window:
    """When something may begin: from each tick of a cron expression, for so long; UTC."""

    cron: str
    lasts: timedelta | str = "2h"

    def __post_init__(self) -> None:
        from cronsim import CronSim, CronSimError

        try:
            if not _PLAIN.fullmatch(self.cron.strip()):
                raise CronSimError("it is not five fields of numbers, names, * - , and /")
            CronSim(self.cron, datetime(2026, 1, 1))
        except CronSimError as error:
            raise ConfigurationError(
                f"The cron expression {self.cron!r} is not understood: {error}.",
                remedy='Write five fields, such as "0 3 * * *" for every day at 03:00 UTC.',
            ) from None
        check_fields(self, such_as="30m or 1d")

    def is_open(self, now: datetime) -> bool:
        """Whether ``now`` (aware) lies in the window."""
        return now < self.opened_at(now) + duration(self.lasts)

    def opened_at(self, now: datetime) -> datetime:
        """The last tick at or before ``now`` (aware)."""
        from cronsim import CronSim

        # The search begins one second after: a tick at this very minute counts.
        return next(CronSim(self.cron, now + timedelta(seconds=60), reverse=True))

    def opens_at(self, now: datetime) -> datetime:
        """The first tick after ``now`` (aware)."""
        from cronsim import CronSim

        return next(CronSim(self.cron, now))
