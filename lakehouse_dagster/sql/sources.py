"""What a connector table stands for outside the lake: its asset key, and no secrets.

A key names the system and the thing in it, never the script's name for it where an option says
better, and never a host or an address: these differ from place to place, and may hold secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakehouse_dagster.secret_names import MASK, SECRETS, is_secret
from lakehouse_dagster.sql.variables import placeholder_in

_SECRET_IN_URL = re.compile(
    rf"(?<=://)[^/@\s]+(?=@)|(?<=[?&;])[\w.-]*(?:password|{SECRETS})=[^&;]*", re.I
)
_SINK_ONLY = frozenset({"print", "blackhole"})
_UNSAFE_IN_KEY = re.compile(r"[^\w.\-]+")
_NAMES = {"postgresql": "postgres", "postgre": "postgres", "oceanbase": "oceanbase"}
_DEFAULT_SCHEMAS = {"postgres": "public", "sqlserver": "dbo", "gaussdb": "public"}
_JDBC = re.compile(
    r"jdbc:(?P<system>\w+):(?:thin:@)?(?://)?(?P<host>[^/;?]*)(?:/(?P<database>[^?;/:]+))?", re.I
)
_ORACLE_USER = re.compile(r"(?<=:thin:)[^@]*(?=@)|(?<=:oci:)[^@]*(?=@)", re.I)
_JDBC_DATABASE = re.compile(r"[;?&](?:databaseName|database)=([^;&]+)", re.I)

# System, then for each part of the key the options that may name it, the first given one counting;
# after an `=`, what it is where none is given.
_KEYS: dict[str, tuple[str, ...]] = {
    "kafka": ("kafka", "topic"),
    "upsert-kafka": ("kafka", "topic"),
    "rocketmq": ("rocketmq", "topic"),
    "mq": ("rocketmq", "topic"),
    "mongodb": ("mongodb", "database", "collection"),
    "mongodb-cdc": ("mongodb", "database", "collection"),
    "mongodb-sink": ("mongodb", "database", "collection"),
    "doris": ("doris", "table.identifier"),
    "starrocks": ("starrocks", "database-name", "table-name"),
    "clickhouse": ("clickhouse", "database-name|database=default", "table-name|tableName"),
    "elasticsearch": ("elasticsearch", "index"),
    "elasticsearch-6": ("elasticsearch", "index"),
    "elasticsearch-7": ("elasticsearch", "index"),
    "elasticsearch-8": ("elasticsearch", "index"),
    "opensearch": ("opensearch", "index"),
    "opensearch-1": ("opensearch", "index"),
    "opensearch-2": ("opensearch", "index"),
    "kinesis": ("kinesis", "stream|stream.arn"),
    "kinesis-legacy": ("kinesis", "stream"),
    "firehose": ("firehose", "delivery-stream"),
    "dynamodb": ("dynamodb", "table-name"),
    "rabbitmq": ("rabbitmq", "queue|queue-name"),
    "sls": ("sls", "project", "logstore|logStore"),
    "datahub": ("datahub", "project", "topic"),
    "odps": ("odps", "project|odps.project.name", "tableName|tablename|table-name|table.name"),
    "maxcompute": ("odps", "project|odps.project.name", "tableName|table-name|table.name"),
    "hologres": ("hologres", "dbname", "tablename"),
    "ots": ("ots", "instanceName", "tableName"),
    "kudu": ("kudu", "kudu.table"),
    "mysql": ("mysql", "database-name", "table-name"),
    "iceberg": ("iceberg", "catalog-database=default", "catalog-table"),
    "fluss": ("fluss", "database-name=fluss", "table-name"),
    "socket": ("socket", "port"),
}
_CDC_SYSTEMS = {"ob": "oceanbase", "oceanbase": "oceanbase", "postgresql": "postgres"}
_LEGACY_PREFIX = "connector."
_LEGACY_NAMES = {"table": "table-name", "hbase.table-name": "table-name"}


def mask_secrets(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with the values of secrets replaced; variables are masked as well."""
    return {key: MASK if is_secret(key) else mask_address(value) for key, value in options.items()}


def mask_address(text: str) -> str:
    """Return a text with the users and passwords of addresses in it replaced."""
    return _SECRET_IN_URL.sub(MASK, text)


def is_sink_only(connector: str) -> bool:
    """Whether nothing can be read through the connector."""
    return connector in _SINK_ONLY


def connector_of(options: Mapping[str, str]) -> str:
    """The connector of a table, empty if its options name none (older Flink: connector.type)."""
    return options.get("connector") or options.get("connector.type", "")


