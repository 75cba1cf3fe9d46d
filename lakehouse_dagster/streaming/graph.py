"""Tables, sources and jobs as a Dagster asset graph: keys, dependencies, metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from lakehouse_dagster.paimon import TableSchema
from lakehouse_dagster.sql.model import Flow, JobDefinition, Location, Project
from lakehouse_dagster.streaming import asset_metadata
from lakehouse_dagster.streaming.column_lineage import column_lineage
from lakehouse_dagster.streaming.names import key_part, output_name, short_hash
from lakehouse_dagster.streaming.partition_keys import PartitionKeys
from lakehouse_dagster.streaming.partitioned_assets import dependency, partition_keys
from lakehouse_dagster.streaming.table_settings import (
    Comment,
    TableSettings,
    fits,
    read_comment,
    settings_of,
)
from lakehouse_dagster.streaming.translator import (
    AssetRole,
    LakehouseTableData,
    LakehouseTranslator,
    refuse_unusable_keys,
    translated,
)


@dataclass(frozen=True)
class AssetGraph:
    """The project's assets: one spec a table, a source and an outside sink.

    ``tables`` are in upstream-first order, by ``database.table``.
    """

    tables: Mapping[str, dg.AssetSpec]
    outside: Mapping[tuple[str, ...], dg.AssetSpec]
    cut: tuple[tuple[str, str], ...]
    """Dependencies left out because they close a cycle: (downstream, upstream)."""
    warnings: tuple[str, ...] = ()
    """What was left out besides, each with its place."""
    partitions: Mapping[str, PartitionKeys] = field(default_factory=dict)
    """Of the tables whose assets are partitioned, upstream first."""

    def key(self, table: str) -> dg.AssetKey:
        """The asset key of ``database.table``."""
        return self.tables[table].key


@dataclass(frozen=True)
class GraphOptions:
    """How the assets of a project are made.

    Args:
        key_prefix: comes before database and table in the asset key of every table.
        catalog: what Flink SQL calls the catalog.
        base_folder: what the paths of the scripts are relative to.
        translator: makes the asset of each table, source and sink.
        settings: by ``database.table``, ``system/…/name`` or pattern.
        discovered: tables of the catalog, by ``database.table``.
        elsewhere: key prefixes of other lakehouses' tables, which are assets of theirs.
    """

    key_prefix: tuple[str, ...] = ()
    catalog: str = "lake"
    base_folder: Path = Path()
    translator: LakehouseTranslator = field(default_factory=LakehouseTranslator)
    settings: Mapping[str, TableSettings] = field(default_factory=dict)
    discovered: Mapping[str, TableSchema] = field(default_factory=dict)
    elsewhere: tuple[tuple[str, ...], ...] = ()


def build_graph(project: Project, options: GraphOptions | None = None) -> AssetGraph:
    """Make the asset specs of all tables and sources that the scripts name.

    Raises:
        ConfigurationError: the translator fails, or two assets would have one key.
    """
    return _GraphBuilder(project, options or GraphOptions()).build()


class _GraphBuilder:
    """Nodes are ``database.table``, or ``system/…/name`` for what is outside the lake."""

    def __init__(self, project: Project, options: GraphOptions) -> None:
        self.options = options
        self.declared = {t.name.key: t for t in project.tables}
        self.sources = {source.asset_key: source for source in project.sources}
        self.writers = _writers(project.jobs)
        made_once = [table.filled_by for table in project.tables if table.filled_by is not None]
        flows = [*(flow for job in project.jobs for flow in job.flows), *made_once]
        self.flows = _flows_by_target(flows)
        self.made_once = {flow.sink.key for flow in made_once if flow.sink is not None}
        of_jobs = (t.key for job in project.jobs for t in (*job.sinks, *job.reads))
        read_once = (table.key for flow in made_once for table in flow.reads)
        self.tables = {*self.declared, *of_jobs, *read_once, *options.discovered}
        of_jobs_outside = {source for job in project.jobs for source in job.sources}
        self.read_outside = of_jobs_outside | {s for flow in made_once for s in flow.sources}
        written = {flow.external_sink for flow in flows if flow.external_sink}
        self.outside = {"/".join(key): key for key in self.read_outside | written}
        self.upstream = {node: self._reads(node) for node in (*self.tables, *self.outside)}
        self.order, self.cut = _sort(self.upstream)
        self.warnings: list[str] = []

    def build(self) -> AssetGraph:
        translator = self.options.translator
        keys = self._default_keys()
        specs = {node: translated(translator, self._data(node, keys[node])) for node in self.order}
        tables = {node: spec for node, spec in specs.items() if node in self.tables}
        outside = {node: specs[node] for node in sorted(self.outside)}
        refuse_unusable_keys(tables, outside, translator, self.options.settings)
        self._warn_of_idle_settings()
        final = {node: spec.key for node, spec in specs.items()}
        partitions = self._partitions(final)
        tables = {
            node: spec.replace_attributes(partitions_def=partitions[node].definition())
            if node in partitions
            else spec
            for node, spec in tables.items()
        }
        specs |= tables
        return AssetGraph(
            {node: self._connected(node, spec, final, specs) for node, spec in tables.items()},
            {
                self.outside[node]: self._connected(node, spec, final, specs)
                for node, spec in outside.items()
                if not self._is_elsewhere(node)
            },
            tuple(sorted(self.cut)),
            tuple(self.warnings),
            partitions,
        )

    def _partitions(self, keys: Mapping[str, dg.AssetKey]) -> dict[str, PartitionKeys]:
        found = {
            node: partition_keys(
                node,
                keys[node],
                self.options.settings,
                self.declared.get(node),
                self.options.discovered.get(node),
            )
            for node in self.order
            if node in self.tables
        }
        return {node: of_table for node, of_table in found.items() if of_table is not None}

    def _is_elsewhere(self, node: str) -> bool:
        """Whether another lakehouse has it and makes its asset, which must not be made twice."""
        parts = self.outside[node]
        source = self.sources.get(parts)
        if source is not None and source.connector != "paimon":
            return False
        return any(
            len(parts) == len(prefix) + 2 and parts[: len(prefix)] == prefix
            for prefix in self.options.elsewhere
        )

    def _reads(self, node: str) -> set[str]:
        """What the flows into a node read, itself left out: no asset can depend on itself."""
        found: set[str] = set()
        for flow in self.flows.get(node, ()):
            found.update(table.key for table in flow.reads)
            found.update("/".join(source) for source in flow.sources)
        return found - {node}

    def _kept(self, node: str) -> tuple[str, ...]:
        return tuple(up for up in sorted(self.upstream[node]) if (node, up) not in self.cut)

    def _default_keys(self) -> dict[str, dg.AssetKey]:
        """The keys of all nodes before the translator sees them."""
        prefix = self.options.key_prefix
        tables = {table: (*prefix, *table.split(".", 1)) for table in self.tables}
        return _asset_keys(tables, self.outside)

    def _data(self, node: str, key: dg.AssetKey) -> LakehouseTableData:
        """What the translator is given."""
        said = settings_of(self.options.settings, node)
        key = dg.AssetKey(said.key) if said.key is not None else key
        return (
            self._outside(node, key, said) if node in self.outside else self._table(node, key, said)
        )

    def _table(self, table: str, key: dg.AssetKey, said: TableSettings) -> LakehouseTableData:
        jobs = self.writers.get(table, ())
        definition = self.declared.get(table)
        in_catalog = self.options.discovered.get(table)
        comment = self._comment(table)
        places = [(job.location, f"INSERT of {job.name}") for job in jobs]
        if definition is not None:
            places.append((definition.location, "CREATE TABLE"))
        return LakehouseTableData(
            role=AssetRole.TABLE,
            name=table,
            catalog=self.options.catalog,
            database=table.split(".", 1)[0],
            key=key,
            table=definition,
            jobs=jobs,
            upstream=self._kept(table),
            comment=comment.text,
            settings=said.over(comment.settings),
            in_catalog=in_catalog is not None,
            metadata={
                **asset_metadata.of_table(definition, in_catalog, self.options.catalog, table),
                **self._writing(table, jobs),
                **({"filled_once_by": "CREATE TABLE AS"} if table in self.made_once else {}),
                **self._places(*places),
            },
        )

    def _comment(self, table: str) -> Comment:
        """The table's comment; what its annotations say wrongly becomes a warning."""
        definition = self.declared.get(table)
        schema = self.options.discovered.get(table)
        written = definition.comment if definition is not None else None
        comment = read_comment(written or (schema.comment if schema is not None else None))
        place = definition.location if definition is not None else f"the catalog's table {table}"
        self.warnings.extend(f"{place}: the comment's {why}" for why in comment.problems)
        return comment

    def _outside(self, node: str, key: dg.AssetKey, said: TableSettings) -> LakehouseTableData:
        """What the jobs read, or write, outside the lake."""
        parts = self.outside[node]
        source = self.sources.get(parts)
        return LakehouseTableData(
            role=AssetRole.SOURCE if parts in self.read_outside else AssetRole.SINK,
            name=node,
            catalog=self.options.catalog,
            database=None,
            key=key,
            source=source,
            jobs=self.writers.get(node, ()),
            upstream=self._kept(node),
            settings=said,
            metadata={
                **asset_metadata.of_source(source),
                **self._writing(node, self.writers.get(node, ())),
                **self._places(*([(source.location, "CREATE TABLE")] if source else [])),
            },
        )

    def _writing(self, node: str, jobs: tuple[JobDefinition, ...]) -> dict[str, object]:
        left_out = sorted(above for below, above in self.cut if below == node)
        return asset_metadata.of_writing(self.flows.get(node, ()), jobs, left_out)

    def _places(self, *places: tuple[Location, str]) -> dict[str, object]:
        return asset_metadata.of_places(self.options.base_folder, places)

    def _connected(
        self,
        node: str,
        spec: dg.AssetSpec,
        keys: Mapping[str, dg.AssetKey],
        specs: Mapping[str, dg.AssetSpec],
    ) -> dg.AssetSpec:
        """The translator's asset with our dependencies and column lineage, by translated keys.

        Dependencies that the translator added are kept, and so is what it says under our names.
        """
        ours = [
            dependency(keys[above], specs[above].partitions_def, spec.partitions_def)
            for above in self._kept(node)
        ]
        known = {dep.asset_key for dep in ours}
        added = [dep for dep in spec.deps if dep.asset_key not in known]
        lineage = column_lineage(self.flows.get(node, ()), keys)
        return spec.replace_attributes(
            deps=[*ours, *added], metadata={**spec.metadata, **lineage, **spec.metadata}
        )

    def _warn_of_idle_settings(self) -> None:
        for pattern in self.options.settings:
            if not any(fits(node, pattern) for node in self.upstream):
                self.warnings.append(f"tables: {pattern!r} fits no table and no source.")


