"""Small Flink statements made up by Hypothesis: every one of them is Flink SQL."""

from __future__ import annotations

from hypothesis import strategies as st

NAMES = st.sampled_from(
    ["a", "b", "c", "`order`", "`x y`", "`q``t`", "type", "status", "v$1", "_p", "level", "text"]
)
TEXTS = st.sampled_from(["'x'", "''", "'it''s'", "'\\d'", "'a;--b'", "'/*+ no */'", "'中'"])
HINTED = st.sampled_from(["'x'", "'it''s'", "'10 s'"])
NUMBERS = st.sampled_from(["0", "1", "42", "1.5", "1E3"])
UNITS = st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY"])
TYPES = st.recursive(
    st.sampled_from(
        [
            "INT",
            "BIGINT",
            "STRING",
            "BOOLEAN",
            "DOUBLE",
            "TIMESTAMP(3)",
            "DATE",
            "TIMESTAMP_LTZ(3)",
            "VARCHAR(20)",
            "BYTES",
            "TIME",
            "CHAR(2)",
            "DECIMAL(10)",
            "FLOAT",
        ]
    ),
    lambda inner: st.one_of(
        st.builds("ARRAY<{}>".format, inner),
        st.builds("MAP<STRING, {}>".format, inner),
        st.builds("ROW<{} {}, {} {} NOT NULL>".format, NAMES, inner, NAMES, inner),
        st.builds("MULTISET<{}>".format, inner),
    ),
    max_leaves=4,
)
LITERALS = st.one_of(
    TEXTS,
    NUMBERS,
    st.sampled_from(["TRUE", "NULL", "DATE '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00.123'"]),
    st.builds("INTERVAL '{}' {}".format, st.integers(1, 99), UNITS),
)
COLUMNS = st.one_of(NAMES, st.builds("t.{}".format, NAMES))


def _over(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/%"), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["=", "<>", "<", ">="]), inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("({} {})".format, inner, st.sampled_from(["IS NULL", "IS NOT NULL", "IS TRUE"])),
        st.builds("({} {}BETWEEN {} AND {})".format, inner, _NOT, inner, inner),
        st.builds("({} {}IN ({}, {}))".format, inner, _NOT, inner, inner),
        st.builds("({} {}LIKE {})".format, inner, _NOT, TEXTS),
        st.builds("CASE WHEN {} THEN {} ELSE {} END".format, inner, inner, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["f", "CONCAT", "IF", "d.g"]), inner, inner),
        st.builds("{}({})".format, st.sampled_from(["UPPER", "SUM", "MAX", "my_udf"]), inner),
        st.builds("{}CAST({} AS {})".format, st.sampled_from(["", "TRY_"]), inner, TYPES),
        st.builds("COUNT(DISTINCT {}) FILTER (WHERE {})".format, inner, inner),
        st.builds("SUM({}) OVER (PARTITION BY {} ORDER BY {} DESC)".format, inner, inner, inner),
        st.builds("EXTRACT({} FROM {})".format, UNITS, inner),
        st.builds("TRIM(BOTH {} FROM {})".format, TEXTS, inner),
        st.builds("SUBSTRING({} FROM {})".format, inner, NUMBERS),
        st.builds("ARRAY[{}, {}]".format, inner, inner),
        st.builds("MAP[{}, {}]".format, inner, inner),
        st.builds("ROW({}, {})".format, inner, inner),
        st.builds("{}[{}]".format, COLUMNS, inner),
        st.builds("TIMESTAMPDIFF({}, {}, {})".format, UNITS, inner, inner),
        st.builds("JSON_VALUE({}, '$.a' RETURNING INT NULL ON EMPTY)".format, inner),
    )


_NOT = st.sampled_from(["", "NOT "])
EXPRESSIONS = st.recursive(st.one_of(LITERALS, COLUMNS), _over, max_leaves=6)

