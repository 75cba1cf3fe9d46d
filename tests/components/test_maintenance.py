"""A maintenance policy in ``defs.yaml``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lakehouse_dagster import (
    CompactSpec,
    ExpireSpec,
    LakehouseComponent,
    Limits,
    MaintenancePolicy,
    PartitionExpirySpec,
    TablePolicy,
)
from lakehouse_dagster.maintenance.spec import Compaction
from tests.components.test_mistakes import WRITTEN, line_of, refusal

BASE = {
    "catalog": {"warehouse": "/data/lake"},
    "flink": {"rest_url": "http://a:1", "sql_gateway_url": "http://a:2"},
    "scripts": "sql",
}


def policy(written: Any) -> MaintenancePolicy | None:
    return LakehouseComponent.from_attributes_dict(
        attributes={**BASE, "maintenance": written}
    ).maintenance


def test_nothing_said_is_no_maintenance_and_an_empty_mapping_the_defaults() -> None:
    assert LakehouseComponent.from_attributes_dict(attributes=dict(BASE)).maintenance is None
    assert policy({}) == MaintenancePolicy()


def test_a_policy_says_the_same_as_python() -> None:
    written = {
        "default": {
            "compaction": "dedicated",
            "compact": {"small_share": 0.25, "unsettled_size": "1 gb", "attempts": "2"},
            "expire": {"keep_at_least": 20, "keep_for": "2d"},
            "partitions": {"keep_for": "30d", "format": "%Y%m%d"},
            "changelogs": False,
            "orphans": True,
        },
        "limits": {"concurrent": 4, "size_a_run": "1 tb"},
    }
    said = policy(written)
    assert said is not None
    assert said.default.compact == CompactSpec(small_share=0.25, unsettled_size="1 gb", attempts=2)
    assert said.default.expire == ExpireSpec(20, "2d")
    assert said.default.partitions == PartitionExpirySpec("30d", "%Y%m%d")
    assert said.default.changelogs is None
    assert said.default.orphans is not None
    assert said.default.compaction is Compaction.DEDICATED
    assert said.limits == Limits(concurrent=4, size_a_run="1 tb")


def test_an_override_inherits_what_it_does_not_say() -> None:
    said = policy(
        {
            "default": {
                "expire": {"keep_at_least": 20, "keep_for": "2d"},
                "tags": {"keep_for": "9d"},
            },
            "tables": {"ods.*": {"compaction": False, "expire": {"keep_for": "1h"}, "tags": False}},
        }
    )
    assert said is not None
    of_table = said.for_table("ods.orders")
    assert of_table.compaction is Compaction.OFF
    assert of_table.expire == ExpireSpec(20, "1h")
    assert of_table.tags is None
    assert said.for_table("dwd.orders").compaction is TablePolicy().compaction
    assert said.default.tags is not None
    assert said.default.tags.keep_for == timedelta(days=9)


MAINTENANCE = """\
  maintenance:
    default:
      compaction: batch
      expire: {keep_at_least: 10}
      partitions:
        keep_for: 30d
    tables:
      ods.*:
        compact:
          cron: "0 3 * * *"
    limits:
      concurrent: 2
"""


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("compaction: batch", "compaction: nightly", "default.compaction", "'nightly'"),
        ("keep_at_least: 10", "keep_at_least: 0", "default.expire.keep_at_least", "is 0"),
        ("keep_for: 30d", "keep_for: long", "default.partitions.keep_for", "'long'"),
        ("partitions:", "partitions: {format: '%Y'}", "default.partitions", "not say keep_for"),
        ("0 3 * * *", "at three", "tables.ods.*.compact.cron", "'at three' is not understood"),
        ("concurrent: 2", "concurrent: many", "limits.concurrent", "'many'"),
        ("keep_for: 30d", "keep_for: '{{ nobody }}'", "default.partitions.keep_for", "nobody"),
        ("compaction: batch", "compaction_group: g", "default", "compaction is not dedicated"),
        ("keep_at_least: 10", "keep_last: 1", "default.expire.keep_last", ""),
        ("compaction: batch", "compaction: true", "default.compaction", "is 'true'. Write one of"),
        ("keep_at_least: 10", "lasts: 1h", "default.expire.lasts", "It is 1h, but there is no cr"),
        ("concurrent: 2", "concurrent: 0", "limits.concurrent", "limits.concurrent: It is 0. It m"),
        ("keep_for: 30d", "keep_for: 0s", "default.partitions.keep_for", "keep_for: It is '0s'"),
        ("cron: ", "attempts: 1000 #", "tables.ods.*.compact.attempts", "It is 1000. Write at m"),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, field: str, said: str) -> None:
    text = WRITTEN + MAINTENANCE.replace(old, new)
    if "{format" in new:
        text = text.replace("        keep_for: 30d\n", "")
    error, path = refusal(text)
    assert len(str(error).splitlines()) == 1
    line = line_of(text, "compaction_group") - 1 if field == "default" else line_of(text, new)
    assert f"{path}:{line}: " in str(error)
    assert f"attributes.maintenance.{field}" in str(error)
    assert said in str(error)


def test_all_mistakes_of_a_policy_are_told_at_once() -> None:
    text = WRITTEN + MAINTENANCE.replace("batch", "true").replace("keep_at_least: 10", "cron: x")
    text = text.replace("keep_for: 30d", 'keep_for: 30d\n        format: "%m%d"')
    text = text.replace('cron: "0 3 * * *"', "level0_files: 0\n          lasts: 1h")
    error, path = refusal(text)
    told = [line.removeprefix(f"{path}:").split(": ")[1] for line in str(error).splitlines()]
    assert told == [
        f"attributes.maintenance.{field}"
        for field in (
            "default.compaction",
            "default.expire.cron",
            "default.partitions.format",
            "tables.ods.*.compact.level0_files",
            "tables.ods.*.compact.lasts",
        )
    ]
    assert "from which no day, month or year follows. Write it as strptime takes it" in str(error)


def test_a_window_may_be_said_in_any_order_or_only_moved() -> None:
    said = policy(
        {
            "default": {"compact": {"lasts": "3h", "cron": "0 3 * * *"}},
            "tables": {"ods.*": {"compact": {"lasts": "1h"}}},
        }
    )
    assert said is not None
    assert said.default.compact == CompactSpec(cron="0 3 * * *", lasts="3h")
    assert said.for_table("ods.x").compact == CompactSpec(cron="0 3 * * *", lasts="1h")
