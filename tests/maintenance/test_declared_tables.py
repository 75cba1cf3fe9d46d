"""A policy for tables that the project does not have is told when definitions are made."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lakehouse_dagster import MaintenancePolicy, PartitionExpirySpec, TablePolicy
from lakehouse_dagster.errors import ConfigurationError
from tests.components.test_mistakes import WRITTEN, line_of, refusal
from tests.streaming.making import job, load, source, table

SCRIPTS = {
    "ods": table("ods.orders") + table("ods.idle") + source("x") + job("ods_a", "ods.orders", "x"),
    "dwd": "CREATE TABLE dwd.days (id INT, v STRING, dt STRING) PARTITIONED BY (dt);\n"
    "INSERT INTO dwd.days SELECT id, v, 'x' FROM ods.orders;\n",
}
NOTHING = TablePolicy(compact=None)


def made(folder: Path, default: TablePolicy = NOTHING, **tables: TablePolicy) -> None:
    policies = {name.replace("__", "."): policy for name, policy in tables.items()}
    load(folder, SCRIPTS, maintenance=MaintenancePolicy(default, policies)).definitions()


def refused(folder: Path, **tables: TablePolicy) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        made(folder, **tables)
    return caught.value


def test_a_table_that_the_project_does_not_have_is_refused_with_those_it_may_mean(
    tmp_path: Path,
) -> None:
    error = refused(tmp_path, ods__order=NOTHING)
    assert str(error) == (
        "The maintenance policy names the table ods.order, which the project does not have. "
        "Did you mean ods.orders?"
    )
    assert error.field == ("maintenance", "tables", "ods.order")
    said = str(refused(tmp_path, nosuch__thing=NOTHING))
    assert "Tables of the project: dwd.days, ods.idle, ods.orders." in said


def test_what_fits_no_maintained_table_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tables = {"ods.*": NOTHING, "zzz.*": NOTHING, "ods.idle": NOTHING, "ods.orders": NOTHING}
    with caplog.at_level(logging.WARNING, "lakehouse_dagster"):
        made(tmp_path, **tables)
    assert [said for said in caplog.messages if said.startswith("maintenance")] == [
        "maintenance.tables: 'zzz.*' fits no table that jobs write or read.",
        "maintenance.tables: no job writes or reads ods.idle, so nothing is done to it.",
    ]


def test_a_table_that_may_yet_be_found_in_the_catalog_is_no_mistake(tmp_path: Path) -> None:
    policy = MaintenancePolicy(tables={"raw.events": NOTHING})
    assert load(tmp_path, SCRIPTS, maintenance=policy, discover=("raw.*",)).definitions()


@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        ("dwd__days", "day", "which has no partition column day. Its partition columns are dt."),
        ("ods__orders", None, "which has no partitions. Leave it out."),
    ],
)
def test_partitions_that_a_table_does_not_have_cannot_expire(
    tmp_path: Path, name: str, column: str | None, said: str
) -> None:
    policy = TablePolicy(partitions=PartitionExpirySpec("9d", column=column))
    error = refused(tmp_path, **{name: policy})
    assert said in str(error)
    assert error.field[-1] == "partitions"
    made(tmp_path, policy, **{name: policy})  # as the default says, for whatever has partitions


def test_a_project_file_names_the_line() -> None:
    text = WRITTEN + "  maintenance:\n    tables:\n      demo.nobody: {compaction: off}\n"
    error, path = refusal(text)
    assert str(error).startswith(
        f"{path}:{line_of(text, 'demo.nobody')}: attributes.maintenance.tables.demo.nobody: "
    )
