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


JDBC = "jdbc:postgresql://db:5432/paimon"
LOGIN = {"jdbc.user": "flink", "jdbc.password": "hush"}
BEAR = {"token.provider": "bear", "token": "hush"}


@pytest.mark.parametrize(
    ("metastore", "uri", "options", "message", "remedy"),
    [
        ("filesystem", JDBC, {}, "has a uri, but the metastore filesystem", "metastore: jdbc"),
        ("jdbc", None, LOGIN, "no uri that starts with jdbc:", "uri: jdbc:postgresql://"),
        ("jdbc", "postgresql://db/x", {}, "no uri that starts with jdbc:", "uri: jdbc:"),
        ("jdbc", f"{JDBC}?user=a&password=hush", {}, "holds a password", "jdbc.password"),
        ("jdbc", "jdbc:postgresql://a:hush@db/x", {}, "holds a password", "jdbc.password"),
        ("jdbc", " ", {}, "uri of the Paimon catalog lake is empty", "Fill it in"),
        ("hive", None, {}, "metastore hive, but no uri", "uri: thrift://host:9083"),
        ("hive", "http://hive", {}, "does not start with thrift://", "uri: thrift://"),
        ("rest", None, BEAR, "no uri of its server", "uri: https://"),
        ("rest", "http://rest", {}, "token.provider is missing", "token.provider: bear"),
        ("rest", "http://rest", {"token": "hush"}, "token.provider is missing", "bear"),
        ("rest", "http://rest", {"token.provider": "own"}, "neither bear nor dlf", "dlf.region"),
        ("rest", "http://rest", {"token.provider": "bear"}, "but no token", "option token"),
        ("rest", "http://rest", {**BEAR, "lock.enabled": "true"}, "lock.enabled", "Take it out"),
        ("jdbc", JDBC, {"uri": "jdbc:x"}, "repeat uri", "places of their own"),
    ],
)
def test_a_metastore_that_cannot_work_is_refused_with_what_to_write(
    metastore: str, uri: str | None, options: dict[str, str], message: str, remedy: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        PaimonCatalog("/lake", metastore=metastore, uri=uri, options=options)
    assert message in refused.value.message
    assert remedy in (refused.value.remedy or "")
    assert "hush" not in str(refused.value)


def test_a_password_in_the_warehouse_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError, match="holds a password") as refused:
        PaimonCatalog("oss://key:hush@bucket/lake")
    assert "hush" not in str(refused.value)


def test_each_metastore_is_told_to_flink_and_to_pypaimon() -> None:
    jdbc = PaimonCatalog("s3://b/lake", metastore="jdbc", uri=JDBC, options=LOGIN)
    assert jdbc.flink_options() == {
        "type": "paimon",
        "metastore": "jdbc",
        "uri": JDBC,
        "warehouse": "s3://b/lake",
        **LOGIN,
    }
    assert jdbc.pypaimon_options() == {
        "metastore": "jdbc",
        "uri": JDBC,
        "warehouse": "s3://b/lake",
        "jdbc.connect_timeout": "10",
        **LOGIN,
    }
    hive = PaimonCatalog("/lake", metastore="hive", uri="thrift://hive:9083")
    assert hive.flink_options()["uri"] == "thrift://hive:9083"
    assert hive.pypaimon_options() == {"metastore": "filesystem", "warehouse": "/lake"}
    rest = PaimonCatalog("lake_of_rest", metastore="rest", uri="http://rest", options=BEAR)
    assert rest.flink_options()["warehouse"] == "lake_of_rest"
    assert rest.pypaimon_options() == {
        "metastore": "rest",
        "uri": "http://rest",
        "warehouse": "lake_of_rest",
        **BEAR,
    }
    assert "hush" not in f"{jdbc!r} {rest!r}"
    assert f"uri={JDBC!r}" in repr(jdbc)


@pytest.mark.parametrize(
    ("warehouse", "options"),
    [
        ("oss://bucket/lake", {"fs.oss.endpoint": "e", "fs.oss.accessKeySecret": "hush"}),
        ("cosn://bucket/lake", {"fs.cosn.userinfo.secretKey": "hush"}),
        ("hdfs://name:8020/lake", {"hadoop.dfs.client.use.datanode.hostname": "true"}),
    ],
)
def test_options_of_other_file_systems_are_passed_to_flink_as_they_are(
    warehouse: str, options: dict[str, str]
) -> None:
    catalog = PaimonCatalog(warehouse, options=options)
    assert catalog.flink_options() == {
        "type": "paimon",
        "metastore": "filesystem",
        "warehouse": warehouse,
        **options,
    }
    assert catalog.pypaimon_options().items() >= options.items()
    assert "hush" not in repr(catalog)


def test_a_file_system_that_python_cannot_read_is_told_where_it_is_read() -> None:
    table = PaimonCatalog("cosn://bucket/lake").open().table("ods.orders")
    with pytest.raises(CatalogError, match="Files at cosn:// cannot be read") as told:
        table.latest_snapshot_id()
    assert "Jobs are started and looked after all the same" in (told.value.remedy or "")
    assert "oss://" in told.value.message


def test_hdfs_without_its_libraries_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    # As if not installed, also where it is.
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    reader = PaimonCatalog("hdfs://name:8020/lake").open()
    with pytest.raises(CatalogError, match="HDFS cannot be read here") as told:
        reader.tables()
    assert "pypaimon[hdfs]" in (told.value.remedy or "")


def test_equal_catalogs_share_a_reader() -> None:
    one, two = (PaimonCatalog("/lake", options={"a": v}) for v in ("1", "2"))
    assert one.open() is PaimonCatalog("/lake", options={"a": "1"}).open()
    assert one.open() is not two.open()


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
    shown = {"s3.access-key": "****", "fs.s3.accessKeySecret": "****", "s3.endpoint": "http://s3"}
    assert repr(catalog).endswith(f"options={shown!r})")


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
