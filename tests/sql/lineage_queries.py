"""Queries made up by hypothesis over the tables of ``lineage_samples``, with what Flink offers.

Most that is made up is valid; what Flink refuses all the same (an OVER window over rows that
change, for example) is for the test to leave out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[str]], str]

NUMBER, TEXT, TIME, CONSTANT = "number", "text", "time", "constant"


@dataclass(frozen=True)
class Column:
    """A column as it can be written, with its type; ``name`` is what an outer query calls it."""

    written: str
    name: str
    type: str


@dataclass(frozen=True)
class Part:
    """A text of SQL, and the columns that it offers."""

    sql: str
    columns: tuple[Column, ...]

    def of(self, kind: str) -> list[str]:
        return [column.written for column in self.columns if column.type == kind]


_TABLES: dict[str, dict[str, str]] = {
    "orders": {
        "id": NUMBER,
        "uid": NUMBER,
        "price": NUMBER,
        "total": NUMBER,
        "name": TEXT,
        "address.city": TEXT,
        "address.place.lat": NUMBER,
        "ts": TIME,
    },
    "clicks": {"id": NUMBER, "uid": NUMBER, "url": TEXT, "score": NUMBER, "ts": TIME},
    "users": {"uid": NUMBER, "city": TEXT, "age": NUMBER, "level": NUMBER},
    "payments": {
        "pid": NUMBER,
        "order_id": NUMBER,
        "amount": NUMBER,
        "way": TEXT,
        "paid": TIME,
    },
    "grown_ups": {"user_id": NUMBER, "city": TEXT},
}
_TIMES = {"orders": "ts", "clicks": "ts", "payments": "paid"}
_WINDOWS = (
    "TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '10' MINUTES)",
    "HOP(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES)",
    "CUMULATE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' MINUTE, INTERVAL '1' DAY)",
    "TUMBLE(DATA => TABLE {table}, TIMECOL => DESCRIPTOR({time}), SIZE => INTERVAL '1' HOUR)",
)


class QueryMaker:
    """Draws one query; counts aliases so that they never clash by accident."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._aliases = 0
        self.kinds: list[str] = []
        """What the query is made of, in the order of the drawing."""

    def pick(self, *choices: str) -> str:
        return self._draw(st.sampled_from(choices))

    def sometimes(self, text: str) -> str:
        return self.pick("", text)

    def alias(self, letter: str) -> str:
        self._aliases += 1
        return f"{letter}{self._aliases}"

    # expressions

    def number(self, part: Part) -> str:
        texts = part.of(TEXT) or ["'fixed'"]
        numbers = part.of(NUMBER) or [f"CHAR_LENGTH({texts[0]})"]
        one, other = self.pick(*numbers), self.pick(*numbers)
        otherwise = other if other != one else "0"
        return self.pick(
            one,
            one,
            one,
            f"{one} + {other}",
            f"COALESCE({one}, {other})",
            f"CASE WHEN {self.condition(part)} THEN {one} ELSE {otherwise} END",
            f"ABS({one}) * 2",
        )

    def key(self, part: Part) -> str:
        return self.pick(*part.of(NUMBER) or [self.number(part)])

    def text(self, part: Part) -> str:
        texts = part.of(TEXT)
        one = self.pick(*texts) if texts else f"CAST({self.number(part)} AS STRING)"
        return self.pick(one, one, f"UPPER({one})", f"{one} || 'x'")

    def value(self, part: Part) -> tuple[str, str]:
        kind = self.pick(NUMBER, NUMBER, NUMBER, TEXT, TEXT, CONSTANT)
        if kind == CONSTANT:
            return "'fixed'", CONSTANT
        return (self.number(part), NUMBER) if kind == NUMBER else (self.text(part), TEXT)

    def condition(self, part: Part) -> str:
        numbers, texts = part.of(NUMBER), part.of(TEXT)
        if not numbers and not texts:
            return "RAND() > 1"
        text = self.pick(*texts) if texts else f"CAST({numbers[0]} AS STRING)"
        one = self.pick(*numbers) if numbers else f"CHAR_LENGTH({text})"
        others = [number for number in numbers if number != one] or ["8"]
        return self.pick(
            f"{one} > {self.pick('1', '2', '3')}",
            f"{one} < {self.pick(*others)}",
            f"{one} IN (1, 5, 9)",
            f"{text} LIKE 'a%'",
            f"{text} <> 'z'",
            f"({one} > 4 OR {text} = 'b')",
            f"{one} BETWEEN 10 AND 20",
        )

    def where(self, part: Part) -> str:
        return self.pick("", f" WHERE {self.condition(part)}")

    # FROM

    def table(self) -> Part:
        name = self.pick(*_TABLES)
        alias = self.alias("t")
        return Part(f"{name} AS {alias}", _columns(name, alias))

    def windowed(self) -> Part:
        name = self.pick(*_TIMES)
        alias = self.alias("w")
        call = self.pick(*_WINDOWS).format(table=name, time=_TIMES[name])
        return Part(f"TABLE({call}) AS {alias}", _columns(name, alias))

    def source(self, depth: int) -> Part:
        if depth <= 0 or self.pick("table", "table", "query") == "table":
            return self.table()
        query = self.query(depth - 1)
        alias = self.alias("q")
        columns = tuple(Column(f"{alias}.{c.name}", c.name, c.type) for c in query.columns)
        return Part(f"({query.sql}) AS {alias}", columns)

    def joined(self, depth: int) -> Part:
        left, right = self.source(depth), self.source(depth)
        both = Part("", left.columns + right.columns)
        keys = f"{self.key(left)} = {self.key(right)}"
        kind = self.pick("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "comma")
        if kind == "comma":
            return Part(f"{left.sql}, {right.sql} WHERE {keys}", both.columns)
        more = self.sometimes(f" AND {self.condition(both)}")
        return Part(f"{left.sql} {kind} {right.sql} ON {keys}{more}", both.columns)

    # queries

    def selected(self, part: Part, clauses: str = "", distinct: str = "") -> Part:
        """SELECT a few values of what is in FROM."""
        values = [self.value(part) for _ in range(int(self.pick("1", "2", "3")))]
        names = [self.alias("c") for _ in values]
        items = ", ".join(f"{v} AS {n}" for (v, _), n in zip(values, names, strict=True))
        columns = tuple(
            Column(name, name, kind) for (_, kind), name in zip(values, names, strict=True)
        )
        return Part(f"SELECT {distinct}{items} FROM {part.sql}{clauses}", columns)

    def plain(self, depth: int) -> Part:
        part = self.source(depth)
        return self.selected(part, self.where(part), self.sometimes("DISTINCT "))

    def join(self, depth: int) -> Part:
        return self.selected(self.joined(depth))

    def join_using(self, depth: int) -> Part:
        left, right = self.alias("t"), self.alias("t")
        kind = self.pick("JOIN", "LEFT JOIN", "FULL JOIN")
        columns = (
            Column("uid", "uid", NUMBER),
            Column("url", "url", TEXT),
            Column("age", "age", NUMBER),
            Column(f"{right}.city", "city", TEXT),
        )
        part = Part(f"clicks AS {left} {kind} users AS {right} USING (uid)", columns)
        # Outside of SELECT, Flink takes the merged column for ambiguous.
        where = self.where(Part("", columns[1:]))
        if self.pick("some", "all") == "all":
            return Part(f"SELECT * FROM {part.sql}{where}", columns)
        return self.selected(part, where)

    def semi_join(self, depth: int) -> Part:
        part, inner = self.source(depth), self.source(depth - 1)
        outer, column = self.key(part), self.key(inner)
        negated = self.sometimes("NOT ")
        inside = self.pick(
            f"{outer} {negated}IN (SELECT {column} FROM {inner.sql}{self.where(inner)})",
            f"{negated}EXISTS (SELECT 1 FROM {inner.sql} WHERE {column} = {outer}"
            f"{self.sometimes(' AND ' + self.condition(inner))})",
        )
        more = self.sometimes(f" AND {self.condition(part)}")
        return self.selected(part, f" WHERE {inside}{more}")

    def scalar(self, depth: int) -> Part:
        part, inner = self.source(depth), self.source(depth - 1)
        name = self.alias("c")
        biggest = f"SELECT MAX({self.number(inner)}) FROM {inner.sql}{self.where(inner)}"
        if self.pick("value", "filter") == "filter":
            return self.selected(part, f" WHERE {self.number(part)} < ({biggest})")
        value, kind = self.value(part)
        other = self.alias("c")
        columns = (Column(other, other, kind), Column(name, name, NUMBER))
        return Part(f"SELECT {value} AS {other}, ({biggest}) AS {name} FROM {part.sql}", columns)

    def grouped(self, depth: int) -> Part:
        part = self.source(depth)
        return self._aggregated(part, self.where(part), [])

    def window_aggregate(self, depth: int) -> Part:
        part = self.windowed()
        return self._aggregated(part, self.where(part), ["window_start", "window_end"])

    def _aggregated(self, part: Part, clauses: str, window: list[str]) -> Part:
        keys = [self.pick(*[c.written for c in part.columns if c.type != TIME] or ["1"])]
        if self.pick("one", "two") == "two":
            keys.append(self.pick(*[c.written for c in part.columns if c.type != TIME] or ["1"]))
        keys = list(dict.fromkeys(keys))
        types = {c.written: c.type for c in part.columns}
        number = self.key(part)
        call = self.pick(
            "COUNT(*)",
            f"SUM({number})",
            f"MAX({number})",
            f"COUNT(DISTINCT {number})",
            f"AVG({number}) FILTER (WHERE {self.condition(part)})",
        )
        names = [self.alias("c") for _ in [*keys, call]]
        items = [f"{v} AS {n}" for v, n in zip([*keys, call], names, strict=True)]
        columns = [
            Column(name, name, types.get(key, NUMBER))
            for name, key in zip(names, keys, strict=False)
        ]
        columns.append(Column(names[-1], names[-1], NUMBER))
        for bound in window:
            name = self.alias("c")
            items.append(f"{bound} AS {name}")
            columns.append(Column(name, name, TIME))
        by = ", ".join([*keys, *window])
        if not window:
            by = self.pick(by, by, f"GROUPING SETS (({by}), ({keys[0]}))", f"ROLLUP ({by})")
        having = self.sometimes(f" HAVING MIN({number}) > 2")
        return Part(
            f"SELECT {', '.join(items)} FROM {part.sql}{clauses} GROUP BY {by}{having}",
            tuple(columns),
        )

    def top(self, depth: int) -> Part:
        part = self.source(depth)
        named = self.selected(part, self.where(part))
        inner, rank = self.alias("q"), self.alias("rn")
        partition = self.pick(*[c.written for c in part.columns if c.type != TIME] or ["1"])
        order = self.pick(*[c.written for c in part.columns] or ["1"])
        over = f"ROW_NUMBER() OVER (PARTITION BY {partition} ORDER BY {order} DESC) AS {rank}"
        sql = named.sql.replace(" FROM ", f", {over} FROM ", 1)
        columns = named.columns
        shown = ", ".join(c.name for c in columns)
        bound = self.pick("= 1", "<= 3", "<= 5")
        if bound != "= 1" and self.pick("hidden", "shown") == "shown":
            shown += f", {rank}"
            columns += (Column(rank, rank, NUMBER),)
        return Part(f"SELECT {shown} FROM ({sql}) AS {inner} WHERE {rank} {bound}", columns)

    def window_top(self, depth: int) -> Part:
        part = self.windowed()
        inner, rank = self.alias("q"), self.alias("rn")
        partition = self.pick(*part.of(NUMBER))
        order = self.pick(*[number for number in part.of(NUMBER) if number != partition])
        sql = (
            f"SELECT {partition} AS a_key, {order} AS b_key, window_start, ROW_NUMBER() OVER ("
            f"PARTITION BY window_start, window_end, {partition} ORDER BY {order}) AS {rank} "
            f"FROM {part.sql}"
        )
        columns = (
            Column("a_key", "a_key", NUMBER),
            Column("b_key", "b_key", NUMBER),
            Column("window_start", "window_start", TIME),
        )
        return Part(
            f"SELECT a_key, b_key, window_start FROM ({sql}) AS {inner} WHERE {rank} <= 3", columns
        )

    def over(self, depth: int) -> Part:
        name = self.pick(*_TIMES)
        alias = self.alias("t")
        part = Part(f"{name} AS {alias}", _columns(name, alias))
        number, key = self.pick(*part.of(NUMBER)), self.pick(*part.of(NUMBER))
        call = self.pick(f"SUM({number})", "COUNT(*)", f"LAG({number})", f"MAX({number})")
        spec = f"(PARTITION BY {key} ORDER BY {alias}.{_TIMES[name]})"
        window, clause = self.pick(f"{spec}|", f"w| WINDOW w AS {spec}").split("|")
        one, two = self.alias("c"), self.alias("c")
        return Part(
            f"SELECT {self.number(part)} AS {one}, {call} OVER {window} AS {two} "
            f"FROM {part.sql}{self.where(part)}{clause}",
            (Column(one, one, NUMBER), Column(two, two, NUMBER)),
        )

    def combined(self, depth: int) -> Part:
        left = self.query(depth - 1)
        right = self.source(depth - 1)
        values = [
            self.number(right) if c.type == NUMBER else self.text(right) for c in left.columns
        ]
        if any(column.type == TIME for column in left.columns):
            return left
        casts = [
            f"CAST({c.name} AS {'DOUBLE' if c.type == NUMBER else 'STRING'}) AS {c.name}"
            for c in left.columns
        ]
        others = [
            f"CAST({value} AS {'DOUBLE' if c.type == NUMBER else 'STRING'})"
            for c, value in zip(left.columns, values, strict=True)
        ]
        alias = self.alias("q")
        operator = self.pick("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")
        return Part(
            f"SELECT {', '.join(casts)} FROM ({left.sql}) AS {alias} {operator} "
            f"SELECT {', '.join(others)} FROM {right.sql}{self.where(right)}",
            left.columns,
        )

    def unnested(self, depth: int) -> Part:
        alias, other = self.alias("t"), self.alias("u")
        columns = _columns("orders", alias)
        array, names, types = self._draw(
            st.sampled_from(  # type: ignore[arg-type]
                [
                    ("tags", ("tag",), (TEXT,)),
                    ("attributes", ("k", "v"), (TEXT, TEXT)),
                    ("`lines`", ("sku", "quantity"), (TEXT, NUMBER)),
                ]
            )
        )
        kind = self.pick("CROSS JOIN {}", ", {}", "LEFT JOIN {} ON TRUE")
        call = kind.format(f"UNNEST({alias}.{array}) AS {other} ({', '.join(names)})")
        columns += tuple(
            Column(f"{other}.{name}", name, type_) for name, type_ in zip(names, types, strict=True)
        )
        part = Part(f"orders AS {alias} {call}", columns)
        return self.selected(part, self.where(part))

    def lateral(self, depth: int) -> Part:
        part = self.table()
        alias, inner = self.alias("l"), self.alias("t")
        key = self.pick(*part.of(NUMBER))
        call = (
            f"LATERAL (SELECT MAX({inner}.age) AS oldest FROM users AS {inner} "
            f"WHERE {inner}.uid = {key}) AS {alias}"
        )
        columns = (*part.columns, Column(f"{alias}.oldest", "oldest", NUMBER))
        both = Part(f"{part.sql}, {call}", columns)
        return self.selected(both, self.where(both))

    def time_join(self, depth: int) -> Part:
        """Joins over time: interval, temporal, and of two tables within a window."""
        left, right = self.alias("t"), self.alias("t")
        kind = self.pick("interval", "temporal", "window")
        columns = _columns("orders", left)
        if kind == "temporal":
            join = self.pick("JOIN", "LEFT JOIN")
            sql = (
                f"orders AS {left} {join} rates FOR SYSTEM_TIME AS OF {left}.ts AS {right} "
                f"ON {left}.name = {right}.currency"
            )
            columns += (Column(f"{right}.rate", "rate", NUMBER),)
            return self.selected(Part(sql, columns))
        columns += _columns("clicks", right)
        keys = f"{left}.uid = {right}.{self.pick('uid', 'id')}"
        if kind == "interval":
            sql = (
                f"orders AS {left} JOIN clicks AS {right} ON {keys} AND {left}.ts BETWEEN "
                f"{right}.ts - INTERVAL '4' HOUR AND {right}.ts"
            )
            return self.selected(Part(sql, columns))
        windowed = "(SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '5' MINUTES)))"
        sql = (
            f"{windowed.format('orders')} AS {left} JOIN {windowed.format('clicks')} AS {right} "
            f"ON {keys} AND {left}.window_start = {right}.window_start "
            f"AND {left}.window_end = {right}.window_end"
        )
        return self.selected(Part(sql, columns))

    def lookup_join(self, depth: int) -> Part:
        left, right = self.alias("t"), self.alias("t")
        join = self.pick("JOIN", "LEFT JOIN")
        more = self.sometimes(f" AND {right}.`floor` > 2")
        sql = (
            f"orders AS {left} {join} lineage.`default`.agents FOR SYSTEM_TIME AS OF {left}.proc "
            f"AS {right} ON {left}.{self.pick('uid', 'id')} = {right}.agent_id{more}"
        )
        columns = (
            *_columns("orders", left),
            Column(f"{right}.team", "team", TEXT),
            Column(f"{right}.`floor`", "floor", NUMBER),
        )
        part = Part(sql, columns)
        return self.selected(part, self.where(part))

    def matched(self, depth: int) -> Part:
        alias = self.alias("m")
        measure = self.pick("FIRST(A.id)", "LAST(B.score)", "A.uid + LAST(B.id)")
        sql = (
            f"SELECT {alias}.uid, {alias}.found FROM clicks MATCH_RECOGNIZE (PARTITION BY uid "
            f"ORDER BY ts MEASURES {measure} AS found ONE ROW PER MATCH "
            f"AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+ C) "
            f"DEFINE B AS B.{self.pick('score', 'id')} > A.score, C AS C.id > 3) AS {alias}"
        )
        return Part(sql, (Column("uid", "uid", NUMBER), Column("found", "found", NUMBER)))

    def with_clause(self, depth: int) -> Part:
        named = self.query(depth - 1)
        name, alias = self.pick("users", self.alias("cte")), self.alias("t")
        if " users" in named.sql:
            name = self.alias("cte")
        columns = tuple(Column(f"{alias}.{c.name}", c.name, c.type) for c in named.columns)
        part = Part(f"{name} AS {alias}", columns)
        if self.pick("once", "twice") == "twice" and part.of(NUMBER):
            other = self.alias("t")
            key = part.of(NUMBER)[0]
            twin = key.replace(f"{alias}.", f"{other}.")
            more = tuple(Column(f"{other}.{c.name}", c.name, c.type) for c in named.columns)
            part = Part(f"{part.sql} JOIN {name} AS {other} ON {key} = {twin}", columns + more)
        body = self.selected(part, self.where(part))
        return Part(f"WITH {name} AS ({named.sql}) {body.sql}", body.columns)

    def limited(self, depth: int) -> Part:
        part = self.source(depth)
        order = self.pick(*[c.written for c in part.columns])
        return self.selected(part, f"{self.where(part)} ORDER BY {order} DESC LIMIT 5")

    def query(self, depth: int) -> Part:
        """One query of any kind."""
        makers = [
            self.plain,
            self.join,
            self.join,
            self.grouped,
            self.top,
            self.over,
            self.window_aggregate,
            self.window_top,
            self.join_using,
            self.unnested,
            self.lateral,
            self.time_join,
            self.lookup_join,
            self.matched,
        ]
        if depth > 0:
            makers += [self.semi_join, self.scalar, self.combined, self.combined]
            makers += [self.with_clause, self.with_clause, self.limited]
        name = self.pick(*[maker.__name__ for maker in makers])
        self.kinds.append(name)
        made: Part = getattr(self, name)(depth)
        return made


def _columns(table: str, alias: str) -> tuple[Column, ...]:
    return tuple(
        Column(f"{alias}.{name}", name.rsplit(".", 1)[-1], kind)
        for name, kind in _TABLES[table].items()
    )


@st.composite
def queries(draw: Draw) -> tuple[str, tuple[str, ...]]:
    """Texts of queries, each with the kinds of queries that it is made of."""
    maker = QueryMaker(draw)
    return maker.query(2).sql, tuple(maker.kinds)
