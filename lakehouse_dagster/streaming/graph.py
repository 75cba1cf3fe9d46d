"""Tables, sources and jobs as a Dagster asset graph: keys, dependencies, metadata."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Location,
    Project,
    TableDefinition,
)
from lakehouse_dagster.sql.sources import mask_secrets

_READABLE = re.compile(r"[A-Za-z0-9]+(?:[_.][A-Za-z0-9]+)*")


def dagster_name(name: str) -> str:
    """A name that Dagster accepts for ops, jobs, sensors and groups; different for each ``name``.

    Dots become two underscores; a name that could not be told apart so gets a short hash, after
    three underscores, which no other name holds.
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.replace(".", "__"))
    if _READABLE.fullmatch(name):
        return plain
    return f"{plain}___{_short_hash(name)}"


@dataclass(frozen=True)
class AssetGraph:
    """The project's assets: one spec a table, a source and an outside sink.

    ``tables`` are in upstream-first order, by ``database.table``.
    """

    tables: Mapping[str, dg.AssetSpec]
    outside: Mapping[tuple[str, ...], dg.AssetSpec]
    cut: tuple[tuple[str, str], ...]
    """Dependencies left out because they close a cycle: (downstream, upstream)."""

    def key(self, table: str) -> dg.AssetKey:
        """The asset key of ``database.table``."""
        return self.tables[table].key


def build_graph(
    project: Project,
    *,
    key_prefix: tuple[str, ...] = (),
    catalog: str = "lake",
    base_folder: str | Path | None = None,
) -> AssetGraph:
    """Make the asset specs of all tables and sources that the scripts name.

    Args:
        project: the scripts, read.
        key_prefix: comes before database and table in the asset key of every table.
        catalog: what Flink SQL calls the catalog.
        base_folder: what the paths of the scripts are relative to; by default the working folder.
    """
    return _GraphBuilder(project, key_prefix, catalog, Path(base_folder or ".")).build()


class _GraphBuilder:
    """Nodes are ``database.table``, or ``system/…/name`` for what is outside the lake."""

    def __init__(
        self, project: Project, key_prefix: tuple[str, ...], catalog: str, base_folder: Path
    ) -> None:
        self.catalog = catalog
        self.base_folder = base_folder
        self.declared = {t.name.key: t for t in project.tables}
        self.sources = {source.asset_key: source for source in project.sources}
        self.writers = _writers(project.jobs)
        self.flows = _flows_by_target(project.jobs)
        used = (t.key for job in project.jobs for t in (*job.sinks, *job.reads))
        self.tables = {*self.declared, *used}
        self.read_outside = {s for job in project.jobs for s in job.sources}
        written = {f.external_sink for job in project.jobs for f in job.flows if f.external_sink}
        self.outside = {"/".join(key): key for key in self.read_outside | written}
        tables = {t: (*key_prefix, *t.split(".", 1)) for t in self.tables}
        self.keys = _asset_keys(tables, self.outside)
        self.upstream = {node: self._reads(node) for node in (*self.tables, *self.outside)}
        self.order, self.cut = _sort(self.upstream)

    def build(self) -> AssetGraph:
        return AssetGraph(
            {node: self._table(node) for node in self.order if node in self.tables},
            {key: self._outside(node, key) for node, key in sorted(self.outside.items())},
            tuple(sorted(self.cut)),
        )

    def _reads(self, node: str) -> set[str]:
        """What the flows into a node read, itself left out: no asset can depend on itself."""
        found: set[str] = set()
        for flow in self.flows.get(node, ()):
            found.update(table.key for table in flow.reads)
            found.update("/".join(source) for source in flow.sources)
        return found - {node}

    def _deps(self, node: str) -> list[dg.AssetKey]:
        kept = (above for above in self.upstream[node] if (node, above) not in self.cut)
        return [self.keys[above] for above in sorted(kept)]

    def _table(self, table: str) -> dg.AssetSpec:
        jobs = self.writers.get(table, ())
        definition = self.declared.get(table)
        return dg.AssetSpec(
            self.keys[table],
            deps=self._deps(table),
            description=_description(definition, jobs),
            metadata={
                "dagster/table_name": f"{self.catalog}.{table}",
                "dagster/storage_kind": "paimon",
                **(_declaration(definition) if definition is not None else {}),
                **self._writing(table, jobs),
                **self._places(
                    *((job.location, f"INSERT of {job.name}") for job in jobs),
                    *([(definition.location, "CREATE TABLE")] if definition is not None else []),
                ),
            },
            group_name=dagster_name(table.split(".", 1)[0]),
            kinds={"paimon", "flink"} if jobs else {"paimon"},
        )

    def _writing(self, node: str, jobs: Sequence[JobDefinition]) -> dict[str, Any]:
        """How data gets into a table, as far as the graph itself does not show it."""
        metadata: dict[str, Any] = {}
        flows = self.flows.get(node, ())
        if jobs:
            metadata["streaming_job"] = ", ".join(job.name for job in jobs)
        if any(flow.reads_itself for flow in flows):
            metadata["reads_itself"] = True
        left_out = sorted(above for below, above in self.cut if below == node)
        if left_out:
            metadata["cyclic_dependencies_left_out"] = ", ".join(left_out)
        if any(not flow.dependencies_known for flow in flows):
            metadata["dependencies"] = "not all known: a statement could not be read wholly"
        return metadata

    def _places(self, *places: tuple[Location, str]) -> dict[str, Any]:
        """Links to lines of scripts. Dagster calls them beta at every use: said once, in docs."""
        if not places:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            references = dg.CodeReferencesMetadataValue(
                code_references=[
                    dg.LocalFileCodeReference(
                        file_path=str((self.base_folder / location.path).resolve()),
                        line_number=location.line,
                        label=label,
                    )
                    for location, label in places
                ]
            )
        return {"dagster/code_references": references}

    def _outside(self, node: str, key: tuple[str, ...]) -> dg.AssetSpec:
        """What the jobs read, or write, outside the lake."""
        source = self.sources.get(key)
        metadata = self._writing(node, ())
        if source is not None:
            metadata["options"] = dg.MetadataValue.json(mask_secrets(source.options))
            metadata |= self._places((source.location, "CREATE TABLE"))
        return dg.AssetSpec(
            self.keys[node],
            deps=self._deps(node),
            description="Outside the lake: read or written by streaming jobs.",
            metadata=metadata,
            group_name="sources" if key in self.read_outside else "outside",
            kinds={_kind(source.connector)} if source is not None else set(),
        )


