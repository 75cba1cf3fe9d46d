"""What time it is: injected, so that tests can let a lease expire without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

Clock = Callable[[], datetime]
"""A function that returns the time now as a timezone-aware UTC datetime."""


def utc_now() -> datetime:
    """The time now, timezone-aware, in UTC."""
    return datetime.now(timezone.utc)
