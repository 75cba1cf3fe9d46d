"""Tables, sources and jobs of the scripts as a Dagster asset graph: keys, dependencies, metadata."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse_dagster.sql.model import (
    Flow,
    JobDefinition,
    Location,
    Project,
    SourceDefinition,
    TableDefinition,
)


def dagster_name(name: str) -> str:
    """A name that Dagster accepts for ops, jobs, sensors and groups; different for each ``name``.

    Dots become two underscores; whatever else changes gets a short hash, so nothing collides.
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name.replace(".", "__"))
    if plain == name.replace(".", "__") and "__" not in name and plain:
        return plain
    return f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


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
    project: Project, *, key_prefix: tuple[str, ...] = (), catalog: str = "lake"
) -> AssetGraph:
    """Make the asset specs of all tables and sources that the scripts name."""
    flows = _flows_by_sink(project.jobs)
    upstream = {table: _upstream_tables(flows.get(table, ())) for table in _tables(project)}
    order, cut = _sort(upstream)
    definitions = {t.name.key: t for t in project.tables}
    jobs = {sink.key: job for job in project.jobs for sink in job.sinks}

    def key(table: str) -> dg.AssetKey:
        return dg.AssetKey([*key_prefix, *table.split(".", 1)])

    tables = {}
    for table in order:
        deps: list[dg.AssetKey] = [key(u) for u in sorted(upstream[table]) if (table, u) not in cut]
        sources = sorted({s for flow in flows.get(table, ()) for s in flow.sources})
        deps += [dg.AssetKey(list(source)) for source in sources]
        tables[table] = dg.AssetSpec(
            key(table),
            deps=deps,
            description=_description(definitions.get(table), jobs.get(table)),
            metadata=_metadata(
                table, catalog, definitions.get(table), jobs.get(table), flows.get(table, ()), cut
            ),
            group_name=dagster_name(table.split(".", 1)[0]),
            kinds={"paimon", "flink"} if table in jobs else {"paimon"},
        )
    return AssetGraph(tables, _outside(project), tuple(sorted(cut)))


def _tables(project: Project) -> list[str]:
    declared = [t.name.key for t in project.tables]
    used = [t.key for job in project.jobs for t in (*job.sinks, *job.reads)]
    return sorted({*declared, *used})


def _flows_by_sink(jobs: Iterable[JobDefinition]) -> dict[str, tuple[Flow, ...]]:
    flows: dict[str, tuple[Flow, ...]] = {}
    for job in jobs:
        for flow in job.flows:
            if flow.sink is not None:
                flows[flow.sink.key] = (*flows.get(flow.sink.key, ()), flow)
    return flows


def _upstream_tables(flows: Iterable[Flow]) -> set[str]:
    """What the flows read, their own sink left out: an asset cannot depend on itself."""
    return {t.key for flow in flows for t in flow.reads if t != flow.sink}


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


def _description(table: TableDefinition | None, job: JobDefinition | None) -> str | None:
    said = [table.comment] if table and table.comment else []
    if job is not None:
        said.append(f"Written by the streaming job `{job.name}`.")
    return "\n\n".join(said) or None


def _metadata(
    table: str,
    catalog: str,
    definition: TableDefinition | None,
    job: JobDefinition | None,
    flows: tuple[Flow, ...],
    cut: set[tuple[str, str]],
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "dagster/table_name": f"{catalog}.{table}",
        "dagster/storage_kind": "paimon",
    }
    if definition is not None:
        if definition.columns_known:
            metadata["dagster/column_schema"] = _column_schema(definition)
        if definition.primary_key:
            metadata["primary_key"] = ", ".join(definition.primary_key)
        if definition.partition_keys:
            metadata["partition_keys"] = ", ".join(definition.partition_keys)
        if definition.options:
            metadata["options"] = dg.MetadataValue.json(dict(definition.options))
    if job is not None:
        metadata["streaming_job"] = job.name
    if any(flow.reads_itself for flow in flows):
        metadata["reads_itself"] = True
    left_out = sorted(above for below, above in cut if below == table)
    if left_out:
        metadata["cyclic_dependencies_left_out"] = ", ".join(left_out)
    if any(not flow.dependencies_known for flow in flows):
        metadata["dependencies"] = "not all known: the reader could not read the whole statement"
    places = [(job.location, "the job's INSERT")] if job else []
    places += [(definition.location, "CREATE TABLE")] if definition else []
    if places:
        metadata["dagster/code_references"] = _references(places)
    return metadata


def _references(places: Iterable[tuple[Location, str]]) -> dg.CodeReferencesMetadataValue:
    """Links to lines of scripts. Dagster calls them beta at every use: said once, in our docs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.CodeReferencesMetadataValue(
            code_references=[
                dg.LocalFileCodeReference(
                    file_path=str(Path(location.path).resolve()),
                    line_number=location.line,
                    label=label,
                )
                for location, label in places
            ]
        )


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


def _outside(project: Project) -> dict[tuple[str, ...], dg.AssetSpec]:
    """External assets for what the jobs read, or write, outside the lake."""
    by_key: dict[tuple[str, ...], SourceDefinition] = {s.asset_key: s for s in project.sources}
    read = {s for job in project.jobs for s in job.sources}
    written = {
        f.external_sink: f.reads
        for job in project.jobs
        for f in job.flows
        if f.external_sink is not None
    }
    specs = {}
    for key in sorted(read | set(written)):
        source = by_key.get(key)
        metadata: dict[str, Any] = {}
        if source is not None:
            metadata["options"] = dg.MetadataValue.json(dict(source.options))
            metadata["dagster/code_references"] = _references([(source.location, "CREATE TABLE")])
        specs[key] = dg.AssetSpec(
            dg.AssetKey(list(key)),
            description="Outside the lake: read or written by streaming jobs.",
            metadata=metadata,
            group_name="sources" if key in read else "outside",
            kinds={source.connector} if source is not None else set(),
        )
    return specs
