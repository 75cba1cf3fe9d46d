"""The configuration files of the local Flink: ``config.yaml`` and the log configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakehouse_dagster.local.filesystem import write_atomically
from lakehouse_dagster.local.ports import HOST

if TYPE_CHECKING:
    from pathlib import Path

    from lakehouse_dagster.local.settings import Ports, StackFolders, StackSettings

_LOG_FILE_MIB = 10
_OLDER_LOG_FILES = 3

# Rolling by size: a demo that runs over night must not fill the disk.
LOG4J_PROPERTIES = f"""\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = File
appender.file.name = File
appender.file.type = RollingFile
appender.file.fileName = ${{sys:log.file}}
appender.file.filePattern = ${{sys:log.file}}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %-5p %c{{1}} [%t] - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = {_LOG_FILE_MIB}MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = {_OLDER_LOG_FILES}
logger.pekko.name = org.apache.pekko
logger.pekko.level = WARN
logger.hadoop.name = org.apache.hadoop
logger.hadoop.level = ERROR
logger.netty.name = org.jboss.netty.channel.DefaultChannelPipeline
logger.netty.level = OFF
"""


def flink_options(settings: StackSettings, ports: Ports, folders: StackFolders) -> dict[str, str]:
    """Every option of the stack; the user's ``extra_config`` comes last and wins."""
    interval_ms = round(settings.checkpoint_interval_seconds * 1000)
    return {
        # Only this machine may reach it: nothing here asks for a password.
        "jobmanager.rpc.address": HOST,
        "jobmanager.bind-host": HOST,
        "jobmanager.rpc.port": str(ports.rpc),
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "rest.address": HOST,
        "rest.bind-address": HOST,
        # Not rest.bind-port: the SQL Gateway would take it for its own.
        "rest.port": str(ports.rest),
        "sql-gateway.endpoint.rest.address": HOST,
        "sql-gateway.endpoint.rest.bind-address": HOST,
        "sql-gateway.endpoint.rest.port": str(ports.sql_gateway),
        # Without these two any web page open in the user's browser could read the cluster or
        # upload code to it.
        "web.access-control-allow-origin": f"http://{HOST}:{ports.rest}",
        "web.submit.enable": "false",
        "taskmanager.numberOfTaskSlots": str(settings.slots),
        "parallelism.default": "1",
        **settings.memory.options(settings.slots),
        "execution.checkpointing.interval": f"{interval_ms}ms",
        "execution.checkpointing.timeout": "5min",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": str(settings.checkpoints_retained),
        # Plain "file://" and the path as it is: Flink does not decode %20.
        "execution.checkpointing.dir": f"file://{folders.checkpoints}",
        "execution.checkpointing.savepoint-dir": f"file://{folders.savepoints}",
        # Ten failures close together end a job; after five quiet minutes the count starts anew.
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.initial-backoff": "1s",
        "restart-strategy.exponential-delay.max-backoff": "20s",
        "restart-strategy.exponential-delay.backoff-multiplier": "1.5",
        "restart-strategy.exponential-delay.reset-backoff-threshold": "5min",
        "restart-strategy.exponential-delay.attempts-before-reset-backoff": "10",
        # Two missed calls find a dead TaskManager (heartbeat.rpc-failure-threshold): 10 s, not 20.
        "heartbeat.interval": "5s",
        # A TaskManager without JobManager would end itself after 5 minutes.
        "taskmanager.registration.timeout": "1d",
        **settings.extra_config,
    }


def write_configuration(settings: StackSettings, ports: Ports, folders: StackFolders) -> None:
    """Write both files into the stack's configuration folder."""
    options = flink_options(settings, ports, folders)
    # A JSON string is a YAML string, whatever characters it holds.
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in options.items()]
    write_atomically(folders.configuration / "config.yaml", "".join(lines))
    write_atomically(log4j_path(folders), LOG4J_PROPERTIES)


def log4j_path(folders: StackFolders) -> Path:
    """The log configuration of all services."""
    return folders.configuration / "log4j.properties"
