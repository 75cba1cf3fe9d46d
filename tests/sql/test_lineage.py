"""What queries are made from, told without Flink; ``test_lineage_flink`` asks Flink itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from sqlglot import exp

from lakehouse_dagster.sql.columns import row_fields
from lakehouse_dagster.sql.lineage import (
    QueryLineage,
    RelationColumns,
    insert_lineage,
    query_lineage,
    referenced_columns,
)
from lakehouse_dagster.sql.model import Certainty, Column, ColumnLineage, ColumnOrigin
from tests.sql.lineage_queries import queries
from tests.sql.lineage_samples import lookup, parsed

_MARKS = {Certainty.EXACT: "", Certainty.AT_MOST: " at most", Certainty.UNKNOWN: " ?"}


def told(origins: tuple[ColumnOrigin, ...]) -> str:
    return " ".join(
        sorted(f"{o.table.table if o.table else o.relation}.{o.column}" for o in origins)
    )


def columns(lineage: tuple[ColumnLineage, ...] | None) -> dict[str, str] | None:
    if lineage is None:
        return None
    return {c.column: told(c.origins) + _MARKS[c.certainty] for c in lineage}


def of(sql: str) -> tuple[dict[str, str] | None, str]:
    found = query_lineage(parsed(sql), lookup)
    return columns(found.columns), told(found.row_filters)


WINDOW = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
NEWEST = "ROW_NUMBER() OVER (PARTITION BY uid ORDER BY ts DESC) AS rn"

QUERIES: dict[str, tuple[str, dict[str, str] | None, str]] = {
    # name: query, what its columns are made from, what filters its rows
    "expressions": (
        "SELECT id + uid AS a, COALESCE(name, 'x') AS b, CASE WHEN price > 1 THEN id END AS c, "
        "TIMESTAMPDIFF(DAY, ts, ts) AS d, 'k' AS e, my_function(id, name) AS f FROM orders",
        {
            "a": "orders.id orders.uid",
            "b": "orders.name",
            "c": "orders.id orders.price",
            "d": "orders.ts",
            "e": "",
            "f": "orders.id orders.name",
        },
        "",
    ),
    "functions with clauses": (
        "SELECT SUBSTRING(name FROM 2 FOR uid) AS a, JSON_OBJECT(KEY 'k' VALUE o.id, KEY 'l' "
        "VALUE UPPER(o.`name`) NULL ON NULL) AS b, JSON_VALUE(name, '$.a' RETURNING INT "
        "DEFAULT price ON EMPTY) AS c, JSON_ARRAY(id, uid ABSENT ON NULL) AS d FROM orders AS o",
        {
            "a": "orders.name orders.uid",
            "b": "orders.id orders.name",
            "c": "orders.name orders.price",
            "d": "orders.id orders.uid",
        },
        "",
    ),
    "names of columns": (
        "SELECT id, orders.uid, address.city, `lines`[1].sku, id + 1 FROM orders",
        {
            "id": "orders.id",
            "uid": "orders.uid",
            "city": "orders.address",
            "EXPR$3": "orders.lines",
            "EXPR$4": "orders.id",
        },
        "",
    ),
    "a field is told as its column": (
        "SELECT o.address.place.lat AS a, address.zip AS b, attributes['k'] AS c, o.address AS d "
        "FROM orders AS o",
        {
            "a": "orders.address",
            "b": "orders.address",
            "c": "orders.attributes",
            "d": "orders.address",
        },
        "",
    ),
    "a relation's name comes before a column's": (
        "SELECT address.city FROM users AS address, orders",
        {"city": "users.city"},
        "",
    ),
    "fields are found by their own name": (
        "SELECT zip, o.lat, t.city AS c FROM orders AS o, (SELECT * FROM orders) AS t "
        "WHERE EXISTS (SELECT 1 FROM orders WHERE city = 'x') AND t.id = 1",
        {"zip": " ?", "lat": "orders.address", "c": "orders.address"},
        "orders.address orders.id",
    ),
    "an inner field hides an outer column": (
        "SELECT uid FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE city = 'x')",
        {"uid": "users.uid"},
        "orders.address",
    ),
    "names with database and catalog": (
        "SELECT app.users.city AS a, lake.app.users.age AS b FROM lake.app.users",
        {"a": "users.city", "b": "users.age"},
        "",
    ),
    "names are case sensitive": ("SELECT UID FROM users", {"UID": " ?"}, ""),
    "functions of no column": (
        "SELECT PROCTIME() AS a, NOW() AS b, CURRENT_TIMESTAMP AS c, LOCALTIMESTAMP AS d, "
        "`$rowtime` AS e, proc AS f FROM orders",
        dict.fromkeys("abcdef", ""),
        "",
    ),
    "computed columns": ("SELECT total FROM orders", {"total": "orders.price"}, ""),
    "where": (
        "SELECT id FROM orders WHERE price > 1 AND name LIKE 'a%'",
        {"id": "orders.id"},
        "orders.name orders.price",
    ),
    "outer joins filter, too": (
        "SELECT o.id, u.city FROM orders o LEFT JOIN users u ON o.uid = u.uid AND u.age > 3",
        {"id": "orders.id", "city": "users.city"},
        "orders.uid users.age users.uid",
    ),
    "comma join": (
        "SELECT url, city FROM clicks, users WHERE clicks.uid = users.uid",
        {"url": "clicks.url", "city": "users.city"},
        "clicks.uid users.uid",
    ),
    "join using": (
        "SELECT * FROM users JOIN grown_ups AS g USING (city)",
        {
            "city": "users.city",
            "uid": "users.uid",
            "age": "users.age",
            "level": "users.level",
            "user_id": "users.uid",
        },
        "users.age users.city",
    ),
    "a column that USING merges": (
        "SELECT uid, clicks.uid AS mine FROM clicks LEFT JOIN users USING (uid)",
        {"uid": "clicks.uid users.uid", "mine": "clicks.uid"},
        "clicks.uid users.uid",
    ),
    "natural join": (
        "SELECT * FROM grown_ups NATURAL JOIN users",
        {
            "city": "users.city",
            "user_id": "users.uid",
            "uid": "users.uid",
            "age": "users.age",
            "level": "users.level",
        },
        "users.age users.city",
    ),
    "join in brackets": (
        "SELECT a.url, c.city FROM (clicks a JOIN users b ON a.uid = b.uid) "
        "JOIN users c ON c.level = b.level",
        {"url": "clicks.url", "city": "users.city"},
        "clicks.uid users.level users.uid",
    ),
    "joins in brackets in brackets": (
        "SELECT a.id, c.city, d.level FROM ((clicks a JOIN payments b ON a.id = b.pid) "
        "JOIN users c USING (uid)) CROSS JOIN (((SELECT level FROM users))) AS d",
        {"id": "clicks.id", "city": "users.city", "level": "users.level"},
        "clicks.id clicks.uid payments.pid users.uid",
    ),
    "in, and a filter inside": (
        "SELECT id FROM orders WHERE uid NOT IN (SELECT uid FROM users WHERE age > 3)",
        {"id": "orders.id"},
        "orders.uid users.age users.uid",
    ),
    "exists does not read what it selects": (
        "SELECT id FROM orders o WHERE EXISTS (SELECT city FROM users u WHERE u.uid = o.uid)",
        {"id": "orders.id"},
        "orders.uid users.uid",
    ),
    "scalar subquery": (
        "SELECT id, (SELECT MAX(age) FROM users u WHERE u.level = o.uid) AS a FROM orders o",
        {"id": "orders.id", "a": "users.age"},
        "orders.uid users.level",
    ),
    "an inner name hides an outer one": (
        "SELECT id FROM orders AS t WHERE EXISTS (SELECT 1 FROM users AS t WHERE t.uid = 1)",
        {"id": "orders.id"},
        "users.uid",
    ),
    "aggregates": (
        "SELECT uid, COUNT(*) AS n, SUM(price) FILTER (WHERE name <> 'x') AS s, "
        "COUNT(DISTINCT id) AS d FROM orders GROUP BY uid HAVING MAX(ts) > MIN(ts)",
        {
            "uid": "orders.uid",
            "n": "",
            "s": "orders.name orders.price",
            "d": "orders.id",
        },
        "orders.ts",
    ),
    "grouping sets": (
        "SELECT uid, name, GROUPING(uid) AS g FROM orders GROUP BY GROUPING SETS ((uid), (name))",
        {"uid": "orders.uid", "name": "orders.name", "g": ""},
        "",
    ),
    "distinct filters nothing": ("SELECT DISTINCT uid FROM orders", {"uid": "orders.uid"}, ""),
    "over, written out and by name": (
        "SELECT SUM(price) OVER (PARTITION BY uid ORDER BY ts) AS s, COUNT(*) OVER w AS n, "
        "RANK() OVER (v ORDER BY id) AS r FROM orders "
        "WINDOW w AS (PARTITION BY uid ORDER BY ts), v AS (PARTITION BY name)",
        {"s": "orders.price", "n": "orders.ts orders.uid", "r": "orders.id orders.name"},
        "",
    ),
    "deduplication": (
        f"SELECT id, url FROM (SELECT *, {NEWEST} FROM clicks WHERE score > 0) WHERE rn = 1",
        {"id": "clicks.id", "url": "clicks.url"},
        "clicks.score clicks.ts clicks.uid",
    ),
    "top-N with its rank": (
        f"SELECT id, rn FROM (SELECT id, {NEWEST} FROM clicks) AS t WHERE rn <= 3",
        {"id": "clicks.id", "rn": "clicks.ts clicks.uid"},
        "clicks.ts clicks.uid",
    ),
    "order and limit": (
        "SELECT id AS name, uid FROM orders ORDER BY name, 2, price DESC LIMIT 3",
        {"name": "orders.id", "uid": "orders.uid"},
        "orders.id orders.price orders.uid",
    ),
    "order without limit": ("SELECT id FROM orders ORDER BY ts", {"id": "orders.id"}, ""),
    "window function in FROM": (
        f"SELECT w.uid, window_start, window_end, window_time, COUNT(*) AS n FROM {WINDOW} AS w "
        "GROUP BY w.uid, window_start, window_end, window_time",
        {
            "uid": "clicks.uid",
            "window_start": "clicks.ts",
            "window_end": "clicks.ts",
            "window_time": "clicks.ts",
            "n": "",
        },
        "",
    ),
    "window function with named arguments": (
        "SELECT url, window_end AS e FROM TABLE(HOP(DATA => TABLE clicks, TIMECOL => "
        "DESCRIPTOR(ts), SLIDE => INTERVAL '1' MINUTE, SIZE => INTERVAL '5' MINUTE))",
        {"url": "clicks.url", "e": "clicks.ts"},
        "",
    ),
    "session window": (
        "SELECT uid, window_start AS s FROM TABLE(SESSION(TABLE clicks PARTITION BY uid, "
        "DESCRIPTOR(ts), INTERVAL '5' MINUTE))",
        {"uid": "clicks.uid", "s": "clicks.ts"},
        "",
    ),
    "windows in GROUP BY": (
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS s, SUM(price) AS p FROM orders "
        "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        {"s": "orders.ts", "p": "orders.price"},
        "",
    ),
    "lookup join": (
        "SELECT o.id, a.team FROM orders o LEFT JOIN agents FOR SYSTEM_TIME AS OF o.proc AS a "
        "ON o.uid = a.agent_id",
        {"id": "orders.id", "team": "agents.team"},
        "agents.agent_id orders.uid",
    ),
    "temporal join": (
        "SELECT o.price * r.rate AS p FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r "
        "ON o.name = r.currency",
        {"p": "orders.price rates.rate"},
        "orders.name orders.ts rates.currency",
    ),
    "interval join": (
        "SELECT o.id FROM orders o, clicks c WHERE o.uid = c.uid "
        "AND o.ts BETWEEN c.ts - INTERVAL '4' HOUR AND c.ts",
        {"id": "orders.id"},
        "clicks.ts clicks.uid orders.ts orders.uid",
    ),
    "unnest": (
        "SELECT id, tag, i, k, v, sku FROM orders CROSS JOIN UNNEST(tags) WITH ORDINALITY "
        "AS t (tag, i), UNNEST(attributes) AS m (k, v) LEFT JOIN UNNEST(`lines`) ON TRUE",
        {
            "id": "orders.id",
            "tag": "orders.tags",
            "i": "orders.tags",
            "k": "orders.attributes",
            "v": "orders.attributes",
            "sku": "orders.lines",
        },
        "",
    ),
    "unnest without names": (
        "SELECT id, sku FROM orders CROSS JOIN UNNEST(`lines`)",
        {"id": "orders.id", "sku": "orders.lines"},
        "",
    ),
    "table function": (
        "SELECT id, a, l.b FROM orders, LATERAL TABLE(split(name, uid)) AS l (a, b)",
        {
            "id": "orders.id",
            "a": "orders.name orders.uid",
            "b": "orders.name orders.uid",
        },
        "",
    ),
    "table function without names": (
        "SELECT id, word FROM orders LEFT JOIN LATERAL TABLE(split(name)) ON TRUE",
        {"id": "orders.id", "word": "orders.name"},
        "",
    ),
    "lateral subquery": (
        "SELECT o.id, l.a FROM orders o, LATERAL (SELECT u.age + o.price FROM users u "
        "WHERE u.uid = o.uid) AS l (a)",
        {"id": "orders.id", "a": "orders.price users.age"},
        "orders.uid users.uid",
    ),
    "match_recognize": (
        "SELECT * FROM clicks MATCH_RECOGNIZE (PARTITION BY uid ORDER BY ts "
        "MEASURES LAST(B.url) AS last_url PATTERN (A B+) DEFINE B AS B.score > A.score) AS m",
        {
            "uid": "clicks.uid",
            "last_url": "clicks.id clicks.score clicks.ts clicks.uid clicks.url at most",
        },
        "clicks.score clicks.ts clicks.uid",
    ),
    "function of a table": (
        "SELECT label, f.score FROM my_function(TABLE users PARTITION BY uid, 3) AS f",
        {
            "label": "users.age users.city users.level users.uid at most",
            "score": "users.age users.city users.level users.uid at most",
        },
        "",
    ),
    "views": (
        "SELECT user_id, g.city FROM grown_ups AS g WHERE city <> 'x'",
        {"user_id": "users.uid", "city": "users.city"},
        "users.age users.city",
    ),
    "common table expressions": (
        "WITH a AS (SELECT uid, age FROM users WHERE level > 1), b (x) AS (SELECT id FROM orders) "
        "SELECT a.age, b.x FROM a, b",
        {"age": "users.age", "x": "orders.id"},
        "users.level",
    ),
    "a WITH in a WITH": (
        "WITH a AS (SELECT uid, age FROM users WHERE level > 1), "
        "b (x) AS (WITH a AS (SELECT id FROM orders) SELECT id FROM a) "
        "SELECT a.age, b.x FROM a, b",
        {"age": "users.age", "x": "orders.id"},
        "users.level",
    ),
    "a CTE that hides the table that it reads": (
        "WITH users AS (SELECT city AS uid FROM users) SELECT uid FROM users",
        {"uid": "users.city"},
        "",
    ),
    "filters of a CTE that is not used": (
        "WITH a AS (SELECT uid FROM users WHERE age > 3) SELECT id FROM orders",
        {"id": "orders.id"},
        "",
    ),
    "union by position": (
        "SELECT id AS a, uid AS b FROM orders WHERE price > 1 UNION ALL SELECT age, uid FROM users",
        {"a": "orders.id users.age", "b": "orders.uid users.uid"},
        "orders.price",
    ),
    "intersect gives the left side's rows": (
        "SELECT uid FROM orders UNION SELECT id FROM clicks INTERSECT SELECT age FROM users",
        {"uid": "clicks.id orders.uid"},
        "clicks.id users.age",
    ),
    "except": (
        "SELECT uid FROM orders EXCEPT SELECT uid FROM users WHERE age > 1",
        {"uid": "orders.uid"},
        "orders.uid users.age users.uid",
    ),
    "values": ("SELECT a, t.b FROM (VALUES (1, 'x')) AS t (a, b)", {"a": "", "b": ""}, ""),
    "renamed columns": (
        "SELECT x, t.w FROM (SELECT * FROM users) AS t (x, y, z, w)",
        {"x": "users.uid", "w": "users.level"},
        "",
    ),
    "a name that two relations have": (
        "SELECT uid FROM orders, users",
        {"uid": " ?"},
        "",
    ),
    "repeated columns of a star": (
        "SELECT uid, uid0 FROM (SELECT u.*, v.uid AS y, v.* FROM users u, users v) AS t",
        {"uid": "users.uid", "uid0": "users.uid"},
        "",
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_columns_and_filters_of_a_query_are_told(name: str) -> None:
    sql, expected, filters = QUERIES[name]
    assert of(sql) == (expected, filters)


@settings(max_examples=100, derandomize=True, database=None, deadline=None)
@given(queries())
def test_nothing_is_unknown_of_queries_over_known_tables(made: tuple[str, object]) -> None:
    found = query_lineage(parsed(made[0]), lookup)
    assert found.columns
    assert all(column.certainty is not Certainty.UNKNOWN for column in found.columns)


UNKNOWN: dict[str, tuple[str, dict[str, str] | None, str]] = {
    "a table whose columns are not known": (
        "SELECT a, o.b AS c FROM opaque AS o WHERE d = 1",
        {"a": "opaque.a", "c": "opaque.b"},
        "opaque.d",
    ),
    "its star": ("SELECT * FROM opaque WHERE d = 1", None, "opaque.d"),
    "beside a known table": (
        "SELECT city, a FROM users JOIN opaque AS o ON users.uid = o.uid",
        {"city": "users.city", "a": "opaque.a"},
        "opaque.uid users.uid",
    ),
    "two of them": (
        "SELECT a, x.b FROM opaque AS x, opaque2 AS y WHERE c = 1 AND y.d = 2",
        {"a": " ?", "b": "opaque.b"},
        "opaque2.d",
    ),
    "through a star": (
        f"SELECT a, rn FROM (SELECT *, {NEWEST} FROM opaque) AS t WHERE rn = 1",
        {"a": "opaque.a", "rn": "opaque.ts opaque.uid"},
        "opaque.ts opaque.uid",
    ),
    "in a subquery that could also see the outer name": (
        "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM opaque WHERE price = 1)",
        {"id": "orders.id"},
        "",
    ),
    "nobody knows the relation": (
        "SELECT a, users.city FROM nobody, users WHERE nobody.b = users.uid",
        {"a": " ?", "city": "users.city"},
        "users.uid",
    ),
    "a window over it": (
        "SELECT a, window_start FROM TABLE(TUMBLE(TABLE opaque, DESCRIPTOR(ts), "
        "INTERVAL '1' HOUR))",
        {"a": "opaque.a", "window_start": "opaque.ts"},
        "",
    ),
    "a union of different lengths": ("SELECT 1 UNION ALL SELECT 2, 3", None, ""),
    "clauses of a function, whose words may be its columns": (
        "SELECT SUBSTRING(a FROM b) AS c FROM opaque",
        {"c": "opaque.a opaque.b ?"},
        "",
    ),
    "a natural join with it": (
        "SELECT city, users.age FROM users NATURAL JOIN opaque",
        {"city": "users.city ?", "age": "users.age"},
        "",
    ),
    "using after a comma": (
        "SELECT * FROM clicks, users JOIN grown_ups USING (city)",
        None,
        "users.age users.city",
    ),
    "a function of it": (
        "SELECT a FROM my_function(TABLE opaque)",
        {"a": " ?"},
        "",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_told_is_unknown_and_never_a_guess(name: str) -> None:
    sql, expected, filters = UNKNOWN[name]
    assert of(sql) == (expected, filters)


SINK = ("a", "b", "dt")


@pytest.mark.parametrize(
    ("sql", "sink", "expected"),
    [
        (
            "INSERT INTO s SELECT id, uid, name FROM orders",
            SINK,
            {"a": "orders.id", "b": "orders.uid", "dt": "orders.name"},
        ),
        (
            "INSERT INTO s (dt, a) SELECT id, uid FROM orders",
            SINK,
            {"a": "orders.uid", "dt": "orders.id"},
        ),
        (
            "INSERT INTO s (dt, a) SELECT id, uid FROM orders",
            None,
            {"dt": "orders.id", "a": "orders.uid"},
        ),
        (
            "INSERT OVERWRITE s PARTITION (dt = '1') SELECT id, uid FROM orders",
            SINK,
            {"a": "orders.id", "b": "orders.uid", "dt": ""},
        ),
        (
            "INSERT INTO s PARTITION (dt = '1') (b) SELECT uid FROM orders",
            SINK,
            {"b": "orders.uid", "dt": ""},
        ),
        ("INSERT INTO s VALUES (1, 2, 3)", SINK, {"a": "", "b": "", "dt": ""}),
        (
            "INSERT INTO s WITH q AS (SELECT * FROM grown_ups) SELECT user_id, city, 1 FROM q",
            SINK,
            {"a": "users.uid", "b": "users.city", "dt": ""},
        ),
        (
            "WITH q AS (SELECT uid FROM users) INSERT INTO s (a) SELECT uid FROM q",
            SINK,
            {"a": "users.uid"},
        ),
        ("INSERT INTO s SELECT id, uid, name FROM orders", None, None),
        ("INSERT INTO s SELECT id FROM orders", SINK, None),
        ("INSERT INTO s (a, no_such) SELECT id, uid FROM orders", SINK, None),
        ("INSERT INTO s SELECT * FROM opaque", SINK, None),
    ],
)
def test_an_insert_writes_by_position(
    sql: str, sink: tuple[str, ...] | None, expected: dict[str, str] | None
) -> None:
    insert = parsed(sql)
    assert isinstance(insert, exp.Insert)
    written, _ = insert_lineage(insert, lookup, sink)
    assert columns(written) == expected
    assert written is None or list(columns(written) or {}) == list(expected or {})


def test_filters_of_an_insert_are_told_even_if_its_columns_cannot_be() -> None:
    insert = parsed(
        "INSERT INTO s SELECT * FROM opaque WHERE id IN (SELECT user_id FROM grown_ups)"
    )
    assert isinstance(insert, exp.Insert)
    written, filters = insert_lineage(insert, lookup, SINK)
    assert (written, told(filters)) == (None, "opaque.id users.age users.uid")


def test_columns_of_a_source_are_told_by_its_key() -> None:
    topic = ("kafka", "shop")
    known = RelationColumns((ColumnLineage("a", (ColumnOrigin(None, topic, "a"),)),))
    unknown = RelationColumns(None, (), (None, topic))
    for relation in (known, unknown):
        found = query_lineage(parsed("SELECT a FROM t"), lambda _, r=relation: r)
        assert found.columns is not None
        assert found.columns[0].origins == (ColumnOrigin(None, topic, "a"),)


def test_doubts_about_a_view_are_passed_on() -> None:
    doubtful = ColumnLineage("a", (ColumnOrigin(None, ("x",), "a"),), Certainty.UNKNOWN)
    at_most = ColumnLineage("b", (ColumnOrigin(None, ("x",), "b"),), Certainty.AT_MOST)
    view = RelationColumns((doubtful, at_most))
    found = query_lineage(parsed("SELECT a, b, a || b AS c FROM v"), lambda _: view)
    assert found.columns is not None
    assert [c.certainty for c in found.columns] == [
        Certainty.UNKNOWN,
        Certainty.AT_MOST,
        Certainty.UNKNOWN,
    ]
    assert found.columns[2].origins == (*doubtful.origins, *at_most.origins)


def test_each_table_is_looked_up_once() -> None:
    asked: list[tuple[str, ...]] = []

    def counting(parts: tuple[str, ...]) -> RelationColumns:
        asked.append(parts)
        return lookup(parts)

    sql = "SELECT a.id FROM orders a JOIN app.orders b ON a.id = b.id JOIN orders c ON a.id = c.id"
    query_lineage(parsed(sql), counting)
    assert asked == [("orders",), ("app", "orders")]


def test_a_query_without_from() -> None:
    assert query_lineage(parsed("SELECT 1 AS a"), lookup) == QueryLineage(
        (ColumnLineage("a", ()),), ()
    )


def test_a_thousand_unions_and_conditions_are_walked_in_a_loop() -> None:
    branches = " UNION ALL ".join(f"SELECT {c} FROM orders" for c in ["id", "uid"] * 500)
    assert of(branches) == ({"id": "orders.id orders.uid"}, "")
    conditions = " AND ".join(["price > 1"] * 2000)
    assert of(f"SELECT id FROM orders WHERE {conditions}")[1] == "orders.price"


def test_what_the_parser_can_follow_into_the_walk_follows_too() -> None:
    query: exp.Expr = parsed("SELECT id FROM orders")
    value = query.expressions[0]
    for _ in range(200):
        value = exp.Paren(this=value)
    query.set("expressions", [exp.alias_(value, "id")])
    for _ in range(100):
        query = exp.select("id").from_(exp.Subquery(this=query), copy=False)
    found = query_lineage(query, lookup)
    assert columns(found.columns) == {"id": "orders.id"}


def test_fields_of_rows_are_named_with_their_column() -> None:
    columns = [
        Column(
            "a", "ROW<city STRING, `zip ``x` DECIMAL(10, 2), at ROW(lat DOUBLE 'x, y' , b INT)>"
        ),
        Column("b", "ARRAY<ROW<not_found INT>>"),
        Column("c", "ROW<d MAP<STRING, ROW<e INT>>, f INT NOT NULL> NOT NULL"),
    ]
    assert row_fields(columns) == (
        ("city", "a"),
        ("zip `x", "a"),
        ("at", "a"),
        ("lat", "a"),
        ("b", "a"),
        ("d", "c"),
        ("f", "c"),
    )


def test_columns_that_an_expression_names() -> None:
    projection = parsed("SELECT price * 2 + UPPER(name) + address.city").expressions[0]
    assert referenced_columns(projection) == ("price", "name", "address")
