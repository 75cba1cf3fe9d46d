"""What can be declared about maintenance, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.partition_times import time_of
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    Limits,
    MaintenancePolicy,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
    without_windows,
)
from lakehouse_dagster.maintenance.window import Window
from lakehouse_dagster.sizes import size_bytes


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: CompactSpec(cron="0 25 * * *"), "The cron expression '0 25 \\* \\* \\*' is not"),
        (lambda: CompactSpec(small_share=1.5), "CompactSpec.small_share is 1.5.* above 0, at most"),
        (lambda: CompactSpec(attempts=0), "CompactSpec.attempts is 0"),
        (lambda: CompactSpec(unsettled_size="many"), "unsettled_size is 'many', which is no size"),
        (lambda: ExpireSpec(keep_for="soon"), "ExpireSpec.keep_for is 'soon'"),
        (lambda: ExpireSpec(keep_for="0s"), "ExpireSpec.keep_for is '0s'.* longer than 0"),
        (lambda: OrphanSpec(older_than="2h"), "OrphanSpec.older_than .* at least 1d"),
        (lambda: PartitionExpirySpec("9d", format="yyyyMMdd"), "format .* such as %Y%m%d"),
        (
            lambda: PartitionExpirySpec("9d", format="%Q"),
            "'%Q', which cannot be read: 'Q' is",
        ),
        (lambda: OrphanSpec(older_than="2h"), "older_than is 2h"),
        (lambda: CompactSpec(lasts="3h"), "CompactSpec.lasts is 3h, but .* no cron .* cron beside"),
        (lambda: CompactSpec(attempts=11), "CompactSpec.attempts is 11.* at most 10"),
        (lambda: TablePolicy("dedicated", compact=None), "is dedicated, but there is no compact"),
        (lambda: MaintenancePolicy(default={}), "MaintenancePolicy.default is {}.*TablePolicy\\("),  # type: ignore[arg-type]
        (lambda: MaintenancePolicy(tables={"a.*": {}}), "tables has 'a.\\*': {}.* TablePolicy\\("),  # type: ignore[dict-item]
        (lambda: TablePolicy(compact=True), "TablePolicy.compact is True.*CompactSpec\\(.*or None"),  # type: ignore[arg-type]
        (lambda: TagSpec("1d", names=3), "TagSpec.names is 3. It must be text"),  # type: ignore[arg-type]
        (lambda: TablePolicy(compaction="nightly"), "compaction is 'nightly'.*batch, dedicated"),
        (lambda: Limits(concurrent=True), "Limits.concurrent is True"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_declared(
    declare: Callable[[], object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        declare()


@pytest.mark.parametrize(
    ("written", "is_one"),
    [
        ("%Y%m%d", True),
        ("%Y-%m-%d %H:%M", True),
        ("%y%m%d%H", True),
        ("%Y%j", True),
        ("%G-W%V-%u", True),
        ("%H", False),
        ("%m%d", False),
        ("%Y", True),
        ("%Y-%m", True),
        ("%m", False),
        ("%Y%W", False),
        ("%Y%M%d", False),
        ("%G-W%V", False),
        ("%Y%Y%m%d", False),
        ("%Y%m%", False),
    ],
)
def test_a_day_month_or_year_must_follow_from_the_format_of_expiring_partitions(
    written: str, is_one: bool
) -> None:
    if is_one:
        assert PartitionExpirySpec("9d", format=written).format == written
    else:
        with pytest.raises(ConfigurationError, match=re.escape(written)):
            PartitionExpirySpec("9d", format=written)


def test_a_partition_s_time_is_utc_unless_it_says_otherwise() -> None:
    assert time_of("2026113005", "%Y%m%d%H") == datetime(2026, 11, 30, 5, tzinfo=timezone.utc)
    assert time_of("20261130+0900", "%Y%m%d%z") == datetime(2026, 11, 29, 15, tzinfo=timezone.utc)
    assert time_of("x", "%Y%m%d") is None
    assert time_of("202613", "%Y%m") is None
    assert time_of(None, "%Y%m%d") is None


def test_a_partition_of_a_month_or_a_year_is_as_young_as_its_last_day() -> None:
    assert time_of("202602", "%Y%m") == datetime(2026, 2, 28, tzinfo=timezone.utc)
    assert time_of("2024-02", "%Y-%m") == datetime(2024, 2, 29, tzinfo=timezone.utc)
    assert time_of("2024", "%Y") == datetime(2024, 12, 31, tzinfo=timezone.utc)


def test_whoever_has_chosen_the_time_waits_for_no_window() -> None:
    policy = MaintenancePolicy(TablePolicy(compact=CompactSpec(cron="0 3 * * *", lasts="3h")))
    assert without_windows(policy) == MaintenancePolicy()


def test_the_most_exact_pattern_gives_a_table_its_policy() -> None:
    ods, orders = TablePolicy(expire=None), TablePolicy(compact=None)
    policy = MaintenancePolicy(tables={"ods.*": ods, "ods.orders": orders})
    assert policy.for_table("ods.orders") is orders
    assert policy.for_table("ods.users") is ods
    assert policy.for_table("dwd.users") is policy.default


def test_a_window_is_open_from_its_tick_for_as_long_as_it_lasts() -> None:
    window = Window("30 3 * * *", "90m")
    tick = datetime(2026, 11, 30, 3, 30, tzinfo=timezone.utc)
    assert [window.is_open(tick + timedelta(minutes=m)) for m in (-1, 0, 89, 90)] == [
        False,
        True,
        True,
        False,
    ]


def test_sizes_are_those_of_paimon_s_options() -> None:
    assert [size_bytes(text) for text in ("64 mb", "1g", "10KB", 7, "1.5 gib")] == [
        64 * 1024**2,
        1024**3,
        10 * 1024,
        7,
        3 * 1024**3 // 2,
    ]
    for lost_its_unit in ("7", " 100 ", "0 gb"):
        with pytest.raises(ConfigurationError, match="which is no size"):
            size_bytes(lost_its_unit)


@pytest.mark.parametrize(
    "cron",
    ["0 0 3 * * *", "0 3 * * 5L", "0 3 LW * *", "0 3 * * 1#2", "0 3 * *", "@daily", "a b c d e"],
)
def test_a_cron_expression_that_dagster_reads_otherwise_or_not_at_all_is_refused(cron: str) -> None:
    with pytest.raises(ConfigurationError, match="is not understood") as refused:
        Window(cron)
    assert "five fields" in str(refused.value)


@pytest.mark.parametrize("cron", ["*/5 1-3,7 * JAN-MAR mon", "0 3 1,15 * 1-5/2", " 0 3 * * * "])
def test_a_cron_expression_of_five_plain_fields_is_one_of_dagster_s_too(cron: str) -> None:
    job = dg.define_asset_job("nothing")
    assert Window(cron).cron == dg.ScheduleDefinition(job=job, cron_schedule=cron).cron_schedule
