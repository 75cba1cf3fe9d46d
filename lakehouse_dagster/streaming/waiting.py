"""A long wait that says every few seconds what it waits for."""

from __future__ import annotations

import logging

from lakehouse_dagster.durations import in_words
from lakehouse_dagster.streaming.runtime import Clock

SAY_EVERY_SECONDS = 5.0


class Waiting:
    """One wait; ``say`` is called at every poll and logs only now and then."""

    def __init__(self, clock: Clock, log: logging.Logger) -> None:
        self._clock, self._log = clock, log
        self._started, self._said = clock.monotonic(), 0.0

    def say(self, what: str, how_far: str = "") -> None:
        """Log that ``what`` is still waited for, and how far it is."""
        waited = self._clock.monotonic() - self._started
        if waited - self._said < SAY_EVERY_SECONDS:
            return
        self._said = waited
        self._log.info(
            "Waiting for %s for %s%s.", what, in_words(waited), f": {how_far}" if how_far else ""
        )
