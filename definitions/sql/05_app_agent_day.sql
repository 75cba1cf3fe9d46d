-- APP: what every agent did on every day of submission; feeds the assessment of agents.
--
-- A plain GROUP BY over the changelog of dwd.work_order: a change takes the old row out and puts
-- the new one in; a group whose last order is cancelled or moves away is deleted, not left as 0.
-- The agent's name and team are the same in all rows of the agent once a change has passed
-- through. They are aggregated, not grouped by: were the team part of the group, a move would
-- delete one group and insert another under the same primary key, in no certain order.

CREATE DATABASE IF NOT EXISTS app;

CREATE TABLE IF NOT EXISTS app.agent_day (
  dt               STRING         COMMENT 'day of submission, yyyyMMdd (UTC)',
  agent_id         BIGINT         COMMENT 'the agent',
  agent_name       STRING         COMMENT 'name of the agent now',
  team             STRING         COMMENT 'team of the agent now',
  orders           BIGINT         COMMENT 'orders submitted that day and not cancelled',
  approved_orders  BIGINT         COMMENT 'of these, approved',
  amount           DECIMAL(20, 2) COMMENT 'value of these orders in CNY',
  approved_amount  DECIMAL(20, 2) COMMENT 'value of the approved ones in CNY; 0 without any',
  PRIMARY KEY (dt, agent_id) NOT ENFORCED
) COMMENT 'Orders per agent and day' PARTITIONED BY (dt) WITH (
  'bucket' = '1'
);

SET 'pipeline.name' = 'app_agent_day';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO app.agent_day
SELECT
  dt,
  agent_id,
  MAX(agent_name) AS agent_name,
  MAX(team) AS team,
  COUNT(*) AS orders,
  COUNT(*) FILTER (WHERE status = 'approved') AS approved_orders,
  CAST(SUM(amount) AS DECIMAL(20, 2)) AS amount,
  CAST(SUM(CASE WHEN status = 'approved' THEN amount ELSE 0 END) AS DECIMAL(20, 2)) AS approved_amount
FROM dwd.work_order
GROUP BY dt, agent_id;