TABLES = st.sampled_from(["t", "d.t", "c.d.t", "`my table`", "t$snapshots"])
RELATIONS = st.one_of(
    st.builds("{}".format, TABLES),
    st.builds("{} AS {}".format, TABLES, NAMES),
    st.builds("{} /*+ OPTIONS('k' = {}) */ AS {}".format, TABLES, HINTED, NAMES),
    st.builds("(SELECT {} FROM {}) AS {}".format, EXPRESSIONS, TABLES, NAMES),
    st.builds(
        "TABLE(TUMBLE(TABLE {}, DESCRIPTOR({}), INTERVAL '1' {})) AS w".format, TABLES, NAMES, UNITS
    ),
    st.builds("{} FOR SYSTEM_TIME AS OF {} AS {}".format, TABLES, COLUMNS, NAMES),
    st.builds("(VALUES ({}, {})) AS {} (x, y)".format, LITERALS, LITERALS, NAMES),
    st.builds(
        "{} MATCH_RECOGNIZE (PARTITION BY {} ORDER BY {} MEASURES LAST(A.{}) AS m "
        "PATTERN (A+ B?) DEFINE A AS A.{} IS NULL) AS p".format,
        TABLES,
        NAMES,
        NAMES,
        NAMES,
        NAMES,
    ),
)
JOINS = st.one_of(
    st.just(""),
    st.builds(
        " {} {} ON {}".format, st.sampled_from(["JOIN", "LEFT JOIN"]), RELATIONS, EXPRESSIONS
    ),
    st.builds(" CROSS JOIN UNNEST({}) AS u (e)".format, COLUMNS),
    st.builds(", LATERAL TABLE(f({})) AS l (e)".format, EXPRESSIONS),
)
FILTERS = st.one_of(st.just(""), st.builds(" WHERE {}".format, EXPRESSIONS))
GROUPS = st.one_of(
    st.just(""),
    st.builds(" GROUP BY {}, {}".format, EXPRESSIONS, COLUMNS),
    st.builds(" GROUP BY GROUPING SETS (({}, {}), ({}), ())".format, COLUMNS, COLUMNS, COLUMNS),
)
SELECTS = st.builds(
    "SELECT {} AS {}, {} FROM {}{}{}{}".format,
    EXPRESSIONS,
    NAMES,
    EXPRESSIONS,
    RELATIONS,
    JOINS,
    FILTERS,
    GROUPS,
)
QUERIES = st.one_of(
    SELECTS,
    st.builds(
        "{} {} {}".format, SELECTS, st.sampled_from(["UNION ALL", "UNION", "EXCEPT"]), SELECTS
    ),
    st.builds("{} ORDER BY {} DESC LIMIT 3".format, SELECTS, COLUMNS),
    st.builds("WITH q AS ({}) SELECT * FROM q".format, SELECTS),
)
COLUMN_TAILS = st.sampled_from(
    ["", " NOT NULL", " COMMENT 'c'", " METADATA FROM 'x' VIRTUAL", " NOT NULL COMMENT 'it''s'"]
)
OPTIONS = st.builds("('connector' = {}, 'a.b' = {})".format, TEXTS, TEXTS)
STATEMENTS = st.one_of(
    QUERIES,
    st.builds("INSERT INTO {} {}".format, TABLES, QUERIES),
    st.builds("INSERT OVERWRITE {} PARTITION (a = {}) {}".format, TABLES, TEXTS, QUERIES),
    st.builds("INSERT INTO {} ({}, b.c) {}".format, TABLES, NAMES, QUERIES),
    st.builds("CREATE TEMPORARY VIEW {} (x, y) AS {}".format, TABLES, QUERIES),
    st.builds("CREATE TABLE {} WITH {} AS {}".format, TABLES, OPTIONS, QUERIES),
    st.builds(
        "CREATE TABLE IF NOT EXISTS {} ({} {}{}, y AS {}, WATERMARK FOR ts AS {}, "
        "PRIMARY KEY ({}) NOT ENFORCED) PARTITIONED BY ({}) WITH {}".format,
        TABLES,
        NAMES,
        TYPES,
        COLUMN_TAILS,
        EXPRESSIONS,
        EXPRESSIONS,
        NAMES,
        NAMES,
        OPTIONS,
    ),
    st.builds(
        "CREATE TABLE {} ({} {}) LIKE {} (EXCLUDING ALL)".format, TABLES, NAMES, TYPES, TABLES
    ),
    st.builds("ALTER TABLE {} ADD ({} {}{} AFTER z)".format, TABLES, NAMES, TYPES, COLUMN_TAILS),
    st.builds("ALTER TABLE {} SET {}".format, TABLES, OPTIONS),
    st.builds(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO {} {}; INSERT INTO u {}; END".format,
        TABLES,
        QUERIES,
        QUERIES,
    ),
)
