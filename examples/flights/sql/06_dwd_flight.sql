-- DWD: every flight with its airline, plane, destination and the weather of its hour.
--
-- Regular joins: a flight whose plane, airport or weather is not known (or not known yet) has NULLs
-- there, and is corrected when the row comes. A flight's join keys never change, so all changes of
-- one flight take one path and reach the table in order.
--
-- The four joins keep every flight of the year as state (and nothing expires), which is more than a
-- small TaskManager's heap: RocksDB holds it on disk, and checkpoints upload only what is new.

CREATE DATABASE IF NOT EXISTS dwd;

CREATE TABLE IF NOT EXISTS dwd.flight (
  flight_month   STRING        COMMENT 'yyyyMM of the flight''s date (New York)',
  dt             STRING        COMMENT 'yyyyMMdd of the flight''s date (New York)',
  time_hour      TIMESTAMP(3)  COMMENT 'hour of the scheduled departure (UTC)',
  carrier        STRING        COMMENT 'two letters',
  airline        STRING        COMMENT 'name of the airline',
  flight         INT           COMMENT 'flight number',
  origin         STRING        COMMENT 'EWR, JFK or LGA',
  dest           STRING        COMMENT 'destination, FAA code',
  dest_name      STRING        COMMENT 'name of the destination',
  tailnum        STRING        COMMENT 'the plane',
  manufacturer   STRING        COMMENT 'manufacturer of the plane',
  seats          INT           COMMENT 'seats of the plane',
  distance       INT           COMMENT 'miles',
  sched_dep_time INT           COMMENT 'HHMM, local time',
  sched_arr_time INT           COMMENT 'HHMM, local time',
  cancelled      BOOLEAN       COMMENT 'it never departed',
  dep_time       INT           COMMENT 'HHMM, local time; NULL: cancelled',
  dep_delay      INT           COMMENT 'minutes; negative: early',
  arr_time       INT           COMMENT 'HHMM, local time; NULL: not arrived (yet)',
  arr_delay      INT           COMMENT 'minutes; NULL also for diverted flights',
  air_time       INT           COMMENT 'minutes in the air',
  temp           DECIMAL(5, 2) COMMENT 'Fahrenheit at the origin in that hour',
  wind_speed     DOUBLE        COMMENT 'miles an hour',
  precip         DECIMAL(4, 2) COMMENT 'inches',
  visib          DECIMAL(4, 2) COMMENT 'miles',
  PRIMARY KEY (flight_month, time_hour, carrier, flight, origin) NOT ENFORCED
) COMMENT 'Flights with airline, plane, destination and weather' PARTITIONED BY (flight_month) WITH (
  'bucket' = '1',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

SET 'pipeline.name' = 'dwd_flight';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';
SET 'state.backend.type' = 'rocksdb';
SET 'state.backend.rocksdb.memory.fixed-per-slot' = '96mb';
SET 'execution.checkpointing.incremental' = 'true';

INSERT INTO dwd.flight
SELECT
  f.flight_month,
  DATE_FORMAT(CAST(f.flight_date AS TIMESTAMP(3)), 'yyyyMMdd') AS dt,
  f.time_hour,
  f.carrier,
  l.name AS airline,
  f.flight,
  f.origin,
  f.dest,
  d.name AS dest_name,
  f.tailnum,
  p.manufacturer,
  p.seats,
  f.distance,
  f.sched_dep_time,
  f.sched_arr_time,
  f.dep_time IS NULL AS cancelled,
  f.dep_time,
  f.dep_delay,
  f.arr_time,
  f.arr_delay,
  f.air_time,
  w.temp,
  w.wind_speed,
  w.precip,
  w.visib
FROM ods.flight AS f
LEFT JOIN ods.airline AS l ON f.carrier = l.carrier
LEFT JOIN ods.plane AS p ON f.tailnum = p.tailnum
LEFT JOIN ods.airport AS d ON f.dest = d.faa
LEFT JOIN ods.weather AS w ON f.origin = w.origin AND f.time_hour = w.time_hour;