def _asset_keys(
    tables: Mapping[str, tuple[str, ...]], outside: Mapping[str, tuple[str, ...]]
) -> dict[str, dg.AssetKey]:
    """A key for every node, such that Dagster can name the outputs of an asset after it.

    Dagster makes such a name of letters, digits and underscores only, and takes ``a-b`` and
    ``a_b`` for the same: of two tables so named, the one that had to be changed gets a hash.
    """
    keys: dict[str, dg.AssetKey] = {}
    taken: set[str] = set()
    for node in sorted(tables, key=lambda table: (bool(re.search("[^A-Za-z0-9_.]", table)), table)):
        *above, last = (key_part(part) for part in tables[node])
        if output_name((*above, last)) in taken:
            last = f"{last}___{short_hash(node)}"
        taken.add(output_name((*above, last)))
        keys[node] = dg.AssetKey([*above, last])
    of_tables = set(keys.values())
    for node, parts in outside.items():
        key = dg.AssetKey([key_part(part) for part in parts])
        keys[node] = dg.AssetKey(["outside", *key.path]) if key in of_tables else key
    return keys


def _writers(jobs: Iterable[JobDefinition]) -> dict[str, tuple[JobDefinition, ...]]:
    """The jobs that write each node: several, for a table whose columns come from several."""
    writers: dict[str, tuple[JobDefinition, ...]] = {}
    for job in jobs:
        outside = dict.fromkeys("/".join(f.external_sink) for f in job.flows if f.external_sink)
        for target in (*(sink.key for sink in job.sinks), *outside):
            writers[target] = (*writers.get(target, ()), job)
    return writers


def _flows_by_target(flows: Iterable[Flow]) -> dict[str, tuple[Flow, ...]]:
    by_target: dict[str, tuple[Flow, ...]] = {}
    for flow in flows:
        target = flow.sink.key if flow.sink is not None else "/".join(flow.external_sink or ())
        by_target[target] = (*by_target.get(target, ()), flow)
    return by_target


def _sort(upstream: Mapping[str, set[str]]) -> tuple[list[str], set[tuple[str, str]]]:
    """Upstream first; a dependency that would close a cycle is cut, always the same one."""
    order: list[str] = []
    cut: set[tuple[str, str]] = set()
    state: dict[str, str] = {}

    for root in sorted(upstream):
        if root in state:
            continue
        state[root] = "open"
        stack = [(root, iter(sorted(upstream[root])))]
        while stack:
            table, rest = stack[-1]
            for above in rest:
                if state.get(above) == "open":
                    cut.add((table, above))
                elif above not in state:
                    state[above] = "open"
                    stack.append((above, iter(sorted(upstream.get(above, ())))))
                    break
            else:
                state[table] = "done"
                order.append(table)
                stack.pop()
    return order, cut