def source_key(connector: str, table: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the key parts of the external asset that a connector table reads or writes.

    The same topic or database table has the same key whatever the script calls it. Where an
    option that it would come from is missing or holds a variable, the table's own name is used.

    Args:
        connector: Value of the option ``connector``.
        table: Name of the connector table in the script.
        options: Its ``WITH`` options.
    """
    if "connector.type" in options and "connector" not in options:
        options = _modern(options)
    found = _key_from_options(connector, options)
    parts = found if found and not any(placeholder_in(part) for part in found) else None
    return tuple(key_part(part) for part in parts or (connector, table))


def catalog_key(kind: str, database: str, table: str) -> tuple[str, ...]:
    """Return the key parts of a table of another catalog, such as a Hive metastore's.

    Args:
        kind: The catalog's type; of a JDBC catalog, the system that it shows.
    """
    system = _NAMES.get(kind, kind)
    names = _in_schema(system, table) if system in _DEFAULT_SCHEMAS else (table,)
    return tuple(key_part(part) for part in (system, database, *names))


def catalog_kind(options: Mapping[str, str]) -> str:
    """Return a catalog's type; of a JDBC catalog, the system that it shows."""
    kind = options.get("type", "unknown")
    if kind == "jdbc" and (url := _JDBC.match(options.get("base-url", ""))):
        return _NAMES.get(url["system"].lower(), url["system"].lower())
    return kind


def key_part(text: str) -> str:
    """Return the text with all but letters, digits, ``_``, ``.`` and ``-`` made ``_``."""
    return _UNSAFE_IN_KEY.sub("_", text).strip("_") or "_"


def _key_from_options(connector: str, options: Mapping[str, str]) -> tuple[str, ...] | None:
    if connector in _KEYS:
        return _from_table(_KEYS[connector], options)
    if connector in ("pulsar", "upsert-pulsar"):
        return _pulsar(options.get("topics") or options.get("topic", ""))
    if connector.startswith("hbase"):
        namespace, _, name = options.get("table-name", "").rpartition(":")
        return _parts("hbase", namespace or "default", name)
    if connector in ("filesystem", "paimon", "hudi", "delta", "hive"):
        return _from_path(connector, options)
    if connector.endswith("-cdc"):
        return _from_cdc(connector.removesuffix("-cdc"), options)
    if connector.startswith("jdbc"):
        return _from_jdbc(options)
    return None


def _from_table(rule: tuple[str, ...], options: Mapping[str, str]) -> tuple[str, ...] | None:
    system, *parts = rule
    found: list[str] = []
    for part in parts:
        names, _, default = part.partition("=")
        value = next((options[name] for name in names.split("|") if options.get(name)), default)
        found.append(value.rsplit("/", 1)[-1] if names == "stream|stream.arn" else value)
    if system == "doris" and found[0]:
        found = found[0].split(".")
    return _parts(system, *found)


def _pulsar(topic: str) -> tuple[str, ...] | None:
    segments = [part for part in re.sub(r"^\w[\w-]*://", "", topic).split("/") if part]
    if not segments:
        return None
    whole = ["public", "default"][: max(3 - len(segments), 0)] + segments
    return _parts("pulsar", *whole)


def _from_path(connector: str, options: Mapping[str, str]) -> tuple[str, ...] | None:
    if connector == "hudi" and options.get("hoodie.table.name"):
        database = options.get("hoodie.database.name")
        names = (database, options["hoodie.table.name"])
        return _parts("hudi", *(name for name in names if name))
    segments = _last_segments(options.get("path") or options.get("table-path", ""))
    if connector != "filesystem":
        segments = tuple(segment.removesuffix(".db") for segment in segments)
    return _parts(connector, *segments)


def _from_cdc(system: str, options: Mapping[str, str]) -> tuple[str, ...] | None:
    system = _CDC_SYSTEMS.get(system, system)
    names = ("database-name", "schema-name", "keyspace", "table-name")
    found = [options[name] for name in names if options.get(name)]
    if system in _DEFAULT_SCHEMAS and "schema-name" not in options and found:
        found = [*found[:-1], *_in_schema(system, found[-1])]
    return _parts(system, *found) if options.get("table-name") else None


def _from_jdbc(options: Mapping[str, str]) -> tuple[str, ...] | None:
    address = _ORACLE_USER.sub("", options.get("url", ""))
    url = _JDBC.match(address)
    name = options.get("table-name", "")
    if url is None or not name:
        return None
    system = _NAMES.get(url["system"].lower(), url["system"].lower())
    named = _JDBC_DATABASE.search(address)
    database = named[1] if named else url["database"]
    if system == "oracle" and database is None:
        # jdbc:oracle:thin:@host:1521:sid
        database = url["host"].rsplit(":", 1)[-1]
    names = _in_schema(system, name) if system in _DEFAULT_SCHEMAS else tuple(name.split("."))
    if system == "mysql" and len(names) == 2:
        database, names = names[0], names[1:]
    return _parts(system, database, *names)


def _in_schema(system: str, name: str) -> tuple[str, ...]:
    """Schema and table of a name such as ``sales.orders``."""
    schema, _, table = name.rpartition(".")
    return (schema.strip('"') or _DEFAULT_SCHEMAS[system], table.strip('"'))


def _modern(options: Mapping[str, str]) -> dict[str, str]:
    """Options of Flink before 1.11 (``connector.topic``) under their names of today."""
    found = {}
    for key, value in options.items():
        name = key.removeprefix(_LEGACY_PREFIX)
        found[_LEGACY_NAMES.get(name, name)] = value
    return found


def _parts(system: str, *names: str | None) -> tuple[str, ...] | None:
    if not names or not all(names):
        return None
    return (system, *(name for name in names if name))


def _last_segments(path: str) -> tuple[str, ...]:
    """Return the last two folders of a path, none from before a variable."""
    segments = [s for s in re.sub(r"^\w+:/*", "", path).split("/") if s]
    kept: list[str] = []
    for segment in reversed(segments[-2:]):
        if placeholder_in(segment):
            break
        kept.insert(0, segment.rpartition("@")[2])
    return tuple(kept)
