-- ODS: work orders as the business knows them now, one row an order.
--
-- The events arrive late, repeated and out of order. Nothing here removes duplicates by hand:
--   * the primary key keeps one row an order, and `sequence.field` lets the highest version win,
--     in whatever order the files are read;
--   * `changelog-producer = lookup` looks up the row's former value at compaction, so that readers
--     get complete changes (-U and +U) and need no state of their own to find them;
--   * `row-deduplicate` leaves out changes that change nothing (a repeated or superseded event).

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.work_order (
  order_id      BIGINT         COMMENT 'the viewing ticket',
  agent_id      BIGINT         COMMENT 'who shows the property; may be reassigned',
  city_id       BIGINT         COMMENT 'where; may be corrected',
  status        STRING         COMMENT 'submitted, approved, changed or cancelled',
  amount        DECIMAL(10, 2) COMMENT 'value of the ticket in CNY',
  submitted_at  TIMESTAMP(3)   COMMENT 'when it was submitted (UTC); never changes',
  updated_at    TIMESTAMP(3)   COMMENT 'when this version came about (UTC)',
  version       BIGINT         COMMENT 'counts the changes of this order, from 1',
  PRIMARY KEY (order_id) NOT ENFORCED
) COMMENT 'Work orders, newest version' WITH (
  'bucket' = '2',
  'sequence.field' = 'version',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE work_order_events (
  order_id      BIGINT,
  agent_id      BIGINT,
  city_id       BIGINT,
  status        STRING,
  amount        DECIMAL(10, 2),
  submitted_at  TIMESTAMP(3),
  updated_at    TIMESTAMP(3),
  version       BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${LAKE_INPUT}/work_order',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_work_order';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.work_order
SELECT order_id, agent_id, city_id, status, amount, submitted_at, updated_at, version
FROM work_order_events;
