"""Flink SQL that users write: what must be read, and what Flink itself is asked about.

``DECLARATIONS`` build a session; every text in ``INSERTS`` and ``SETS`` can be planned in it.
"""

from __future__ import annotations

DECLARATIONS = [
    "CREATE DATABASE IF NOT EXISTS ods COMMENT 'raw layer'",
    "CREATE DATABASE IF NOT EXISTS lake.dwd",
    "CREATE DATABASE app",
    """CREATE TABLE IF NOT EXISTS ods.work_order (
      order_id BIGINT NOT NULL COMMENT 'the ticket''s number; unique',
      agent_id BIGINT,
      city STRING,
      status VARCHAR(20),
      amount DECIMAL(10, 2), -- in yuan; see the wiki
      `order` INT,
      seq BIGINT,
      event_time TIMESTAMP(3),
      PRIMARY KEY (order_id) NOT ENFORCED
    ) COMMENT 'work orders'
    WITH ('bucket' = '2', 'sequence.field' = 'seq', 'changelog-producer' = 'lookup')""",
    """CREATE TABLE ods.agent (
      agent_id BIGINT, agent_name STRING, team STRING,
      CONSTRAINT pk PRIMARY KEY (agent_id) NOT ENFORCED
    ) WITH ('bucket' = '1')""",
    """CREATE TABLE dwd.work_order (
      order_id BIGINT, agent_name STRING, amount DECIMAL(10, 2), dt STRING, hh STRING,
      PRIMARY KEY (dt, hh, order_id) NOT ENFORCED
    ) PARTITIONED BY (dt, hh) WITH ('bucket' = '1')""",
    """CREATE TABLE app.agent_day (
      agent_id BIGINT, orders BIGINT, amount DECIMAL(20, 2),
      PRIMARY KEY (agent_id) NOT ENFORCED
    ) WITH ('bucket' = '1', 'merge-engine' = 'partial-update')""",
    "CREATE TABLE app.`odd-name` (id INT, label STRING)",
    "CREATE TABLE app.numbers (id BIGINT, total BIGINT)",
    "CREATE TABLE app.texts (id BIGINT, label STRING)",
    """CREATE TABLE app.types (
      a BOOLEAN, b TINYINT, c SMALLINT, d INTEGER, e BIGINT, f FLOAT, g DOUBLE PRECISION,
      h DEC(5), i NUMERIC(10, 3), j CHAR(3), k VARCHAR, l STRING, m BINARY(2), n VARBINARY(9),
      o BYTES, p DATE, q TIME, r TIMESTAMP, s TIMESTAMP(6) WITHOUT TIME ZONE,
      t TIMESTAMP_LTZ(3), u TIMESTAMP(3) WITH LOCAL TIME ZONE,
      v ARRAY<STRING NOT NULL>, w MAP<STRING, ARRAY<INT>>, x MULTISET<STRING>,
      y ROW<a INT NOT NULL 'one', `b c` ROW<d STRING, e ARRAY<ROW<f INT>>>>,
      z ROW(a INT, b DOUBLE) NOT NULL
    )""",
    """CREATE TEMPORARY TABLE orders (
      id BIGINT,
      uid BIGINT,
      price DOUBLE,
      name STRING,
      tags ARRAY<STRING>,
      attributes MAP<STRING, STRING>,
      address ROW<city STRING, zip INT>,
      ts TIMESTAMP(3),
      total AS price * 2 COMMENT 'computed',
      proc AS PROCTIME(),
      WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
    ) WITH ('connector' = 'datagen', 'rows-per-second' = '1')""",
    """CREATE TEMPORARY TABLE rates (
      currency STRING, rate DOUBLE, ts TIMESTAMP(3),
      WATERMARK FOR ts AS ts,
      PRIMARY KEY (currency) NOT ENFORCED
    ) WITH ('connector' = 'datagen')""",
    """CREATE TEMPORARY TABLE files (
      line STRING,
      `file.path` STRING NOT NULL METADATA,
      modified TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time' VIRTUAL
    ) WITH ('connector' = 'filesystem', 'path' = '/data/in/orders;x', 'format' = 'raw')""",
    """CREATE TEMPORARY TABLE events (
      user_id STRING, url STRING, ts TIMESTAMP(3), PRIMARY KEY (user_id) NOT ENFORCED
    ) WITH (
      'connector' = 'upsert-kafka', 'topic' = 'shop.events-v1', 'key.format' = 'raw',
      'value.format' = 'json', 'properties.bootstrap.servers' = 'kafka:9092',
      'properties.sasl.jaas.config' = 'x required username="u" password="p";'
    )""",
    "CREATE TEMPORARY TABLE printed WITH ('connector' = 'print') LIKE app.numbers (EXCLUDING ALL)",
    "CREATE TEMPORARY TABLE hole (id BIGINT, label STRING) WITH ('connector' = 'blackhole')",
    """CREATE TEMPORARY VIEW recent_orders (id, uid, price) COMMENT 'a view' AS
       SELECT id, uid, price FROM orders WHERE ts > TIMESTAMP '2026-01-01 00:00:00.000'""",
    """CREATE TEMPORARY VIEW order_agents AS
       WITH r AS (SELECT * FROM recent_orders)
       SELECT r.id, a.agent_name FROM r JOIN ods.agent AS a ON r.uid = a.agent_id""",
    "CREATE FUNCTION IF NOT EXISTS default_catalog.default_database.f AS 'a.b.C' LANGUAGE JAVA",
    "DROP TEMPORARY SYSTEM FUNCTION IF EXISTS f2",
    "DROP TEMPORARY FUNCTION IF EXISTS no_such_function",
    "USE ods",
    "USE lake.`default`",
    "USE CATALOG lake",
    "SET 'table.exec.state.ttl' = '1 h'",
    "RESET 'table.exec.state.ttl'",
]

