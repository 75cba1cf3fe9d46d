"""The attributes of the component as they stand in ``defs.yaml``: its schema, and no more.

Every value is as written, templates not filled in; ``lakehouse.py`` makes objects of them.
"""

from dataclasses import fields
from typing import Any, TypeAlias

import dagster as dg
from dagster.components import DefsStateConfigArgs
from pydantic import ConfigDict, Field
from pydantic.config import JsonDict, JsonValue

from lakehouse_dagster.components.schema import without_alternatives
from lakehouse_dagster.maintenance import spec as maintenance
from lakehouse_dagster.maintenance.spec import Limits
from lakehouse_dagster.streaming.spec import ProgressPolicy, SupervisionPolicy

Settings: TypeAlias = dict[str, bool | int | str]
Part: TypeAlias = dict[str, bool | int | float | str] | bool | None
"""The settings of a part of a maintenance policy; true: as by default, false: not at all."""
Texts: TypeAlias = str | list[str]


class _Attributes(dg.Model):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class CatalogAttributes(_Attributes):
    """Where the Paimon catalog is."""

    warehouse: str = Field(description="Folder or URI of the tables, such as s3://bucket/lake.")
    name: str = Field("lake", description="What Flink SQL calls the catalog.")
    metastore: str = Field("filesystem", description="filesystem, hive, jdbc or rest.")
    uri: str | None = Field(None, description="Address of a hive, jdbc or rest metastore.")
    options: dict[str, str] = Field(
        default_factory=dict, description="Further options, for Flink and for reading."
    )


class OtherCatalogAttributes(CatalogAttributes):
    """A further Paimon catalog that scripts may name; its tables are read, never written."""

    name: str = Field(description="What Flink SQL calls the catalog.")
    key_prefix: Texts = Field(
        default_factory=list, description="Comes first in the asset keys of its tables."
    )


class AuthAttributes(_Attributes):
    """Username and password, or a token; secrets only as ``{{ env.NAME }}``."""

    username: str | None = None
    password: str | None = Field(None, description='"{{ env.NAME }}" and nothing else.')
    token: str | None = Field(None, description='"{{ env.NAME }}" and nothing else.')


class FlinkAttributes(_Attributes):
    """Where the Flink cluster is."""

    rest_url: str = Field(description="The JobManager, such as http://jobmanager:8081.")
    sql_gateway_url: str = Field(description="The SQL Gateway, such as http://gateway:8083.")
    name: str = Field("flink", description="What messages call the cluster.")
    auth: AuthAttributes | None = None
    verify: bool | str = Field(True, description="Check TLS certificates; or path of a CA bundle.")
    connect_timeout_seconds: float | str = 5.0
    read_timeout_seconds: float | str = 30.0


class SystemDatabaseAttributes(_Attributes):
    """Where the project remembers jobs and leases."""

    url: str = Field(description="SQLAlchemy URL, such as sqlite:////var/lib/lakehouse.db.")
    busy_timeout_seconds: float | str = 30.0


_SCHEMA_TYPES: dict[str, JsonValue] = {
    "int": ["integer", "string"],
    "bool": ["boolean", "string"],
    "float": ["number", "string"],
    "int | str": ["integer", "string"],
}


def _policy(policy: type[SupervisionPolicy] | type[ProgressPolicy] | type[Limits]) -> Any:
    """A mapping whose keys are the policy's settings: intervals as text, numbers as numbers."""
    return Field(default_factory=dict, json_schema_extra=_settings(policy))


def _part(spec: type[Any], description: str) -> Any:
    """The same where true and false may stand instead."""
    return Field(None, description=description, json_schema_extra=_settings(spec))


def _settings(policy: type[Any]) -> JsonDict:
    properties: JsonDict = {
        setting.name: {"type": _SCHEMA_TYPES.get(str(setting.type), ["string"])}
        for setting in fields(policy)
    }
    return {"properties": properties, "additionalProperties": False}


