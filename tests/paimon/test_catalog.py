from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse_dagster.errors import CatalogError, ConfigurationError
from lakehouse_dagster.paimon import PaimonCatalog

SECRETS = {"s3.access-key": "AKIA1", "fs.s3.accessKeySecret": "hush", "s3.endpoint": "http://s3"}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("/data/lake", "file:///data/lake"),
        ("/data/lake/", "file:///data/lake"),
        ("file:/data/lake", "file:///data/lake"),
        ("file:///data/lake", "file:///data/lake"),
        ("file://localhost/data/lake", "file:///data/lake"),
        ("/data/my lake/süd#1?100%25", "file:///data/my lake/süd#1?100%25"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
    ],
)
def test_a_warehouse_becomes_an_absolute_uri(written: str, kept: str) -> None:
    assert PaimonCatalog(written).warehouse == kept
    assert PaimonCatalog(PaimonCatalog(written).warehouse).warehouse == kept


def test_a_relative_warehouse_is_fixed_where_it_was_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = PaimonCatalog("lake")
    monkeypatch.chdir("/")
    assert catalog.flink_options()["warehouse"] == f"file://{tmp_path}/lake"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"warehouse": " "}, "warehouse of the Paimon catalog is empty"),
        ({"warehouse": "file://host/lake"}, "is not an absolute local path"),
        ({"warehouse": "file:lake"}, "is not an absolute local path"),
        ({"warehouse": "/lake", "name": ""}, "needs a name"),
        (
            {"warehouse": "/lake", "metastore": "glue"},
            "unknown metastore .glue.*rest, hive",
        ),
        ({"warehouse": "/lake", "options": {"warehouse": "/b"}}, "repeat warehouse"),
    ],
)
def test_a_catalog_that_cannot_work_is_refused_when_declared(
    arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PaimonCatalog(**arguments)  # type: ignore[arg-type]


def test_flink_and_pypaimon_get_all_options_each_in_its_way() -> None:
    catalog = PaimonCatalog("/data/my lake", options={"s3.path-style-access": "true"})
    assert catalog.flink_options() == {
        "type": "paimon",
        "metastore": "filesystem",
        "warehouse": "file:///data/my lake",
        "s3.path-style-access": "true",
    }
    assert catalog.pypaimon_options() == {
        "metastore": "filesystem",
        "warehouse": "/data/my lake",
        "s3.path-style-access": "true",
    }


def test_secrets_reach_the_engines_and_nobody_else() -> None:
    catalog = PaimonCatalog("s3://bucket/lake", options=SECRETS)
    assert catalog.flink_options()["fs.s3.accessKeySecret"] == "hush"
    assert catalog.masked_options() == {
        "type": "paimon",
        "metastore": "filesystem",
        "warehouse": "s3://bucket/lake",
        "s3.access-key": "****",
        "fs.s3.accessKeySecret": "****",
        "s3.endpoint": "http://s3",
    }
    assert "hush" not in repr(catalog)
    assert "AKIA1" not in repr(catalog)
    assert "http://s3" in repr(catalog)


def test_an_error_of_the_file_system_does_not_show_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("bad credentials: AKIA1 hush")

    monkeypatch.setattr("pypaimon.common.file_io.FileIO.get", refuse)
    with pytest.raises(CatalogError) as caught:
        PaimonCatalog("gs://bucket/lake", options=SECRETS).open().tables()
    assert str(caught.value) == (
        "Could not open the warehouse gs://bucket/lake: ValueError: bad credentials: **** ****"
    )
    assert caught.value.__suppress_context__


def test_options_cannot_be_changed_behind_a_catalogs_back() -> None:
    options = {"a": "1"}
    catalog = PaimonCatalog("/lake", options=options)
    options["a"] = "2"
    assert catalog.options == {"a": "1"}
    assert catalog == PaimonCatalog("/lake", options={"a": "1"})
    assert hash(catalog) == hash(PaimonCatalog("/lake", options={"a": "1"}))


def test_declaring_a_catalog_imports_neither_pypaimon_nor_pyarrow() -> None:
    program = (
        "import sys; from lakehouse_dagster import paimon; "
        "from lakehouse_dagster.paimon import CatalogReader, PaimonCatalog, Snapshot; "
        "PaimonCatalog('/lake').flink_options(); assert 'TableReader' in dir(paimon); "
        "print([name for name in ('pypaimon', 'pyarrow', 'fastavro') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"