INSERTS: dict[str, tuple[str, set[str], set[str]]] = {
    # name: statement, tables of the lake that it reads, connector tables that it reads
    "all columns": (
        "INSERT INTO ods.work_order SELECT id, uid, name, name, CAST(price AS DECIMAL(10, 2)), 1, "
        "id, ts FROM orders",
        set(),
        {"orders"},
    ),
    "column list": (
        "INSERT INTO app.texts (label, id) SELECT name, id FROM orders /* ; */ -- ; '\n",
        set(),
        {"orders"},
    ),
    "static partition": (
        "INSERT INTO dwd.work_order PARTITION (dt = '20260101') (order_id, hh) "
        "SELECT order_id, '01' FROM ods.work_order",
        {"ods.work_order"},
        set(),
    ),
    "target hint": (
        "INSERT INTO app.numbers /*+ OPTIONS('sink.parallelism' = '1') */ "
        "SELECT id, uid FROM orders",
        set(),
        {"orders"},
    ),
    "quoted name and source hint": (
        "INSERT INTO app.`odd-name` SELECT CAST(agent_id AS INT), team "
        "FROM ods.agent /*+ OPTIONS('scan.mode' = 'latest', 'scan.parallelism' = '1') */ AS a",
        {"ods.agent"},
        set(),
    ),
    "lookup join": (
        """INSERT INTO dwd.work_order
           SELECT o.id, a.agent_name, CAST(o.price AS DECIMAL(10, 2)),
                  DATE_FORMAT(o.ts, 'yyyyMMdd'), DATE_FORMAT(o.ts, 'HH')
           FROM orders AS o
           LEFT JOIN ods.agent /*+ OPTIONS('lookup.async' = 'true') */
             FOR SYSTEM_TIME AS OF o.proc AS a ON o.uid = a.agent_id""",
        {"ods.agent"},
        {"orders"},
    ),
    "lookup hint": (
        """INSERT INTO app.texts
           SELECT /*+ LOOKUP('table' = 'a', 'retry-predicate' = 'lookup_miss',
                             'retry-strategy' = 'fixed_delay', 'fixed-delay' = '10s',
                             'max-attempts' = '3') */ o.id, a.team
           FROM orders AS o JOIN ods.agent FOR SYSTEM_TIME AS OF o.proc AS a
           ON o.uid = a.agent_id""",
        {"ods.agent"},
        {"orders"},
    ),
    "temporal join": (
        "INSERT INTO app.texts SELECT o.id, CAST(o.price * r.rate AS STRING) FROM orders AS o "
        "LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.name = r.currency",
        set(),
        {"orders", "rates"},
    ),
    "interval join": (
        "INSERT INTO app.numbers SELECT o.id, p.uid FROM orders o, orders p WHERE o.id = p.id "
        "AND o.ts BETWEEN p.ts - INTERVAL '4' HOUR AND p.ts + INTERVAL '1:30' MINUTE TO SECOND",
        set(),
        {"orders"},
    ),
    "joins": (
        """INSERT INTO app.texts
           SELECT o.order_id, COALESCE(a.team, d.agent_name, 'none')
           FROM ods.work_order AS o
           INNER JOIN ods.agent AS a ON o.agent_id = a.agent_id
           FULL OUTER JOIN dwd.work_order d ON d.order_id = o.order_id
           CROSS JOIN (SELECT MAX(id) AS m FROM app.numbers) AS n
           WHERE n.m > 1""",
        {"ods.work_order", "ods.agent", "dwd.work_order", "app.numbers"},
        set(),
    ),
    "join using, natural": (
        "INSERT INTO app.texts SELECT agent_id, team FROM ods.work_order JOIN ods.agent "
        "USING (agent_id)",
        {"ods.work_order", "ods.agent"},
        set(),
    ),
    "common table expressions": (
        """INSERT INTO app.numbers
           WITH orders_by_agent AS (SELECT agent_id, COUNT(*) AS n FROM ods.work_order
                                    GROUP BY agent_id),
                agent AS (SELECT a.agent_id AS id, b.n FROM ods.agent a
                          JOIN orders_by_agent b ON a.agent_id = b.agent_id)
           SELECT id, n FROM agent UNION ALL SELECT agent_id, n FROM orders_by_agent""",
        {"ods.work_order", "ods.agent"},
        set(),
    ),
    "a CTE that hides a table": (
        "INSERT INTO app.texts WITH orders AS (SELECT id, uid FROM orders) "
        "SELECT id, 'x' FROM orders",
        set(),
        {"orders"},
    ),
    "set operations": (
        "INSERT INTO app.numbers (SELECT id, uid FROM orders UNION SELECT agent_id, 1 FROM "
        "ods.agent) INTERSECT SELECT id, total FROM app.numbers EXCEPT SELECT 1, 2",
        {"ods.agent", "app.numbers"},
        {"orders"},
    ),
    "subqueries": (
        """INSERT INTO app.numbers SELECT order_id, seq FROM ods.work_order AS o
           WHERE o.agent_id IN (SELECT agent_id FROM ods.agent WHERE team <> 'x')
             AND EXISTS (SELECT 1 FROM dwd.work_order AS d WHERE d.order_id = o.order_id)
             AND o.city IS NOT NULL AND o.status IS NOT DISTINCT FROM 'ok'
             AND o.city NOT LIKE 'a!%' ESCAPE '!' AND NOT (o.seq BETWEEN 1 AND 2)""",
        {"ods.work_order", "ods.agent", "dwd.work_order"},
        set(),
    ),
    "scalar subquery": (
        "INSERT INTO app.numbers SELECT id, (SELECT MAX(agent_id) FROM ods.agent) FROM orders",
        {"ods.agent"},
        {"orders"},
    ),
    "tumbling window": (
        """INSERT INTO app.texts
           SELECT SUM(uid), CAST(window_start AS STRING)
           FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '10' MINUTES))
           GROUP BY window_start, window_end""",
        set(),
        {"orders"},
    ),
    "hopping window with named arguments": (
        """INSERT INTO app.texts SELECT w.n, w.label FROM (
             SELECT uid AS n, MAX(name) AS label FROM TABLE(HOP(
               DATA => TABLE orders, TIMECOL => DESCRIPTOR(ts),
               SLIDE => INTERVAL '1' MINUTE, SIZE => INTERVAL '5' MINUTE)) AS h
             GROUP BY uid, window_start, window_end) AS w""",
        set(),
        {"orders"},
    ),
    "cumulating window": (
        "INSERT INTO app.numbers SELECT uid, COUNT(DISTINCT id) FROM TABLE(CUMULATE(TABLE orders, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '1' DAY)) "
        "GROUP BY uid, window_start, window_end",
        set(),
        {"orders"},
    ),
    "session window": (
        "INSERT INTO app.numbers SELECT uid, COUNT(*) FROM TABLE(SESSION(TABLE orders "
        "PARTITION BY uid, DESCRIPTOR(ts), INTERVAL '5' MINUTES)) "
        "GROUP BY uid, window_start, window_end",
        set(),
        {"orders"},
    ),
    "window over a view": (
        """INSERT INTO app.texts SELECT id, name FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end
                                          ORDER BY price DESC) AS rn
             FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' HOUR))) WHERE rn <= 3""",
        set(),
        {"orders"},
    ),
    "old group windows": (
        "INSERT INTO app.numbers SELECT uid, COUNT(*) FROM orders "
        "GROUP BY uid, TUMBLE(ts, INTERVAL '1' HOUR)",
        set(),
        {"orders"},
    ),
    "deduplication": (
        """INSERT INTO app.texts SELECT order_id, city FROM (
             SELECT *, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY seq DESC) AS rn
             FROM ods.work_order) WHERE rn = 1""",
        {"ods.work_order"},
        set(),
    ),
    "over window": (
        """INSERT INTO app.numbers SELECT id, SUM(uid) OVER w FROM orders
           WINDOW w AS (PARTITION BY uid ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING
                        AND CURRENT ROW)""",
        set(),
        {"orders"},
    ),
    "rows over": (
        "INSERT INTO app.numbers SELECT id, COUNT(*) OVER (PARTITION BY uid ORDER BY proc "
        "ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) FROM orders",
        set(),
        {"orders"},
    ),
    "aggregates": (
        """INSERT INTO app.agent_day
           SELECT agent_id, COUNT(*) FILTER (WHERE status = 'approved'),
                  SUM(DISTINCT amount) FROM ods.work_order
           GROUP BY agent_id HAVING COUNT(*) > 1""",
        {"ods.work_order"},
        set(),
    ),
    "grouping sets": (
        """INSERT INTO app.texts SELECT SUM(seq), city FROM ods.work_order
           GROUP BY GROUPING SETS ((city, status), (city), ())""",
        {"ods.work_order"},
        set(),
    ),
    "rollup and cube": (
        "INSERT INTO app.texts SELECT SUM(seq), city FROM ods.work_order GROUP BY ROLLUP (city)"
        " UNION ALL SELECT SUM(seq), city FROM ods.work_order GROUP BY CUBE (city, status)",
        {"ods.work_order"},
        set(),
    ),
    "unnest": (
        "INSERT INTO app.texts SELECT o.id, t.tag FROM orders AS o CROSS JOIN UNNEST(o.tags) "
        "AS t (tag)",
        set(),
        {"orders"},
    ),
    "unnest map": (
        "INSERT INTO app.texts SELECT id, v FROM orders LEFT JOIN UNNEST(attributes) AS t (k, v) "
        "ON TRUE",
        set(),
        {"orders"},
    ),
    "pattern": (
        """INSERT INTO app.texts SELECT m.aid, m.label FROM orders MATCH_RECOGNIZE (
             PARTITION BY uid ORDER BY ts
             MEASURES FIRST(A.id) AS aid, LAST(B.name) AS label
             ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
             PATTERN (A B+ C) WITHIN INTERVAL '1' HOUR
             DEFINE B AS B.price > 1, C AS C.price < 1) AS m""",
        set(),
        {"orders"},
    ),
    "expressions": (
        """INSERT INTO app.texts
           SELECT CASE WHEN price > 1 AND NOT (uid = 2 OR id <> 3) THEN id WHEN uid IS NULL THEN 0
                       ELSE -id END,
                  CASE uid WHEN 1 THEN 'it''s; a -- string' ELSE name || '_' || 'x' END
           FROM orders
           WHERE MOD(id, 2) = 0 AND id % 3 = 1 AND uid IN (1, 2, 3) AND price >= 1.5e3
             AND address.city LIKE '%\\d' AND attributes['k'] = 'v' AND tags[1] = 'a'
             AND ts >= TIMESTAMP '2026-01-01 00:00:00'
             AND CAST(ts AS DATE) > DATE '2026-01-01' AND CARDINALITY(tags) > 0
             AND name SIMILAR TO 'a|b'""",
        set(),
        {"orders"},
    ),
    "functions": (
        """INSERT INTO app.texts
           SELECT TIMESTAMPDIFF(SECOND, ts, CAST(proc AS TIMESTAMP(3))),
                  CONCAT_WS(',', UPPER(name), TRIM(BOTH ' ' FROM name), TRIM(name),
                    SUBSTRING(name FROM 2 FOR 3), SUBSTR(name, 1), LPAD(name, 3, '0'),
                    OVERLAY(name PLACING 'x' FROM 1 FOR 2),
                    JSON_VALUE(name, '$.a' RETURNING STRING DEFAULT 'x' ON EMPTY NULL ON ERROR),
                    JSON_QUERY(name, 'lax $.a' WITH CONDITIONAL ARRAY WRAPPER),
                    JSON_OBJECT('k' VALUE name ABSENT ON NULL),
                    SPLIT_INDEX(name, ',', 0), REGEXP_EXTRACT(name, '(\\w+)', 1),
                    DATE_FORMAT(ts, 'yyyy-MM-dd'), IF(price > 1, 'a', 'b'), IFNULL(name, 'n'),
                    CAST(POSITION('a' IN name) AS STRING), CAST(EXTRACT(DAY FROM ts) AS STRING),
                    CAST(FLOOR(ts TO HOUR) AS STRING), CAST(CEIL(price) AS STRING),
                    CAST(TIMESTAMPADD(DAY, 1, ts) AS STRING), MD5(name), UUID(),
                    CAST(TO_TIMESTAMP_LTZ(id, 3) AS STRING), CAST(ROUND(price, 2) AS STRING),
                    CAST(LOCALTIMESTAMP AS STRING), CAST(CURRENT_DATE AS STRING),
                    CAST(CURRENT_TIMESTAMP AS STRING), TRY_CAST(id AS STRING))
           FROM orders""",
        set(),
        {"orders"},
    ),
    "constructors": (
        "INSERT INTO app.numbers SELECT id, CARDINALITY(ARRAY[1, 2]) + CARDINALITY(MAP['a', 1]) "
        "FROM orders WHERE (id, uid) IN (VALUES (1, 2), (CAST(3 AS BIGINT), 4))",
        set(),
        {"orders"},
    ),
    "casts to rows": (
        "INSERT INTO app.texts SELECT id, CAST(ROW(name, 1) AS ROW<a STRING, b INT>).a FROM orders",
        set(),
        {"orders"},
    ),
    "values in FROM": (
        "INSERT INTO app.texts SELECT v.a, v.b FROM (VALUES (CAST(1 AS BIGINT), 'x'), (2, 'y')) "
        "AS v (a, b)",
        set(),
        set(),
    ),
    "values": ("INSERT INTO app.texts VALUES (1, 'a'), (2, CAST(NULL AS STRING))", set(), set()),
    "view": ("INSERT INTO app.texts SELECT * FROM order_agents", {"ods.agent"}, {"orders"}),
    "external sink": ("INSERT INTO printed SELECT id, uid FROM orders", set(), {"orders"}),
    "system table": (
        "INSERT INTO hole SELECT snapshot_id, commit_user FROM ods.`agent$snapshots`",
        {"ods.agent"},
        set(),
    ),
    "reads itself": (
        "INSERT INTO app.numbers SELECT id, total + 1 FROM app.numbers",
        {"app.numbers"},
        set(),
    ),
    "fully qualified": (
        "INSERT INTO lake.app.numbers SELECT id, uid FROM lake.`default`.orders",
        set(),
        {"orders"},
    ),
    "table keyword": ("INSERT INTO app.numbers TABLE app.numbers", {"app.numbers"}, set()),
    "metadata columns": (
        "INSERT INTO app.texts SELECT CHAR_LENGTH(line), `file.path` FROM files",
        set(),
        {"files"},
    ),
    "execute": ("EXECUTE INSERT INTO app.numbers SELECT id, uid FROM orders", set(), {"orders"}),
    "order and limit": (
        "INSERT INTO app.numbers SELECT id, uid FROM orders ORDER BY ts ASC, id DESC NULLS LAST "
        "LIMIT 10",
        set(),
        {"orders"},
    ),
    "parenthesised joins": (
        "INSERT INTO app.numbers SELECT o.id, w.seq FROM orders o JOIN (ods.work_order w JOIN "
        "ods.agent a ON w.agent_id = a.agent_id) ON o.id = w.order_id",
        {"ods.work_order", "ods.agent"},
        {"orders"},
    ),
    "slash comment": (
        "INSERT INTO app.numbers // until the end; of the line\nSELECT id, uid FROM orders",
        set(),
        {"orders"},
    ),
}

