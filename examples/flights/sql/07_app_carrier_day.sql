-- APP: how every airline did on every day.

CREATE DATABASE IF NOT EXISTS app;

CREATE TABLE IF NOT EXISTS app.carrier_day (
  flight_month       STRING COMMENT 'yyyyMM (New York)',
  dt                 STRING COMMENT 'yyyyMMdd (New York)',
  carrier            STRING COMMENT 'two letters',
  airline            STRING COMMENT 'name of the airline',
  flights            BIGINT COMMENT 'scheduled flights',
  cancelled          BIGINT COMMENT 'of these, never departed',
  arrived            BIGINT COMMENT 'of these, arrived where they should',
  dep_delay_minutes  BIGINT COMMENT 'sum of the departure delays; NULL when none departed',
  arr_delay_minutes  BIGINT COMMENT 'sum of the arrival delays; NULL when none arrived',
  worst_dep_delay    INT    COMMENT 'minutes; NULL when none departed',
  miles              BIGINT COMMENT 'sum of the distances',
  seats              BIGINT COMMENT 'seats of the planes that are known; NULL when none is',
  destinations       BIGINT COMMENT 'different destinations',
  rainy              BIGINT COMMENT 'flights scheduled in an hour with rain or snow',
  PRIMARY KEY (flight_month, dt, carrier) NOT ENFORCED
) COMMENT 'Flights per airline and day' PARTITIONED BY (flight_month) WITH (
  'bucket' = '1'
);

SET 'pipeline.name' = 'app_carrier_day';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO app.carrier_day
SELECT
  flight_month,
  dt,
  carrier,
  MAX(airline) AS airline,
  COUNT(*) AS flights,
  COUNT(*) FILTER (WHERE cancelled) AS cancelled,
  COUNT(arr_delay) AS arrived,
  SUM(CAST(dep_delay AS BIGINT)) AS dep_delay_minutes,
  SUM(CAST(arr_delay AS BIGINT)) AS arr_delay_minutes,
  MAX(dep_delay) AS worst_dep_delay,
  SUM(CAST(distance AS BIGINT)) AS miles,
  SUM(CAST(seats AS BIGINT)) AS seats,
  COUNT(DISTINCT dest) AS destinations,
  COUNT(*) FILTER (WHERE precip > 0) AS rainy
FROM dwd.flight
GROUP BY flight_month, dt, carrier;
