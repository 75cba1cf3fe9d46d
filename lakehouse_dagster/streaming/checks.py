"""Is a table as fresh as it should be, and is its job not too far behind? Evaluated, not shown.

What is not known fails no check: it says so in its text, and its severity is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta

from lakehouse_dagster.durations import duration, in_words
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.paimon import Snapshot
from lakehouse_dagster.streaming.lag import JobLag

WARN, ERROR = "WARN", "ERROR"


@dataclass(frozen=True)
class CheckPolicy:
    """The bounds that a table or job is held to; None: only looked at, never failed.

    Intervals are ``timedelta`` or text such as ``10m``, and always kept as ``timedelta``.
    """

    freshness: timedelta | str | None = None
    """The greatest age of a table's newest snapshot while there is something new to read."""
    max_lag: timedelta | str | None = None
    """The greatest age of the oldest commit upstream that the job has not read."""
    max_snapshots_behind: int | None = None
    """The most snapshots of one table upstream that the job has not read."""
    max_watermark_lag: timedelta | str | None = None
    """How far the table's watermark may be behind the present."""

    def __post_init__(self) -> None:
        for item in fields(self):
            what, value = f"CheckPolicy.{item.name}", getattr(self, item.name)
            if value is None:
                continue
            if item.name == "max_snapshots_behind":
                if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                    raise ConfigurationError(
                        f"{what} is {value!r}.", remedy="It must be a whole number of at least 0."
                    )
                continue
            if not isinstance(value, str | timedelta):
                raise ConfigurationError(
                    f"{what} is {value!r}.", remedy="Write a number with a unit, such as 10m."
                )
            seconds = duration(value, what=what).total_seconds()
            if seconds <= 0:
                raise ConfigurationError(
                    f"{what} is {value!r}.", remedy="It must be longer than 0."
                )
            object.__setattr__(self, item.name, timedelta(seconds=seconds))

    def seconds(self, name: str) -> float | None:
        """The bound of that name, in seconds; None when there is none."""
        value = getattr(self, name)
        return value.total_seconds() if isinstance(value, timedelta) else None


@dataclass(frozen=True)
class CheckOutcome:
    """How one check went.

    ``severity_word`` is ``WARN`` or ``ERROR``: how bad a failure is, or, of a check that passed,
    ``WARN`` alone. ``figures`` are numbers with their units in their names; what is not known is
    left out.
    """

    passed: bool
    severity_word: str
    text: str
    figures: Mapping[str, int | float] = field(default_factory=dict, hash=False)


def freshness(
    newest: Snapshot | None, lag: JobLag | None, policy: CheckPolicy, now: datetime
) -> CheckOutcome:
    """Whether the table's newest snapshot is young enough.

    A table whose job has read everything that there is upstream is fresh, however old it is.

    Args:
        newest: the table's newest snapshot; None when it has none.
        lag: of the job that fills it; None when it is not known.
        policy: with the bound ``freshness``.
        now: the present.
    """
    bound = policy.seconds("freshness")
    if newest is None:
        return _without_snapshot(lag, bound)
    age = max(0.0, (now - newest.committed_at).total_seconds())
    figures: dict[str, int | float] = {"age_seconds": round(age, 3), "snapshot": newest.id}
    text = f"Snapshot {newest.id} was committed {in_words(age)} ago"
    if bound is None:
        return CheckOutcome(True, WARN, f"{text}; no bound is declared.", figures)
    figures["bound_seconds"] = bound
    if age <= bound:
        return CheckOutcome(True, WARN, f"{text}.", figures)
    if _all_is_read(lag):
        return CheckOutcome(True, WARN, f"{text}; there is nothing new upstream.", figures)
    return CheckOutcome(
        False, ERROR, f"{text}, longer than {in_words(bound)}. {_why(lag)}".rstrip(), figures
    )


def behind(
    newest: Snapshot | None, lag: JobLag | None, policy: CheckPolicy, now: datetime
) -> CheckOutcome:
    """Whether the job is not too far behind what it reads, and the table's watermark not too old.

    Arguments as of ``freshness``; the bounds are ``max_lag``, ``max_snapshots_behind`` and
    ``max_watermark_lag``.
    """
    measured: dict[str, int | float] = {}
    if lag is not None and lag.seconds_behind is not None:
        measured["seconds_behind"] = round(lag.seconds_behind, 3)
    if lag is not None and lag.snapshots_behind is not None:
        measured["snapshots_behind"] = lag.snapshots_behind
    records = [u.records_behind for u in lag.upstreams if u.records_behind] if lag else []
    if records:
        measured["records_behind"] = sum(records)
    if newest is not None and newest.watermark is not None:
        measured["watermark_lag_seconds"] = round((now - newest.watermark).total_seconds(), 3)
    exceeded = _exceeded(measured, policy)
    if exceeded:
        text = f"{'; '.join(exceeded)}. {_why(lag)}".rstrip()
        return CheckOutcome(False, ERROR, text, measured)
    return CheckOutcome(True, WARN, _in_words(lag), measured)


def _without_snapshot(lag: JobLag | None, bound: float | None) -> CheckOutcome:
    if bound is None or _all_is_read(lag):
        return CheckOutcome(True, WARN, "The table has no snapshot yet.")
    return CheckOutcome(False, WARN, f"The table has no snapshot yet. {_why(lag)}".rstrip())


def _all_is_read(lag: JobLag | None) -> bool:
    return lag is not None and bool(lag.upstreams) and not lag.unread and not lag.unknown


def _exceeded(measured: Mapping[str, int | float], policy: CheckPolicy) -> list[str]:
    found = []
    for name, bound, what in (
        ("seconds_behind", policy.seconds("max_lag"), "The oldest unread commit is {} old"),
        ("watermark_lag_seconds", policy.seconds("max_watermark_lag"), "The watermark is {} old"),
    ):
        value = measured.get(name)
        if bound is not None and value is not None and value > bound:
            found.append(f"{what.format(in_words(value))}, more than {in_words(bound)}")
    most, count = policy.max_snapshots_behind, measured.get("snapshots_behind")
    if most is not None and count is not None and count > most:
        found.append(f"{count} snapshots are not read, more than {most}")
    return found


def _in_words(lag: JobLag | None) -> str:
    if lag is None:
        return "How far the job is behind is not known: no checkpoint of it can be read."
    if not lag.upstreams:
        return "The job has no source that goes on reading."
    return f"{'; '.join(str(upstream) for upstream in lag.upstreams)}."


def _why(lag: JobLag | None) -> str:
    if lag is None:
        return "How far its job is behind is not known."
    told = [str(upstream) for upstream in (*lag.unread, *lag.unknown)]
    return f"{'; '.join(told)}." if told else ""
