"""Tables that keep changelogs for longer than snapshots are told by their options."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from lakehouse_dagster.maintenance.actions import ActionKind, Situation
from lakehouse_dagster.maintenance.changelogs import kept_longer
from lakehouse_dagster.maintenance.decide import decide
from lakehouse_dagster.maintenance.spec import ExpireSpec, TablePolicy
from tests.maintenance.facts import NOW, bucket, table


@pytest.mark.parametrize(
    ("options", "longer"),
    [
        ({}, None),
        ({"changelog-producer": "lookup", "snapshot.time-retained": "2 d"}, None),
        ({"changelog.time-retained": "2 h"}, "changelog.time-retained"),
        ({"changelog.time-retained": "60 min"}, None),
        (
            {"changelog.time-retained": "25 hours", "snapshot.time-retained": "1d"},
            "changelog.time-retained",
        ),
        ({"changelog.time-retained": "24h", "snapshot.time-retained": "1 day"}, None),
        ({"changelog.num-retained.min": "11"}, "changelog.num-retained.min"),
        ({"changelog.num-retained.min": "10"}, None),
        ({"changelog.num-retained.max": "99"}, None),
        (
            {"changelog.num-retained.max": "99", "snapshot.num-retained.max": "98"},
            "changelog.num-retained.max",
        ),
        ({"changelog.time-retained": "some time"}, "changelog.time-retained"),
    ],
)
def test_which_option_keeps_changelogs_longer(options: dict[str, str], longer: str | None) -> None:
    assert kept_longer(options) == longer


def test_snapshots_whose_changelogs_are_to_outlive_them_are_left_to_writers() -> None:
    facts = table(
        bucket(),
        snapshot_count=60,
        oldest_snapshot_at=NOW - timedelta(days=2),
        changelog_count=30,
        oldest_changelog_id=1,
        oldest_changelog_at=NOW - timedelta(days=4),
        options={"changelog.time-retained": "3 d"},
    )
    policy = TablePolicy(changelogs=ExpireSpec(keep_for="3d"))
    decision = decide(facts, policy, Situation(), NOW)
    assert [action.kind for action in decision.actions] == [ActionKind.EXPIRE_CHANGELOGS]
    assert decision.held_back == (
        "Old snapshots are left to the table's writers and its snapshot.* options: Paimon's "
        "procedure would take the changelogs with them that changelog.time-retained keeps longer.",
    )
    decision = decide(replace(facts, options={}), policy, Situation(), NOW)
    assert ActionKind.EXPIRE_SNAPSHOTS in [action.kind for action in decision.actions]
    assert decision.held_back == ()
