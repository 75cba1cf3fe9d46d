"""What can be declared about maintenance, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    Limits,
    MaintenancePolicy,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    Window,
)
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
        (lambda: TablePolicy(compaction="nightly"), "compaction is 'nightly'.*batch, dedicated"),
        (lambda: Limits(concurrent=True), "Limits.concurrent is True"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_declared(
    declare: Callable[[], object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        declare()


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
    assert [size_bytes(text) for text in ("64 mb", "1g", "10KB", "7", "1.5 gib")] == [
        64 * 1024**2,
        1024**3,
        10 * 1024,
        7,
        3 * 1024**3 // 2,
    ]
