-- ODS: airlines by their two letters.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.airline (
  carrier  STRING COMMENT 'two letters',
  name     STRING COMMENT 'name',
  PRIMARY KEY (carrier) NOT ENFORCED
) COMMENT 'Airlines' WITH (
  'bucket' = '1',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE airline_rows (
  carrier  STRING,
  name     STRING
) WITH (
  'connector' = 'filesystem',
  'path' = '${FLIGHTS_INPUT}/airline',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_airline';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.airline
SELECT carrier, name
FROM airline_rows;
