-- ODS: planes by tail number. Many tail numbers of 2013 are not among them.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.plane (
  tailnum       STRING COMMENT 'the plane',
  built         INT    COMMENT 'year; NULL where it is not known',
  manufacturer  STRING COMMENT 'manufacturer',
  `model`       STRING COMMENT 'model',
  seats         INT    COMMENT 'seats',
  PRIMARY KEY (tailnum) NOT ENFORCED
) COMMENT 'Planes' WITH (
  'bucket' = '1',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE plane_rows (
  tailnum       STRING,
  built         INT,
  manufacturer  STRING,
  `model`       STRING,
  seats         INT
) WITH (
  'connector' = 'filesystem',
  'path' = '${FLIGHTS_INPUT}/plane',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_plane';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.plane
SELECT tailnum, built, manufacturer, `model`, seats
FROM plane_rows;
