-- ODS: airports by FAA code. Four destinations of 2013 are not among them.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.airport (
  faa    STRING COMMENT 'FAA code',
  name   STRING COMMENT 'name',
  lat    DOUBLE COMMENT 'degrees',
  lon    DOUBLE COMMENT 'degrees',
  alt    INT    COMMENT 'feet',
  tzone  STRING COMMENT 'IANA time zone; NULL for a few',
  PRIMARY KEY (faa) NOT ENFORCED
) COMMENT 'Airports' WITH (
  'bucket' = '1',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE airport_rows (
  faa    STRING,
  name   STRING,
  lat    DOUBLE,
  lon    DOUBLE,
  alt    INT,
  tzone  STRING
) WITH (
  'connector' = 'filesystem',
  'path' = '${FLIGHTS_INPUT}/airport',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_airport';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.airport
SELECT faa, name, lat, lon, alt, tzone
FROM airport_rows;
