-- ODS: agents as they are now. Their rows change (name, team), and an agent's first row may come
-- after the first order that names the agent.

CREATE DATABASE IF NOT EXISTS ods;

CREATE TABLE IF NOT EXISTS ods.agent (
  agent_id    BIGINT       COMMENT 'the agent',
  agent_name  STRING       COMMENT 'name now',
  team        STRING       COMMENT 'team now; agents move between teams',
  updated_at  TIMESTAMP(3) COMMENT 'when this version came about (UTC)',
  version     BIGINT       COMMENT 'counts the changes of this agent, from 1',
  PRIMARY KEY (agent_id) NOT ENFORCED
) COMMENT 'Agents, newest version' WITH (
  'bucket' = '1',
  'sequence.field' = 'version',
  'changelog-producer' = 'lookup',
  'changelog-producer.row-deduplicate' = 'true'
);

CREATE TEMPORARY TABLE agent_events (
  agent_id    BIGINT,
  agent_name  STRING,
  team        STRING,
  updated_at  TIMESTAMP(3),
  version     BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = '${LAKE_INPUT}/agent',
  'format' = 'json',
  'source.monitor-interval' = '1s'
);

SET 'pipeline.name' = 'ods_agent';
SET 'execution.checkpointing.interval' = '${LAKE_CHECKPOINT_INTERVAL:-5s}';
SET 'table.exec.sink.upsert-materialize' = 'NONE';

INSERT INTO ods.agent
SELECT agent_id, agent_name, team, updated_at, version
FROM agent_events;
