-- ODS: cities as they are now. A city may move to another sales region or be renamed.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.city (
  city_id     BIGINT       COMMENT 'the city',
  city_name   STRING       COMMENT 'name now',
  region      STRING       COMMENT 'sales region now',
  updated_at  TIMESTAMP(3) COMMENT 'when this version came about (UTC)',
  version     BIGINT       COMMENT 'counts the changes of this city, from 1',
  PRIMARY KEY (city_id) NOT ENFORCED
) COMMENT 'Cities, newest version' WITH (
  'bucket' = '1',
  'sequence.field' = 'version',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE city_events (
  city_id     BIGINT,
  city_name   STRING,
  region      STRING,
  updated_at  TIMESTAMP(3),
  version     BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${LAKE_INPUT}/city',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_city';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.city
SELECT city_id, city_name, region, updated_at, version
FROM city_events;
