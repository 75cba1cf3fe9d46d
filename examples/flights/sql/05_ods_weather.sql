-- ODS: the weather of every hour at the three airports; some hours are missing.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.weather (
  origin      STRING        COMMENT 'EWR, JFK or LGA',
  time_hour   TIMESTAMP(3)  COMMENT 'hour (UTC)',
  temp        DECIMAL(5, 2) COMMENT 'Fahrenheit',
  wind_speed  DOUBLE        COMMENT 'miles an hour',
  precip      DECIMAL(4, 2) COMMENT 'inches',
  visib       DECIMAL(4, 2) COMMENT 'miles',
  PRIMARY KEY (origin, time_hour) NOT ENFORCED
) COMMENT 'Weather at the origin, by the hour' WITH (
  'bucket' = '1',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE weather_rows (
  origin      STRING,
  time_hour   TIMESTAMP(3),
  temp        DECIMAL(5, 2),
  wind_speed  DOUBLE,
  precip      DECIMAL(4, 2),
  visib       DECIMAL(4, 2)
) WITH (
  'connector' = 'filesystem',
  'path' = '${FLIGHTS_INPUT}/weather',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_weather';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.weather
SELECT origin, time_hour, temp, wind_speed, precip, visib
FROM weather_rows;