SETS = [
    "EXECUTE STATEMENT SET BEGIN\n"
    "INSERT INTO app.numbers SELECT id, CASE WHEN uid > 1 THEN 1 ELSE 2 END FROM orders;\n"
    "INSERT INTO app.texts SELECT id, name FROM orders;\nEND",
    "BEGIN STATEMENT SET;\n"
    "INSERT INTO hole SELECT id, name FROM orders;\n"
    "INSERT INTO app.texts WITH a AS (SELECT * FROM ods.agent) SELECT agent_id, team FROM a;\nEND",
]

# Flink's parser takes these; its planner or the test cluster's connectors do not.
UNPLANNABLE: dict[str, tuple[str, set[str], set[str]]] = {
    "lateral query": (
        """INSERT INTO app.texts SELECT a.agent_id, t.city
           FROM (SELECT DISTINCT agent_id FROM ods.agent) AS a,
           LATERAL (SELECT city, amount FROM ods.work_order AS o WHERE o.agent_id = a.agent_id
                    ORDER BY amount DESC LIMIT 3) AS t""",
        {"ods.agent", "ods.work_order"},
        set(),
    ),
    "table function": (
        "INSERT INTO app.texts SELECT id, t.w FROM orders, LATERAL TABLE(split(name, ',')) AS t (w)"
        " LEFT JOIN LATERAL TABLE(dbs.g(id)) AS u (x) ON TRUE",
        set(),
        {"orders"},
    ),
    "process table function": (
        "INSERT INTO app.texts SELECT * FROM rank_orders(input => TABLE orders PARTITION BY id "
        "ORDER BY ts, uid => 'x')",
        set(),
        {"orders"},
    ),
    "window over a query": (
        "INSERT INTO app.texts SELECT id, name FROM TABLE(TUMBLE((SELECT * FROM ods.agent), "
        "DESCRIPTOR(ts), INTERVAL '1' HOUR))",
        {"ods.agent"},
        set(),
    ),
    "variables": (
        "INSERT INTO app.texts SELECT id, '${LABEL:-a; b}' FROM orders WHERE id > ${LOWEST:-1}",
        set(),
        {"orders"},
    ),
}