class TablePolicyAttributes(_Attributes):
    """What maintenance tables get; what an override does not say is as in ``default``."""

    compaction: str | bool | None = Field(None, description="batch, dedicated or off.")
    compaction_group: str | None = Field(
        None, description="With dedicated: tables of one group share a compaction job."
    )
    compact: Part = _part(maintenance.CompactSpec, "When files are merged.")
    expire: Part = _part(maintenance.ExpireSpec, "Which snapshots are kept.")
    changelogs: Part = _part(maintenance.ExpireSpec, "Which changelogs are kept.")
    partitions: Part = _part(maintenance.PartitionExpirySpec, "Which partitions go.")
    tags: Part = _part(maintenance.TagSpec, "Which tags go.")
    manifests: Part = _part(maintenance.ManifestSpec, "When manifests are merged.")
    orphans: Part = _part(maintenance.OrphanSpec, "When unknown files are looked for and removed.")
    bounds: Part = _part(maintenance.CheckBounds, "Beyond what the asset checks fail.")


class MaintenanceAttributes(_Attributes):
    """When tables are compacted, expired and cleaned."""

    default: TablePolicyAttributes | None = Field(None, description="For all other tables.")
    tables: dict[str, TablePolicyAttributes] = Field(
        default_factory=dict, description="By database.table or pattern; the most exact one counts."
    )
    limits: Settings = _policy(Limits)


class TableAttributes(_Attributes):
    """How a table, or all tables that a pattern names, are shown."""

    key: Texts | None = Field(None, description="The asset key, such as shop/orders.")
    group: str | None = Field(None, description="The asset group, in place of the database.")
    owners: Texts | None = Field(None, description="team:data, or an e-mail address.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of the asset.")
    kinds: Texts | None = Field(None, description="Shown beside paimon and flink.")
    description: str | None = Field(None, description="In place of the table's comment.")
    partitions: dict[str, Any] | list[dict[str, Any]] | None = Field(
        None, description="column, every, format and start; or values; or dynamic: true."
    )


class LakehouseAttributes(_Attributes):
    """A Paimon catalog, a Flink cluster, and the scripts that connect them."""

    catalog: CatalogAttributes
    flink: FlinkAttributes
    scripts: Texts = Field(
        description="Flink SQL scripts: files, folders or patterns, relative to this folder."
    )
    name: str = Field("lake", description="Name of the lakehouse. It is part of job ids: keep it.")
    start: str = Field(
        "on_demand",
        description="on_load: start jobs that were never started. on_demand: leave them alone.",
    )
    system_database: SystemDatabaseAttributes | None = None
    key_prefix: Texts = Field(
        default_factory=list, description="Comes first in the asset key of every table."
    )
    session: Texts = Field(
        default_factory=list,
        description="Scripts that every session begins with: catalogs, functions, shared tables.",
    )
    sessions: str = Field(
        "file", description="file: each script is a session of its own. folder: each folder is."
    )
    variables: dict[str, str] = Field(
        default_factory=dict, description="Values for ${NAME}; others come from the environment."
    )
    variables_file: str | None = Field(
        None, description="YAML file with values for ${NAME}, relative to this folder."
    )
    other_catalogs: list[OtherCatalogAttributes] = Field(
        default_factory=list, description="Further Paimon catalogs that the scripts name."
    )
    tables: dict[str, TableAttributes] = Field(
        default_factory=dict,
        description="By database.table, by key of a source, or by pattern; the last one wins.",
    )
    discover: bool | Texts = Field(
        False,
        description="Show tables of the catalog that are in no script: true, or names or patterns.",
    )
    translator: str | None = Field(
        None, description="A LakehouseTranslator in Python, such as my_project.lake.Translator."
    )
    defs_state: DefsStateConfigArgs | None = Field(
        None, description="Where Dagster keeps what was discovered."
    )
    supervision: Settings = _policy(SupervisionPolicy)
    progress: Settings = _policy(ProgressPolicy)
    checks: dict[str, Settings] = Field(
        default_factory=dict,
        description="Bounds by table or pattern, or default: freshness, max_lag, "
        "max_snapshots_behind, max_watermark_lag.",
    )
    maintenance: MaintenanceAttributes | None = Field(
        None, description="Compaction, expiry and clean-up; {} for the defaults, none by default."
    )
    materialize_timeout: str = Field("10m", description="How long to wait for a new snapshot.")
    sensors_running: bool | str = Field(True, description="Turn the sensors on when loaded.")

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The schema by which ``dg check yaml`` and editors look at a file."""
        return without_alternatives(super().model_json_schema(*args, **kwargs))


class WrittenAttributes(dg.Model):
    """Whatever stands in a file: what is wrong with it is told by us, who know file and line."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The schema of what should stand there."""
        return LakehouseAttributes.model_json_schema(*args, **kwargs)
