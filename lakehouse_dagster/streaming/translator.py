"""How a table, a source or an outside sink becomes a Dagster asset, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import dagster as dg

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.sql.model import JobDefinition, SourceDefinition, TableDefinition
from lakehouse_dagster.streaming.names import (
    dagster_name,
    is_key_part,
    kind_name,
    output_name,
)
from lakehouse_dagster.streaming.table_settings import TableSettings, fits


class AssetRole(str, Enum):
    """What an asset of the project stands for."""

    TABLE = "table"
    """A table of the lake."""
    SOURCE = "source"
    """Something outside the lake that a job reads."""
    SINK = "sink"
    """Something outside the lake that jobs write and none reads."""


@dataclass(frozen=True)
class LakehouseTableData:
    """All that is known of a table, source or sink when its asset is made.

    Args:
        role: what it is.
        name: ``database.table``, or ``system/…/name`` outside the lake.
        catalog: what Flink SQL calls the lake's catalog.
        database: the table's database; None outside the lake.
        key: its asset key, unless the translator changes it.
        table: its ``CREATE TABLE``; None outside the lake and where no script declares it.
        source: the connector table of a script that stands for it, outside the lake.
        jobs: the streaming jobs that write it.
        upstream: names, as above, of what these jobs read to write it. Dependencies are made from
            them by the keys that the translator gives: they need not be given here.
        comment: the table's comment, annotations taken out.
        settings: what its comment's annotations and the project's ``tables`` say of it.
        in_catalog: whether it was found in the catalog at the last discovery.
        metadata: schema, keys, options (secrets masked), jobs, places in scripts.
    """

    role: AssetRole
    name: str
    catalog: str
    database: str | None
    key: dg.AssetKey
    table: TableDefinition | None = None
    source: SourceDefinition | None = None
    jobs: tuple[JobDefinition, ...] = ()
    upstream: tuple[str, ...] = ()
    comment: str | None = None
    settings: TableSettings = field(default_factory=TableSettings)
    in_catalog: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)


class LakehouseTranslator:
    """Makes the asset spec of every table, source and outside sink.

    Override ``get_asset_spec`` to change keys, groups, tags, owners, kinds, descriptions or
    metadata. Whatever else the project makes (dependencies, column lineage, events, checks)
    follows the key that is given here; dependencies and column lineage are added to the result.
    """

    def get_asset_spec(self, data: LakehouseTableData) -> dg.AssetSpec:
        """The asset of one table, source or sink. Called once for each whenever Dagster loads.

        Args:
            data: what it is made from.
        """
        return dg.AssetSpec(
            data.key,
            description=_description(data),
            metadata=data.metadata,
            group_name=data.settings.group or _group(data),
            owners=data.settings.owners,
            tags=data.settings.tags,
            kinds={*_kinds(data), *data.settings.kinds},
        )


def _group(data: LakehouseTableData) -> str:
    if data.database is not None:
        return dagster_name(data.database)
    return "sources" if data.role is AssetRole.SOURCE else "outside"


def _kinds(data: LakehouseTableData) -> set[str]:
    if data.role is not AssetRole.TABLE:
        return _of_connector(data.source.connector) if data.source is not None else set()
    return {"paimon", "flink"} if data.jobs else {"paimon"}


def _of_connector(connector: str) -> set[str]:
    """The system, for which Dagster may have a picture, and how its changes come."""
    system = connector.removesuffix("-cdc").removeprefix("upsert-")
    return {kind_name(system), *(["cdc"] if connector.endswith("-cdc") else [])}


def _description(data: LakehouseTableData) -> str:
    said = [text] if (text := data.settings.description or data.comment) else []
    if data.role is AssetRole.SOURCE:
        said.append("Outside the lake: read by streaming jobs.")
    if data.jobs:
        names = ", ".join(f"`{job.name}`" for job in data.jobs)
        said.append(f"Written by the streaming job{'s' if len(data.jobs) > 1 else ''} {names}.")
    elif data.role is AssetRole.TABLE and data.in_catalog and data.table is None:
        said.append("In the catalog, but in none of the project's scripts.")
    return "\n\n".join(said)


def translated(translator: LakehouseTranslator, data: LakehouseTableData) -> dg.AssetSpec:
    """What the translator makes of a table.

    Raises:
        ConfigurationError: it fails, or what it makes is no asset; names it and the table.
    """
    what = f"{type(translator).__qualname__}, the translator of the asset {data.name},"
    try:
        spec: object = translator.get_asset_spec(data)
    except Exception as error:  # the code is the user's: it may raise anything
        raise ConfigurationError(
            f"{what} failed: {type(error).__name__}: {error}",
            remedy="Look at its method get_asset_spec.",
        ) from error
    if not isinstance(spec, dg.AssetSpec):
        raise ConfigurationError(
            f"{what} returned {type(spec).__name__}, which is no AssetSpec.",
            remedy="Let get_asset_spec return a dagster.AssetSpec, such as that of super().",
        )
    return spec


def refuse_unusable_keys(
    tables: Mapping[str, dg.AssetSpec],
    outside: Mapping[str, dg.AssetSpec],
    translator: LakehouseTranslator,
    settings: Mapping[str, TableSettings],
) -> None:
    """Raise ``ConfigurationError`` where two assets have one key, or Dagster cannot use a key."""
    named = _by(translator)
    keys: dict[dg.AssetKey, str] = {}
    for name, spec in (*tables.items(), *outside.items()):
        other = keys.setdefault(spec.key, name)
        if other != name:
            raise ConfigurationError(
                f"{named} gives {other} and {name} the same asset key, {_shown(spec)}.",
                remedy="Every asset needs a key of its own.",
                field=_key_said(settings, name, other),
            )
    outputs: dict[str, str] = {}
    for name, spec in tables.items():
        if not all(map(is_key_part, spec.key.path)):
            raise ConfigurationError(
                f"{named} gives {name} the asset key {_shown(spec)}, which Dagster cannot use.",
                remedy="Make its parts of letters, digits, '_', '-' and '.'.",
                field=_key_said(settings, name),
            )
        other = outputs.setdefault(output_name(tuple(spec.key.path)), name)
        if other != name:
            raise ConfigurationError(
                f"{named} gives {other} and {name} the asset keys {_shown(tables[other])} and "
                f"{_shown(spec)}, which are the same to Dagster where it names outputs.",
                remedy="Let them differ in more than '-', '_', '.' and '/'.",
                field=_key_said(settings, name, other),
            )


def _key_said(settings: Mapping[str, TableSettings], *names: str) -> tuple[str, ...]:
    """Where a project says the asset key of one of these, if it does."""
    for name in names:
        for pattern, said in settings.items():
            if said.key is not None and (pattern == name or fits(name, pattern)):
                return ("tables", pattern, "key")
    return ()


def _shown(spec: dg.AssetSpec) -> str:
    return spec.key.to_user_string()


def _by(translator: LakehouseTranslator) -> str:
    if type(translator) is LakehouseTranslator:
        return "What is said in tables"
    return f"The translator {type(translator).__qualname__}"
