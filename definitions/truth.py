"""What each table of the work-order story must hold, computed from the simulator's event log.

The same questions as in ``definitions/sql``, asked in another engine (DuckDB) of all events at
once, with no stream, no changelog and no order of arrival.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from definitions.business import AGENT, CITY, KINDS, WORK_ORDER
from definitions.event_log import CommittedRound, EventLog

if TYPE_CHECKING:
    import duckdb

EVENT_COLUMNS: dict[str, dict[str, str]] = {
    WORK_ORDER: {
        "order_id": "BIGINT",
        "agent_id": "BIGINT",
        "city_id": "BIGINT",
        "status": "VARCHAR",
        "amount": "DECIMAL(10, 2)",
        "submitted_at": "TIMESTAMP",
        "updated_at": "TIMESTAMP",
        "version": "BIGINT",
    },
    AGENT: {
        "agent_id": "BIGINT",
        "agent_name": "VARCHAR",
        "team": "VARCHAR",
        "updated_at": "TIMESTAMP",
        "version": "BIGINT",
    },
    CITY: {
        "city_id": "BIGINT",
        "city_name": "VARCHAR",
        "region": "VARCHAR",
        "updated_at": "TIMESTAMP",
        "version": "BIGINT",
    },
}

_NEWEST = """
    SELECT * FROM {kind}_event
    QUALIFY row_number() OVER (PARTITION BY {kind_key} ORDER BY version DESC) = 1
"""

_WIDE = """
    SELECT
      strftime(o.submitted_at, '%Y%m%d') AS dt, o.order_id, o.agent_id, a.agent_name, a.team,
      o.city_id, c.city_name, c.region, o.status, o.amount, o.submitted_at, o.updated_at,
      o.version AS order_version
    FROM newest_work_order o
    LEFT JOIN newest_agent a USING (agent_id)
    LEFT JOIN newest_city c USING (city_id)
    WHERE o.status <> 'cancelled'
"""

EXPECTED: dict[str, str] = {
    "ods.work_order": "SELECT * FROM newest_work_order",
    "ods.agent": "SELECT * FROM newest_agent",
    "ods.city": "SELECT * FROM newest_city",
    "dwd.work_order": "SELECT * FROM wide_work_order",
    "app.agent_day": """
        SELECT
          dt, agent_id, any_value(agent_name) AS agent_name, any_value(team) AS team,
          count(*) AS orders, count(*) FILTER (status = 'approved') AS approved_orders,
          CAST(sum(amount) AS DECIMAL(20, 2)) AS amount,
          CAST(coalesce(sum(amount) FILTER (status = 'approved'), 0) AS DECIMAL(20, 2))
            AS approved_amount
        FROM wide_work_order GROUP BY dt, agent_id
    """,
    "app.city_hour": """
        SELECT
          dt, strftime(submitted_at, '%H') AS hh, city_id, any_value(city_name) AS city_name,
          any_value(region) AS region, count(*) AS orders, count(DISTINCT agent_id) AS agents,
          CAST(sum(amount) AS DECIMAL(20, 2)) AS amount
        FROM wide_work_order GROUP BY dt, hh, city_id
    """,
}
"""The rows that each table must hold, as SQL over a connection made by ``load_events``."""


def load_events(log: EventLog, upto: CommittedRound) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with every event from the first round to ``upto``, with it.

    Tables ``work_order_event``, ``agent_event``, ``city_event``, and views of the newest versions.
    """
    return connect({kind: log.read(kind, upto) for kind in KINDS})


def connect(events: dict[str, bytes]) -> duckdb.DuckDBPyConnection:
    """The same from JSON lines given directly, by kind."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'").fetchall()
    with tempfile.TemporaryDirectory(prefix="lakehouse-truth-") as folder:
        for kind in KINDS:
            path = Path(folder) / f"{kind}.jsonl"
            path.write_bytes(events.get(kind, b""))
            columns = ", ".join(f"{name}: '{type_}'" for name, type_ in EVENT_COLUMNS[kind].items())
            connection.execute(
                f"CREATE TABLE {kind}_event AS SELECT * FROM "  # noqa: S608 (names of our own)
                f"read_json(?, format = 'newline_delimited', columns = {{{columns}}})",
                [str(path)],
            ).fetchall()
            newest = _NEWEST.format(kind=kind, kind_key=next(iter(EVENT_COLUMNS[kind])))
            connection.execute(f"CREATE VIEW newest_{kind} AS {newest}").fetchall()
    connection.execute(f"CREATE VIEW wide_work_order AS {_WIDE}").fetchall()
    return connection
