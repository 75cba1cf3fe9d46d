"""Tables for the tests of lineage: as Flink declares them, and as a lookup knows them."""

from __future__ import annotations

from sqlglot import exp, parse_one

from lakehouse_dagster.sql.dialect import Flink
from lakehouse_dagster.sql.lineage import RelationColumns
from lakehouse_dagster.sql.model import ColumnLineage, ColumnOrigin, TableName

DECLARATIONS = (
    """CREATE TEMPORARY TABLE orders (
      id BIGINT, uid BIGINT, price DOUBLE, name STRING, tags ARRAY<STRING>,
      attributes MAP<STRING, STRING>,
      address ROW<city STRING, zip INT, place ROW<lat DOUBLE, lon DOUBLE>>,
      `lines` ARRAY<ROW<sku STRING, quantity INT>>,
      ts TIMESTAMP(3), total AS price * 2, proc AS PROCTIME(),
      WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY TABLE clicks (
      id BIGINT, uid BIGINT, url STRING, score INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY TABLE users (
      uid BIGINT, city STRING, age INT, level INT
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY TABLE rates (
      currency STRING, rate DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts,
      PRIMARY KEY (currency) NOT ENFORCED
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY TABLE payments (
      pid BIGINT, order_id BIGINT, amount DOUBLE, way STRING, paid TIMESTAMP(3),
      WATERMARK FOR paid AS paid
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY VIEW grown_ups AS SELECT uid AS user_id, city FROM users WHERE age > 17""",
)

AGENTS = """CREATE TABLE IF NOT EXISTS {catalog}.`default`.agents (
  agent_id BIGINT, team STRING, `floor` INT, PRIMARY KEY (agent_id) NOT ENFORCED
) WITH ('bucket' = '1')"""


def _themselves(names: str) -> dict[str, tuple[str, ...]]:
    return {name: (name,) for name in names.split()}


COLUMNS: dict[str, dict[str, tuple[str, ...]]] = {
    "orders": {
        **_themselves("id uid price name tags attributes address lines ts"),
        "total": ("price",),
        "proc": (),
    },
    "clicks": _themselves("id uid url score ts"),
    "users": _themselves("uid city age level"),
    "rates": _themselves("currency rate ts"),
    "payments": _themselves("pid order_id amount way paid"),
    "agents": _themselves("agent_id team floor"),
}
"""Every table's columns, each with the columns that it is made from."""

FIELDS = tuple((field, "address") for field in ("city", "zip", "place", "lat", "lon"))
"""What Flink also finds in ``orders`` by its own name."""


def table(name: str) -> TableName:
    """A table of the samples."""
    return TableName("lake", "app", name)


def origin(text: str) -> ColumnOrigin:
    """``orders.id`` as an origin."""
    name, column = text.split(".")
    return ColumnOrigin(table(name), None, column)


def lookup(parts: tuple[str, ...]) -> RelationColumns:
    """Of the tables above; ``opaque…`` are tables whose columns nobody knows."""
    name = parts[-1]
    if name == "grown_ups":
        columns = (
            ColumnLineage("user_id", (origin("users.uid"),)),
            ColumnLineage("city", (origin("users.city"),)),
        )
        return RelationColumns(columns, (origin("users.age"),))
    if name in COLUMNS:
        known = tuple(
            ColumnLineage(column, tuple(origin(f"{name}.{o}") for o in made_from))
            for column, made_from in COLUMNS[name].items()
        )
        fields = FIELDS if name == "orders" else ()
        return RelationColumns(known, (), (table(name), None), fields)
    if name.startswith("opaque"):
        return RelationColumns(None, (), (table(name), None))
    return RelationColumns(None)


def parsed(sql: str) -> exp.Expr:
    """The tree that the dialect gives."""
    return parse_one(sql, dialect=Flink)
