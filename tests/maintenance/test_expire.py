"""A CALL that lets snapshots or changelogs go is bounded by ids that nothing moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from lakehouse_dagster.maintenance.actions import Action, ActionKind
from lakehouse_dagster.maintenance.expire import NextExpiry, next_expiry
from lakehouse_dagster.paimon import Snapshot

NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SNAPSHOTS = Action(
    "ods.a", ActionKind.EXPIRE_SNAPSHOTS, "a test", keep=10, older_than=NOW - timedelta(hours=20)
)
CHANGELOGS = replace(SNAPSHOTS, kind=ActionKind.EXPIRE_CHANGELOGS)


@dataclass
class Table:
    """Snapshots (and changelogs) of one an hour; the newest is of now."""

    oldest: int
    newest: int
    changelogs: range = range(0)
    gone: set[int] = field(default_factory=set)

    def oldest_snapshot_id(self) -> int:
        return self.oldest

    def latest_snapshot_id(self) -> int:
        return self.newest

    def snapshot(self, number: int) -> Snapshot | None:
        if number in self.gone:
            return None
        at = NOW - timedelta(hours=self.newest - number)
        return Snapshot(number, 0, "u", 0, "APPEND", at, None, 0, None)

    changelog = snapshot

    def changelog_ids(self) -> tuple[int, ...]:
        return tuple(self.changelogs)


def following(table: Table, action: Action = SNAPSHOTS) -> NextExpiry | None:
    return next_expiry(table, action, NOW)  # type: ignore[arg-type]


def test_what_is_older_goes_and_no_more_than_that() -> None:
    found = following(Table(1, 50))
    assert found is not None
    assert (found.going, found.left) == (29, 0)  # 1 to 29 are more than 20 hours old
    assert "`max_deletes` => 29" in found.text
    assert "snapshot.time-retained=72000000 ms" in found.text


def test_the_newest_stay_whatever_their_age() -> None:
    found = following(Table(1, 50), replace(SNAPSHOTS, keep=30))
    assert found is not None
    assert found.going == 20
    assert following(Table(1, 50), replace(SNAPSHOTS, keep=50)) is None


def test_nothing_goes_from_the_first_needed_one_on() -> None:
    found = following(Table(1, 50), replace(SNAPSHOTS, needed_from=8))
    assert found is not None
    assert found.going == 7
    assert following(Table(8, 50), replace(SNAPSHOTS, needed_from=8)) is None


def test_one_call_is_bounded_and_says_what_is_left() -> None:
    found = following(Table(1, 300))
    assert found is not None
    assert (found.going, found.left) == (100, 179)


def test_snapshots_that_vanish_meanwhile_count_as_old() -> None:
    found = following(Table(1, 50, gone=set(range(1, 26))))
    assert found is not None
    assert found.going == 29


def test_changelogs_are_counted_from_the_newest_snapshot_as_paimon_does() -> None:
    # 40 changelogs (1 to 40) beside the snapshots 41 to 60; 31 to 40 are to stay.
    found = following(Table(41, 60, range(1, 41)), CHANGELOGS)
    assert found is not None
    assert found.going == 30
    assert "`retain_min` => 30, `retain_max` => 30, `max_deletes` => 30" in found.text
    held = following(Table(41, 60, range(1, 41)), replace(CHANGELOGS, needed_from=5))
    assert held is not None
    assert held.going == 4
    assert following(Table(41, 60), CHANGELOGS) is None
