-- APP: orders of every city by the hour of submission.

CREATE DATABASE IF NOT EXISTS app;

CREATE TABLE IF NOT EXISTS app.city_hour (
  dt         STRING         COMMENT 'day of submission, yyyyMMdd (UTC)',
  hh         STRING         COMMENT 'hour of submission, 00 to 23 (UTC)',
  city_id    BIGINT         COMMENT 'the city',
  city_name  STRING         COMMENT 'name of the city now',
  region     STRING         COMMENT 'sales region of the city now',
  orders     BIGINT         COMMENT 'orders submitted in that hour and not cancelled',
  agents     BIGINT         COMMENT 'different agents among them',
  amount     DECIMAL(20, 2) COMMENT 'value of these orders in CNY',
  PRIMARY KEY (dt, hh, city_id) NOT ENFORCED
) COMMENT 'Orders per city and hour' PARTITIONED BY (dt) WITH (
  'bucket' = '1'
);

SET 'pipeline.name' = 'app_city_hour';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO app.city_hour
SELECT
  dt,
  DATE_FORMAT(submitted_at, 'HH') AS hh,
  city_id,
  MAX(city_name) AS city_name,
  MAX(region) AS region,
  COUNT(*) AS orders,
  COUNT(DISTINCT agent_id) AS agents,
  CAST(SUM(amount) AS DECIMAL(20, 2)) AS amount
FROM dwd.work_order
GROUP BY dt, DATE_FORMAT(submitted_at, 'HH'), city_id;
