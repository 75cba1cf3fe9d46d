-- ODS: one row a flight, put together from two messages: its departure (or cancellation) and, later,
-- its arrival.
--
-- `merge-engine = partial-update` does the putting together: each message fills in its own columns
-- and leaves the others (NULL in the message) as they are. The two messages never give different
-- values to one column, so neither their order nor a repeat matters. An arrival names the plane and
-- the destination again, so that the keys of the later joins are the same whichever message is read
-- first.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.flight (
  flight_month    STRING       COMMENT 'yyyyMM of the flight''s date (New York)',
  flight_date     DATE         COMMENT 'date of the scheduled departure (New York)',
  time_hour       TIMESTAMP(3) COMMENT 'hour of the scheduled departure (UTC)',
  carrier         STRING       COMMENT 'two letters, see ods.airline',
  flight          INT          COMMENT 'flight number',
  origin          STRING       COMMENT 'EWR, JFK or LGA',
  dest            STRING       COMMENT 'destination, FAA code',
  tailnum         STRING       COMMENT 'the plane; NULL for some cancelled flights',
  distance        INT          COMMENT 'miles',
  sched_dep_time  INT          COMMENT 'HHMM, local time',
  sched_arr_time  INT          COMMENT 'HHMM, local time',
  dep_time        INT          COMMENT 'HHMM, local time; NULL: cancelled',
  dep_delay       INT          COMMENT 'minutes; negative: early',
  arr_time        INT          COMMENT 'HHMM, local time; NULL: not arrived (yet)',
  arr_delay       INT          COMMENT 'minutes; NULL also for diverted flights',
  air_time        INT          COMMENT 'minutes in the air',
  PRIMARY KEY (flight_month, time_hour, carrier, flight, origin) NOT ENFORCED
) COMMENT 'Flights out of New York City in 2013' PARTITIONED BY (flight_month) WITH (
  'bucket' = '1',
  'merge-engine' = 'partial-update',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE flight_messages (
  message         STRING,
  flight_date     DATE,
  time_hour       TIMESTAMP(3),
  carrier         STRING,
  flight          INT,
  origin          STRING,
  dest            STRING,
  tailnum         STRING,
  distance        INT,
  sched_dep_time  INT,
  sched_arr_time  INT,
  dep_time        INT,
  dep_delay       INT,
  arr_time        INT,
  arr_delay       INT,
  air_time        INT
) WITH (
  'connector' = 'filesystem',
  'path' = '${FLIGHTS_INPUT}/flight',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_flight';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.flight
SELECT
  DATE_FORMAT(CAST(flight_date AS TIMESTAMP(3)), 'yyyyMM') AS flight_month,
  flight_date, time_hour, carrier, flight, origin, dest, tailnum,
  distance, sched_dep_time, sched_arr_time, dep_time, dep_delay,
  arr_time, arr_delay, air_time
FROM flight_messages;
