"""System databases as released versions left them: frozen text, not made by today's code."""

from __future__ import annotations

import sqlite3

V0001 = """
CREATE TABLE lakehouse_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT lakehouse_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE lakehouse_lease (
    key VARCHAR(512) NOT NULL,
    fencing BIGINT NOT NULL,
    holder TEXT,
    ttl_seconds FLOAT,
    expires_at {time},
    CONSTRAINT pk_lakehouse_lease PRIMARY KEY (key)
);
CREATE TABLE lakehouse_job (
    lakehouse VARCHAR(255) NOT NULL,
    name VARCHAR(255) NOT NULL,
    desired VARCHAR(32) NOT NULL,
    fingerprint VARCHAR(128),
    attempts INTEGER NOT NULL,
    next_attempt_at {time},
    last_error TEXT,
    fencing BIGINT NOT NULL,
    updated_at {time} NOT NULL,
    CONSTRAINT pk_lakehouse_job PRIMARY KEY (lakehouse, name)
);
CREATE TABLE lakehouse_incarnation (
    lakehouse VARCHAR(255) NOT NULL,
    job_name VARCHAR(255) NOT NULL,
    number INTEGER NOT NULL,
    flink_job_id VARCHAR(32) NOT NULL,
    fingerprint VARCHAR(128) NOT NULL,
    state VARCHAR(32) NOT NULL,
    session_handle TEXT,
    operation_handle TEXT,
    restored_from TEXT,
    fencing BIGINT NOT NULL,
    recorded_at {time} NOT NULL,
    submitted_at {time},
    running_at {time},
    ended_at {time},
    stop_trigger_id VARCHAR(64),
    savepoint_path TEXT,
    checkpoint_path TEXT,
    checkpoint_id BIGINT,
    checkpoint_at {time},
    restarts INTEGER NOT NULL,
    restarts_before_window INTEGER NOT NULL,
    restart_window_at {time},
    end_reason TEXT,
    CONSTRAINT pk_lakehouse_incarnation PRIMARY KEY (lakehouse, job_name, number),
    CONSTRAINT fk_lakehouse_incarnation_lakehouse_job FOREIGN KEY(lakehouse, job_name)
        REFERENCES lakehouse_job (lakehouse, name)
);
CREATE INDEX ix_lakehouse_incarnation_flink_job_id ON lakehouse_incarnation (flink_job_id);
INSERT INTO lakehouse_version VALUES ('0001');
INSERT INTO lakehouse_lease VALUES
    ('job/lake/orders', 7, 'run 1a2b', 60.0, '2026-01-02 03:05:05.678901{utc}'),
    ('job/lake/users', 3, NULL, NULL, NULL);
INSERT INTO lakehouse_job VALUES
    ('lake', 'orders', 'RUNNING', 'print 2', 2, '2026-01-02 03:09:05.678901{utc}',
     'no slot free', 7, '2026-01-02 03:04:05.678901{utc}'),
    ('lake', 'users', 'UNMANAGED', NULL, 0, NULL, NULL, 0, '2026-01-01 00:00:00.000000{utc}'),
    ('other', 'orders', 'CANCELED', NULL, 0, NULL, NULL, 1, '2026-01-01 00:00:00.000000{utc}');
INSERT INTO lakehouse_incarnation VALUES
    ('lake', 'orders', 1, '2361dfc66b4755198d4e4b3a360b080b', 'print 1', 'STOPPED', 'session 1',
     'operation 1', NULL, 5, '2026-01-01 01:00:00.000001{utc}', '2026-01-01 01:00:01.000000{utc}',
     '2026-01-01 01:00:09.000000{utc}', '2026-01-01 02:00:00.000000{utc}', 'trigger',
     'file:///savepoints/1', 'file:///checkpoints/chk-12', 12, '2026-01-01 01:59:00.000000{utc}',
     4, 1, '2026-01-01 01:30:00.000000{utc}', 'stopped with a savepoint'),
    ('lake', 'orders', 2, 'f00df00df00df00df00df00df00df00d', 'print 2', 'RUNNING', 'session 2',
     NULL, 'file:///savepoints/1', 7, '2026-01-02 03:00:00.000000{utc}', NULL, NULL, NULL, NULL,
     NULL, NULL, NULL, NULL, 0, 0, NULL, NULL);
"""
"""Version 0.1.0 of the tables, with rows; ``{time}`` is the type of a point in time and ``{utc}``
what is written behind one."""


def make_v0001(url: str) -> None:
    """Make a database of version 0001 with rows, on SQLite or Postgres."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(V0001.format(time="DATETIME", utc=""))
        connection.close()
        return
    import psycopg

    with psycopg.connect(url) as server:
        server.execute(V0001.format(time="TIMESTAMP WITH TIME ZONE", utc="+00").encode())
