"""What is declared about partitions, and a table's partitions as Dagster keys and back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.streaming.partition_keys import PartitionKeys
from lakehouse_dagster.streaming.partitions import (
    DEFAULT_PARTITION,
    DynamicPartitions,
    Every,
    StaticPartitions,
    TablePartitions,
    TimePartitions,
    escaped,
)

DAY = {"column": "dt", "every": "day", "format": "%Y%m%d", "start": "20260101"}
HOURS = {"columns": {"dt": "%Y%m%d", "hh": "%H"}, "every": "hour", "start": "20260101-00"}
REGIONS = {"column": "region", "values": ["eu", "us", None]}


def keys(written: Any, columns: Mapping[str, str] | None = None) -> PartitionKeys:
    declared = TablePartitions.read(written)
    return PartitionKeys("dwd.t", declared, columns or dict.fromkeys(declared.columns, "STRING"))


# What is declared


def test_yaml_and_python_say_the_same() -> None:
    day = TimePartitions({"dt": "%Y%m%d"}, Every.DAY, "20260101")
    assert TablePartitions.read(DAY) == TablePartitions((day,))
    assert TablePartitions.read({**DAY, "start": 20260101}) == TablePartitions((day,))
    region = StaticPartitions("region", ("eu", "us", None))
    assert TablePartitions.read([DAY, REGIONS]) == TablePartitions((day, region))
    assert TablePartitions.read({"dynamic": True}) == TablePartitions((DynamicPartitions(),))
    assert TablePartitions.read({"column": "c", "dynamic": True}) == TablePartitions(
        (DynamicPartitions(("c",)),)
    )


@pytest.mark.parametrize(
    ("written", "field", "instead"),
    [
        ("dt", "partitions is 'dt'", "column: dt, every: day"),
        ({}, "neither every, values nor dynamic", "every: day"),
        ({**DAY, "fmt": 1}, "has no field fmt", "column, columns, every"),
        ({**DAY, "values": ["a"]}, "every and values at once", "one of"),
        ({**REGIONS, "format": "%Y"}, "partitions.format goes with every", "Leave out format"),
        ({**DAY, "every": "daily"}, "partitions.every is 'daily'", "hour, day, week, month"),
        ({**DAY, "column": None}, "partitions.column is missing", "column: dt"),
        ({**DAY, "columns": {"dt": "%Y"}}, "partitions.columns is", "its format"),
        ({k: v for k, v in DAY.items() if k != "format"}, "partitions.format is", "%Y%m%d"),
        ({k: v for k, v in DAY.items() if k != "start"}, "partitions.start is", "start"),
        ({**DAY, "format": "dt"}, "holds no time", "%Y%m%d"),
        ({**DAY, "format": "%Y%m"}, "partitions.start is '20260101'", '"202601"'),
        ({**DAY, "format": "%Y%m", "start": "202601"}, "does not tell every day", "%Y%m%d"),
        ({**DAY, "format": "%m%d", "start": "0101"}, "does not tell every day", "window"),
        ({**DAY, "format": "%G-W%V", "start": "x"}, "cannot be read back", "strptime"),
        ({**DAY, "format": "%Y|%m|%d", "start": "2026|01|01"}, "no key can have", "'|'"),
        ({**DAY, "start": "2026-01-01"}, "partitions.start is '2026-01-01'", '"20260101"'),
        ({**DAY, "every": "month", "start": "20260102"}, "no month begins", "first of a month"),
        ({**DAY, "every": "hour"}, "does not tell every hour", "hh"),
        (
            {**HOURS, "columns": {"dt": "%Y%m%d", "hh": "%I"}, "start": "20260101-12"},
            "does not tell every hour",
            "%H",
        ),
        ({**HOURS, "timezone": "Europe/Berlin"}, "clocks are put back", "UTC"),
        ({**DAY, "timezone": "Mars"}, "partitions.timezone is 'Mars'", "Asia/Shanghai"),
        ({**DAY, "end_offset": -1}, "partitions.end_offset is -1", "number of windows"),
        ({**REGIONS, "values": "eu"}, "partitions.values is 'eu'", "[eu, us]"),
        ({**REGIONS, "values": []}, "partitions.values of region is ()", "[eu, us]"),
        ({**REGIONS, "values": ["a", "a"]}, "has a more than once", "once"),
        ({**REGIONS, "values": ["", None]}, "more than once", "the same"),
        ({**REGIONS, "values": ["x" * 256]}, "of 256 characters", "255"),
        ({"columns": "dt", "dynamic": True}, "partitions.columns is 'dt'", "list of columns"),
        ([DAY, REGIONS, REGIONS], "has 3 dimensions", "dynamic: true"),
        ([DAY, DAY], "two time dimensions", "columns: {dt: …"),
        ([{"column": "a", "dynamic": True}] * 2, "two dynamic dimensions", "dynamic: true"),
        ([DAY, {"column": "dt", "values": ["a"]}], "names a column twice", "one dimension"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    written: Any, field: str, instead: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        TablePartitions.read(written)
    assert field in refused.value.message
    assert instead in str(refused.value.remedy)


@pytest.mark.parametrize(
    ("written", "columns", "message"),
    [
        (DAY, {}, "tables.dwd.t.partitions is given, but the table has no partitions"),
        (DAY, {"day": "STRING"}, "names dt, by which the table is not partitioned"),
        (DAY, {"dt": "STRING", "hh": "INT"}, "leaves out hh"),
        ([DAY, {"dynamic": True}], {"dt": "STRING"}, "leaves no column for its dynamic"),
    ],
)
def test_a_declaration_must_fit_the_table(
    written: Any, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PartitionKeys("dwd.t", TablePartitions.read(written), columns)
    assert message in refused.value.message
    assert refused.value.remedy


# Keys


HIVE = {"columns": {"y": "%Y", "m": "%-m", "d": "%d"}, "every": "day", "start": "2026-01-01"}


@pytest.mark.parametrize(
    ("written", "columns", "partition", "key"),
    [
        (DAY, {"dt": "STRING"}, {"dt": "20260203"}, "20260203"),
        (DAY, {"dt": "INT"}, {"dt": 20260203}, "20260203"),
        (DAY, {"dt": "DATE"}, {"dt": date(2026, 2, 3)}, "20260203"),
        (DAY, {"dt": "TIMESTAMP(3)"}, {"dt": datetime(2026, 2, 3)}, "20260203"),
        (HOURS, None, {"dt": "20260203", "hh": "07"}, "20260203-07"),
        (HOURS, {"dt": "INT", "hh": "INT"}, {"dt": 20260203, "hh": 7}, "20260203-07"),
        (HOURS, {"dt": "DATE", "hh": "INT"}, {"dt": date(2026, 2, 3), "hh": 7}, "20260203-07"),
        (HIVE, None, {"y": "2026", "m": "2", "d": "03"}, "2026-02-03"),
        (REGIONS, None, {"region": "eu"}, "eu"),
        (REGIONS, None, {"region": None}, DEFAULT_PARTITION),
        ({"column": "n", "values": [1, 2]}, {"n": "INT"}, {"n": 2}, "2"),
        ({"dynamic": True}, {"c": "STRING"}, {"c": "50%|x"}, "50%25%7Cx"),
        ({"dynamic": True}, {"c": "BOOLEAN"}, {"c": True}, "true"),
        ({"dynamic": True}, {"c": "DATE"}, {"c": date(2026, 2, 3)}, "2026-02-03"),
        ({"dynamic": True}, {"a": "INT", "b": "STRING"}, {"a": 1, "b": "x/y"}, "a=1/b=x%2Fy"),
        (
            [DAY, REGIONS],
            {"region": "STRING", "dt": "STRING"},
            {"region": "us", "dt": "20260203"},
            "20260203|us",
        ),
    ],
)
def test_a_partition_has_a_key_and_the_key_leads_back(
    written: Any, columns: dict[str, str] | None, partition: dict[str, Any], key: str
) -> None:
    both = keys(written, columns)
    assert both.key_of(partition) == key
    back = both.partition_of(key)
    assert back == partition
    assert list(back) == list(partition)
    if "dynamic" not in written:
        definition = both.definition()
        at = datetime(2026, 3, 1, tzinfo=timezone.utc)
        assert both.event_key(key) in definition.get_partition_keys(current_time=at)


@pytest.mark.parametrize(
    ("written", "partition"),
    [
        (DAY, {"dt": "20251231"}),
        (DAY, {"dt": "2026-02-03"}),
        (DAY, {"dt": "2026023"}),
        (DAY, {"dt": "20260231"}),
        (DAY, {"dt": None}),
        (DAY, {"dt": ""}),
        (HOURS, {"dt": "20260203", "hh": "7"}),
        (HOURS, {"dt": "20260203", "hh": "24"}),
        (HIVE, {"y": "2026", "m": "02", "d": "03"}),
        ({**DAY, "every": "week"}, {"dt": "20260102"}),
        (REGIONS, {"region": "EU"}),
        ({"column": "c", "dynamic": True}, {"c": "x" * 256}),
    ],
)
def test_what_was_not_declared_is_outside(written: Any, partition: dict[str, Any]) -> None:
    assert keys(written).key_of(partition) is None


TEXTS = st.text(max_size=20).filter(lambda t: t.strip() and t != DEFAULT_PARTITION)
EVERY = st.sampled_from(["hour", "day", "week", "month"])
FORMATS = st.sampled_from(
    [
        ("%Y%m%d%H",),
        ("%Y-%m-%d %H:%M",),
        ("%d.%m.%Y", "%H"),
        ("%Y", "%j", "%H"),
        ("%Y", "%-m", "%-d", "%-H"),
    ]
)


@given(every=EVERY, formats=FORMATS, ints=st.booleans(), windows=st.integers(0, 700))
def test_every_window_has_its_own_partition_and_key(
    every: str, formats: tuple[str, ...], ints: bool, windows: int
) -> None:
    columns = {f"c{n}": fmt for n, fmt in enumerate(formats)}
    numbers = ints and all(fmt.replace("%", "").replace("-", "").isalpha() for fmt in formats)
    first = datetime(2024, 1, 1)
    start = "-".join(first.strftime(fmt.replace("%-", "%")) for fmt in formats)
    written = {"columns": columns, "every": every, "start": start}
    both = keys(written, dict.fromkeys(columns, "INT" if numbers else "STRING"))
    moment = Every(every).step(first, windows)
    values = {c: moment.strftime(fmt) for c, fmt in columns.items()}
    partition = {c: int(v) if numbers else v for c, v in values.items()}
    key = both.key_of(partition)
    assert key is not None
    assert both.partition_of(key) == partition
    assert Every(every).step(first, windows + 1).strftime(both_format(both)) != key


def both_format(both: PartitionKeys) -> str:
    (dimension,) = both.declared.dimensions
    assert isinstance(dimension, TimePartitions)
    return dimension.key_format


@given(every=EVERY, windows=st.integers(0, 700), zone=st.sampled_from(["UTC", "Asia/Shanghai"]))
def test_windows_are_those_of_dagster(every: str, windows: int, zone: str) -> None:
    first = datetime(2024, 1, 1)
    written = {"column": "c", "every": every, "format": "%Y%m%d%H", "start": "2024010100"}
    both = keys({**written, "timezone": zone})
    key = Every(every).step(first, windows).strftime("%Y%m%d%H")
    definition = both.definition()
    assert isinstance(definition, dg.TimeWindowPartitionsDefinition)
    theirs = definition.time_window_for_partition_key(key)
    window = both.window(key)
    assert window is not None
    assert [t.timestamp() for t in window] == [theirs.start.timestamp(), theirs.end.timestamp()]


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize("every", ["hour", "day", "week", "month"])
def test_a_partition_is_listed_when_dagster_lists_it(every: str, offset: int) -> None:
    written = {"column": "c", "every": every, "format": "%Y%m%d%H", "start": "2026010100"}
    both = keys({**written, "end_offset": offset})
    definition = both.definition()
    for seconds in (0, 59, 3600, 86400 * 33 - 1, 86400 * 33, 86400 * 40 + 7):
        now = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
        theirs = set(definition.get_partition_keys(current_time=now))
        first = datetime(2026, 1, 1)
        tried = [Every(every).step(first, n).strftime("%Y%m%d%H") for n in range(1000)]
        assert {key for key in tried if both.listed(key, now)} == theirs


@given(value=st.one_of(st.none(), TEXTS))
def test_any_text_is_a_dynamic_key_that_dagster_accepts(value: str | None) -> None:
    both = keys({"column": "c", "dynamic": True})
    key = both.key_of({"c": value})
    if key is None:
        assert len(escaped(value or "")) > 255
        return
    dg.StaticPartitionsDefinition([key])
    assert "|" not in key
    assert both.partition_of(key) == {"c": value}


@given(first=st.one_of(st.none(), TEXTS), second=st.one_of(st.none(), TEXTS), n=st.integers())
def test_any_values_of_several_columns_are_one_key(
    first: str | None, second: str | None, n: int
) -> None:
    both = keys({"dynamic": True}, {"a/b": "STRING", "n": "BIGINT", "c": "STRING"})
    partition = {"a/b": first, "n": n, "c": second}
    key = both.key_of(partition)
    if key is not None:
        dg.StaticPartitionsDefinition([key])
        assert both.partition_of(key) == partition


@given(value=TEXTS, day=st.integers(0, 500))
def test_two_dimensions_are_one_key_as_dagster_writes_it(value: str, day: int) -> None:
    columns = {"region": "STRING", "dt": "DATE"}
    both = keys([DAY, {"column": "region", "values": [value]}], columns)
    partition = {"region": value, "dt": date(2026, 1, 1) + timedelta(days=day)}
    key = both.key_of(partition)
    if key is not None:
        assert both.partition_of(key) == partition
        made = both.event_key(key)
        assert isinstance(made, dg.MultiPartitionKey)
        assert str(made) == key
        assert set(made.keys_by_dimension) == {"dt", "region"}


def test_keys_are_sorted_by_time_whatever_their_format() -> None:
    written = {"column": "c", "every": "day", "format": "%d.%m.%Y", "start": "01.01.2026"}
    both = keys(written)
    assert sorted(["02.01.2027", "03.01.2026", "01.02.2026"], key=both.order) == [
        "03.01.2026",
        "01.02.2026",
        "02.01.2027",
    ]


def test_only_dynamic_partitions_are_added() -> None:
    assert keys(DAY).dynamic(["20260101"]) is None
    both = keys([DAY, {"column": "region", "dynamic": True}])
    assert both.dynamic(["20260101|eu", "20260102|eu", "20260102|us"]) == (
        "dwd.t/region",
        ("eu", "us"),
    )
