"""Tables of the catalog that no script names: found by command, kept, shown without a network."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

from lakehouse_dagster import LoadedLakehouse, PaimonCatalog
from lakehouse_dagster.errors import CatalogError, ConfigurationError
from lakehouse_dagster.streaming import discovery
from lakehouse_dagster.streaming.discovery import Discovered
from tests.paimon.writing import Writer
from tests.streaming.making import job, load, source, table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("dt", pa.string())])
SCRIPTS = {"s": table("ods.a") + source("x") + job("j", "ods.a", "x")}


def make(warehouse: Path, name: str, **options: str) -> Writer:
    return Writer(
        warehouse,
        name,
        COLUMNS,
        primary_keys=("id", "dt"),
        partition_keys=("dt",),
        options={"bucket": "1", **options},
        comment="By hand. @owner(team:old)",
    )


def lakehouse(folder: Path, *patterns: str) -> LoadedLakehouse:
    return load(folder, SCRIPTS, discover=patterns or ("*",))


def test_a_table_of_the_catalog_is_shown_once_it_was_discovered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "warehouse", "old.history")
    with caplog.at_level(logging.WARNING):
        assert set(lakehouse(tmp_path).graph.tables) == {"ods.a"}
    assert "lakehouse discover" in caplog.text
    found = lakehouse(tmp_path).discover()
    assert list(found.tables) == ["old.history"]
    shutil.rmtree(tmp_path / "warehouse")  # loading looks into the file alone
    lake = lakehouse(tmp_path)
    dg.Definitions.validate_loadable(lake.definitions())
    spec = lake.graph.tables["old.history"]
    assert (spec.key.path, spec.group_name, spec.kinds) == (["old", "history"], "old", {"paimon"})
    assert [*spec.owners] == ["team:old"]
    assert spec.description == ("By hand.\n\nIn the catalog, but in none of the project's scripts.")
    assert [
        (column.name, column.type, column.constraints.nullable)
        for column in spec.metadata["dagster/column_schema"].columns
    ] == [("id", "BIGINT", False), ("dt", "STRING", False)]
    assert spec.metadata["primary_key"] == "id, dt"
    assert spec.metadata["partition_keys"] == "dt"
    assert spec.metadata["dagster/table_name"] == "lake.old.history"


def test_only_tables_that_are_wanted_are_kept_and_shown(tmp_path: Path) -> None:
    for name in ("old.a", "old.b", "new.a"):
        make(tmp_path / "warehouse", name)
    assert list(lakehouse(tmp_path, "old.*").discover().tables) == ["old.a", "old.b"]
    assert set(lakehouse(tmp_path, "old.a").graph.tables) == {"ods.a", "old.a"}


def test_what_a_script_says_of_a_table_wins_over_the_catalog(tmp_path: Path) -> None:
    make(tmp_path / "warehouse", "ods.a")
    assert list(lakehouse(tmp_path).discover().tables) == ["ods.a"]
    columns = lakehouse(tmp_path).graph.tables["ods.a"].metadata["dagster/column_schema"].columns
    assert [column.name for column in columns] == ["id", "v"]


def test_secrets_in_options_are_not_in_the_file(tmp_path: Path) -> None:
    make(tmp_path / "warehouse", "old.a", **{"s3.secret-key": "hush", "k": "jdbc://ann:hush@db"})
    lakehouse(tmp_path).discover()
    text = (tmp_path / "catalog_tables.json").read_text()
    assert "hush" not in text
    assert json.loads(text)["tables"]["old.a"]["options"]["s3.secret-key"] == "****"


def test_a_catalog_that_cannot_be_reached_leaves_what_was_found(tmp_path: Path) -> None:
    make(tmp_path / "warehouse", "old.a")
    lakehouse(tmp_path).discover()
    before = (tmp_path / "catalog_tables.json").read_bytes()
    shutil.rmtree(tmp_path / "warehouse")
    with pytest.raises(CatalogError, match="warehouse"):
        lakehouse(tmp_path).discover()
    assert (tmp_path / "catalog_tables.json").read_bytes() == before
    assert [path.name for path in tmp_path.glob(".catalog*")] == []
    assert set(lakehouse(tmp_path).graph.tables) == {"ods.a", "old.a"}


def test_a_table_that_cannot_be_read_keeps_what_was_known_of_it(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    damaged = make(warehouse, "old.a")
    make(warehouse, "old.b")
    lakehouse(tmp_path).discover()
    (damaged.folder / "schema" / "schema-0").write_text("{")
    make(warehouse, "old.c")
    found = lakehouse(tmp_path).discover()
    assert list(found.tables) == ["old.a", "old.b", "old.c"]
    assert list(found.problems) == ["old.a"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 9}', '{"format": 1}', "\0"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, content: str) -> None:
    (tmp_path / "catalog_tables.json").write_text(content)
    with pytest.raises(ConfigurationError, match=r"catalog_tables.json.*lakehouse discover"):
        _ = lakehouse(tmp_path).graph


def test_who_wants_nothing_found_is_told_where_to_say_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not say which tables"):
        load(tmp_path, SCRIPTS).discover()
    catalog = PaimonCatalog(warehouse=str(tmp_path / "nowhere"))
    assert discovery.discover(catalog, ()).tables == {}  # the catalog is not even asked


def test_a_discovery_is_read_as_it_was_written(tmp_path: Path) -> None:
    make(tmp_path / "warehouse", "old.a")
    found: Discovered = lakehouse(tmp_path).discover()
    assert discovery.read(tmp_path / "catalog_tables.json") == found
