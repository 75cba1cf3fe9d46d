"""The same thing outside the lake has the same key, whatever a script calls it."""

from __future__ import annotations

import pytest

from lakehouse_dagster.sql.sources import catalog_kind, mask_secrets, source_key


def key(options: str) -> tuple[str, ...]:
    """The key of a table ``src`` with options written as ``a=b, c=d``."""
    pairs = dict(pair.split("=", 1) for pair in options.split(", "))
    return source_key(pairs.get("connector") or pairs["connector.type"], "src", pairs)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("connector=kafka, topic=a.b-c_d", ("kafka", "a.b-c_d")),
        ("connector=upsert-kafka, topic=orders", ("kafka", "orders")),
        ("connector.type=kafka, connector.topic=orders", ("kafka", "orders")),
        ("connector=pulsar, topics=persistent://public/default/orders",
         ("pulsar", "public", "default", "orders")),
        ("connector=pulsar, topics=orders", ("pulsar", "public", "default", "orders")),
        ("connector=mysql-cdc, hostname=h, database-name=shop, table-name=orders",
         ("mysql", "shop", "orders")),
        ("connector=jdbc, url=jdbc:mysql://u:hush@h:3306/shop?x=y, table-name=orders",
         ("mysql", "shop", "orders")),
        ("connector=jdbc, url=jdbc:mysql://h/other, table-name=shop.orders",
         ("mysql", "shop", "orders")),
        ("connector=postgres-cdc, database-name=d, schema-name=s, table-name=t",
         ("postgres", "d", "s", "t")),
        ("connector=jdbc, url=jdbc:postgresql://h/d, table-name=s.t", ("postgres", "d", "s", "t")),
        ("connector=jdbc, url=jdbc:postgresql://h/d, table-name=t",
         ("postgres", "d", "public", "t")),
        ("connector=sqlserver-cdc, database-name=d, table-name=dbo.t",
         ("sqlserver", "d", "dbo", "t")),
        ("connector=jdbc, url=jdbc:sqlserver://h:1433;databaseName=d, table-name=t",
         ("sqlserver", "d", "dbo", "t")),
        ("connector=oracle-cdc, database-name=XE, schema-name=S, table-name=T",
         ("oracle", "XE", "S", "T")),
        ("connector=jdbc, url=jdbc:oracle:thin:u/hush@h:1521:XE, table-name=S.T",
         ("oracle", "XE", "S", "T")),
        ("connector=mongodb-cdc, database=d, collection=c", ("mongodb", "d", "c")),
        ("connector=mongodb, uri=mongodb://u:hush@h, database=d, collection=c",
         ("mongodb", "d", "c")),
        ("connector=tidb-cdc, database-name=d, table-name=t", ("tidb", "d", "t")),
        ("connector=ob-cdc, database-name=d, table-name=t", ("oceanbase", "d", "t")),
        ("connector=oceanbase-cdc, database-name=d, table-name=t", ("oceanbase", "d", "t")),
        ("connector=filesystem, path=s3://key:hush@bucket/orders", ("filesystem", "bucket",
                                                                    "orders")),
        ("connector=filesystem, path=file:///data/in/orders/", ("filesystem", "in", "orders")),
        ("connector=paimon, path=/warehouse/ods.db/orders", ("paimon", "ods", "orders")),
        ("connector=hudi, path=hdfs://nn/lake/ods.db/orders", ("hudi", "ods", "orders")),
        ("connector=iceberg, catalog-name=c, catalog-database=d, catalog-table=t",
         ("iceberg", "d", "t")),
        ("connector=doris, fenodes=h:8030, table.identifier=d.t", ("doris", "d", "t")),
        ("connector=starrocks, database-name=d, table-name=t", ("starrocks", "d", "t")),
        ("connector=clickhouse, url=clickhouse://h:8123, table-name=t",
         ("clickhouse", "default", "t")),
        ("connector=elasticsearch-7, index=logs", ("elasticsearch", "logs")),
        ("connector=elasticsearch-6, index=logs", ("elasticsearch", "logs")),
        ("connector=opensearch, index=logs", ("opensearch", "logs")),
        ("connector=hbase-2.2, table-name=ns:t", ("hbase", "ns", "t")),
        ("connector=hbase-1.4, table-name=t", ("hbase", "default", "t")),
        ("connector=kinesis, stream=s", ("kinesis", "s")),
        ("connector=kinesis, stream.arn=arn:aws:kinesis:eu-west-1:123:stream/s", ("kinesis", "s")),
        ("connector=rabbitmq, queue-name=q", ("rabbitmq", "q")),
        ("connector=rocketmq, topic=t, nameServerAddress=h", ("rocketmq", "t")),
        ("connector=sls, project=p, logStore=l", ("sls", "p", "l")),
        ("connector=datahub, project=p, topic=t", ("datahub", "p", "t")),
        ("connector=odps, project=p, tableName=t", ("odps", "p", "t")),
        ("connector=redis, host=h", ("redis", "src")),
        ("connector=datagen", ("datagen", "src")),
        ("connector=faker", ("faker", "src")),
        ("connector=print", ("print", "src")),
        ("connector=blackhole", ("blackhole", "src")),
        ("connector=my/strange connector", ("my_strange_connector", "src")),
        ("connector=kafka, topic-pattern=a.*", ("kafka", "src")),
        ("connector=kafka, topic=${TOPIC}", ("kafka", "src")),
        ("connector=kafka, topic={{ topic }}", ("kafka", "src")),
        ("connector=kafka, topic=%s", ("kafka", "src")),
        ("connector=filesystem, path=s3://bucket/${DAY}/orders", ("filesystem", "orders")),
    ],
)  # fmt: skip
def test_keys_come_from_options(options: str, wanted: tuple[str, ...]) -> None:
    assert key(options) == wanted


def test_a_jdbc_catalog_shows_what_is_behind_it() -> None:
    assert catalog_kind({"type": "jdbc", "base-url": "jdbc:mysql://h:3306/"}) == "mysql"
    assert catalog_kind({"type": "hive"}) == "hive"
    assert catalog_kind({}) == "unknown"


def test_secrets_in_options_are_masked_by_key_and_in_addresses() -> None:
    options = {
        "x.password": "a",
        "url": "mongodb://u:b@h/d?password=c",
        "store": "jdbc:mysql://h/d?trustCertificateKeyStorePassword=c&passwordCharacterEncoding=u",
        "topic": "t",
    }
    assert mask_secrets(options) == {
        "x.password": "****",
        "url": "mongodb://****@h/d?****",
        "store": "jdbc:mysql://h/d?****&passwordCharacterEncoding=u",
        "topic": "t",
    }
