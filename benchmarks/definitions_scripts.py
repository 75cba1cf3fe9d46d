"""A project of 1,000 tables in 300 scripts, as a warehouse in layers is written."""

from __future__ import annotations

from pathlib import Path

COLUMNS = 20
_LAYERS = {"ods": 4, "dwd": 3, "dws": 3}
"""Tables in each script of a layer; a hundred scripts each."""
SCRIPTS_A_LAYER = 100
TABLES = SCRIPTS_A_LAYER * sum(_LAYERS.values())
SCRIPTS = SCRIPTS_A_LAYER * len(_LAYERS)

_TYPES = ("STRING", "BIGINT", "DECIMAL(18, 2)", "TIMESTAMP(3)", "BOOLEAN", "INT", "DOUBLE")


def write(folder: Path) -> None:
    """Write the scripts; they are the same each time."""
    for layer, tables in _LAYERS.items():
        (folder / layer).mkdir(parents=True)
        for script in range(SCRIPTS_A_LAYER):
            text = {"ods": _ods, "dwd": _dwd, "dws": _dws}[layer](script, tables)
            (folder / layer / f"{layer}_{script:03d}.sql").write_text(text)


def _columns() -> str:
    further = (
        f"  c{n:02d} {_TYPES[n % len(_TYPES)]} COMMENT 'column {n}'" for n in range(3, COLUMNS)
    )
    return ",\n".join(
        ["  id BIGINT NOT NULL", "  dt STRING NOT NULL", "  ts TIMESTAMP(3)", *further]
    )


def _table(name: str, key: str = "id, dt") -> str:
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (\n{_columns()},\n"
        f"  PRIMARY KEY ({key}) NOT ENFORCED\n) PARTITIONED BY (dt) WITH (\n"
        "  'bucket' = '4',\n  'changelog-producer' = 'lookup',\n"
        "  'snapshot.time-retained' = '1 d'\n);\n"
    )


def _ods(script: int, tables: int) -> str:
    """Each table is filled from a topic, with values cleaned on the way."""
    text = "SET 'execution.checkpointing.interval' = '1 min';\n"
    for n in range(script * tables, (script + 1) * tables):
        values = [
            f"CAST(JSON_VALUE(payload, '$.c{c:02d}') AS {_TYPES[c % len(_TYPES)]})"
            if c % 3
            else f"COALESCE(NULLIF(TRIM(s.c{c:02d}), ''), s.c{c - 1 if c > 3 else c:02d})"
            for c in range(3, COLUMNS)
        ]
        source = ",\n".join(f"  c{c:02d} STRING" for c in range(3, COLUMNS))
        text += (
            f"\n-- topic {n}\nCREATE TEMPORARY TABLE topic_{n:04d} (\n  id BIGINT,\n{source},\n"
            "  payload STRING,\n  ts TIMESTAMP(3) METADATA FROM 'timestamp',\n"
            "  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND\n) WITH (\n"
            f"  'connector' = 'kafka',\n  'topic' = 'topic-{n:04d}',\n"
            "  'properties.bootstrap.servers' = '${KAFKA}',\n  'format' = 'json'\n);\n"
            + _table(f"ods.o{n:04d}")
            + f"SET 'pipeline.name' = 'ods_o{n:04d}';\n"
            f"INSERT INTO ods.o{n:04d}\nSELECT\n"
            "  s.id,\n  DATE_FORMAT(s.ts, 'yyyyMMdd'),\n  s.ts,\n  "
            + ",\n  ".join(values)
            + f"\nFROM topic_{n:04d} AS s\nWHERE s.id IS NOT NULL AND s.payload <> '';\n"
        )
    return text


def _dwd(script: int, tables: int) -> str:
    """Each table joins three of the layer below, one of them deduplicated first."""
    text = "SET 'table.exec.state.ttl' = '1 d';\n"
    for n in range(script * tables, (script + 1) * tables):
        left, middle, right = (f"ods.o{(n * 3 + k) % 400:04d}" for k in range(3))
        values = [
            (
                f"COALESCE(a.c{c:02d}, b.c{c:02d})",
                f"CASE WHEN b.c04 > 0 THEN b.c{c:02d} ELSE r.c{c:02d} END",
                f"CONCAT_WS('-', a.c{c:02d}, r.c03)",
                f"UPPER(SUBSTRING(r.c{c:02d}, 1, 10))",
            )[c % 4]
            + f" AS c{c:02d}"
            for c in range(3, COLUMNS)
        ]
        text += (
            "\n"
            + _table(f"dwd.d{n:04d}")
            + f"SET 'pipeline.name' = 'dwd_d{n:04d}';\nINSERT INTO dwd.d{n:04d}\n"
            f"WITH newest AS (\n  SELECT * FROM (\n    SELECT *, ROW_NUMBER() OVER "
            f"(PARTITION BY id ORDER BY ts DESC) AS rn FROM {right}\n  ) WHERE rn = 1\n)\n"
            "SELECT\n  a.id,\n  a.dt,\n  GREATEST(a.ts, b.ts) AS ts,\n  "
            + ",\n  ".join(values)
            + f"\nFROM {left} AS a\nJOIN {middle} AS b ON a.id = b.id AND a.dt = b.dt\n"
            "LEFT JOIN newest AS r ON a.id = r.id\nWHERE a.c08 IS NOT NULL OR b.c03 <> 'x';\n"
        )
    return text


def _dws(script: int, tables: int) -> str:
    """Each table aggregates the layer below, two of three through a view."""
    text = ""
    for n in range(script * tables, (script + 1) * tables):
        base = f"dwd.d{(n * 7) % 300:04d}"
        if n % 3:
            text += (
                f"CREATE TEMPORARY VIEW v{n:04d} AS\nSELECT *, c04 * 2 AS doubled FROM {base} "
                "WHERE c08;\n"
                if n % 3 == 1
                else f"CREATE TEMPORARY VIEW v{n:04d} AS\nSELECT * FROM {base}\nUNION ALL\n"
                f"SELECT * FROM dwd.d{(n * 11) % 300:04d};\n"
            )
            base = f"v{n:04d}"
        values = [
            (
                f"SUM(CASE WHEN t.c{c:02d} > 10 THEN t.c04 ELSE 0 END)",
                f"MAX(t.c{c:02d})",
                f"COUNT(DISTINCT t.c{c:02d})",
                f"AVG(t.c{c:02d}) FILTER (WHERE t.c08)",
            )[c % 4]
            + f" AS c{c:02d}"
            for c in range(3, COLUMNS)
        ]
        text += (
            "\n"
            + _table(f"dws.s{n:04d}")
            + f"SET 'pipeline.name' = 'dws_s{n:04d}';\nINSERT INTO dws.s{n:04d}\nSELECT\n"
            "  t.id,\n  t.dt,\n  MAX(t.ts) AS ts,\n  "
            + ",\n  ".join(values)
            + f"\nFROM {base} AS t\nGROUP BY t.id, t.dt\nHAVING COUNT(*) > 1;\n"
        )
    return text