_KEY_PART = re.compile(r"[A-Za-z0-9_.-]+")


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
        *above, last = (_key_part(part) for part in tables[node])
        name = "__".join((*above, last)).replace("-", "_").replace(".", "_")
        if name in taken:
            last = f"{last}___{_short_hash(node)}"
            name = f"{name}___{_short_hash(node)}"
        taken.add(name)
        keys[node] = dg.AssetKey([*above, last])
    of_tables = set(keys.values())
    for node, parts in outside.items():
        key = dg.AssetKey([_key_part(part) for part in parts])
        keys[node] = dg.AssetKey(["outside", *key.path]) if key in of_tables else key
    return keys


def _key_part(name: str) -> str:
    return name if _KEY_PART.fullmatch(name) else dagster_name(name)


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]


def _writers(jobs: Iterable[JobDefinition]) -> dict[str, tuple[JobDefinition, ...]]:
    """The jobs that write each table: several, for one whose columns come from several streams."""
    writers: dict[str, tuple[JobDefinition, ...]] = {}
    for job in jobs:
        for sink in job.sinks:
            writers[sink.key] = (*writers.get(sink.key, ()), job)
    return writers


def _flows_by_target(jobs: Iterable[JobDefinition]) -> dict[str, tuple[Flow, ...]]:
    flows: dict[str, tuple[Flow, ...]] = {}
    for flow in (flow for job in jobs for flow in job.flows):
        target = flow.sink.key if flow.sink is not None else "/".join(flow.external_sink or ())
        flows[target] = (*flows.get(target, ()), flow)
    return flows


def _kind(connector: str) -> str:
    """The connector's name as Dagster takes it for a tag."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", connector)[:40].strip("_.-") or "unknown"


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


def _description(table: TableDefinition | None, jobs: Sequence[JobDefinition]) -> str | None:
    said = [table.comment] if table and table.comment else []
    if jobs:
        names = ", ".join(f"`{job.name}`" for job in jobs)
        said.append(f"Written by the streaming job{'s' if len(jobs) > 1 else ''} {names}.")
    return "\n\n".join(said) or None


def _declaration(definition: TableDefinition) -> dict[str, Any]:
    """What CREATE TABLE says about a table, secrets in its options masked."""
    metadata: dict[str, Any] = {}
    if definition.columns_known:
        metadata["dagster/column_schema"] = _column_schema(definition)
    if definition.primary_key:
        metadata["primary_key"] = ", ".join(definition.primary_key)
    if definition.partition_keys:
        metadata["partition_keys"] = ", ".join(definition.partition_keys)
    if definition.options:
        metadata["options"] = dg.MetadataValue.json(mask_secrets(definition.options))
    return metadata


def _column_schema(table: TableDefinition) -> dg.TableSchema:
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=column.name,
                type=column.type or "unknown",
                description=column.comment,
                constraints=dg.TableColumnConstraints(
                    nullable=column.nullable and column.name not in table.primary_key,
                    unique=table.primary_key == (column.name,),
                ),
            )
            for column in table.columns
        ]
    )
