"""The public object: one Paimon catalog, one Flink cluster, and the scripts that connect them."""

from __future__ import annotations

import logging
import os
import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from lakehouse_dagster.durations import duration
from lakehouse_dagster.errors import ConfigurationError, ScriptError
from lakehouse_dagster.flink import FlinkCluster
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.sql.kept_reading import no_collections
from lakehouse_dagster.sql.model import Project, Severity
from lakehouse_dagster.sql.reader import read_project
from lakehouse_dagster.sql.script_files import Scripts, find_scripts
from lakehouse_dagster.streaming.checks import CheckPolicy
from lakehouse_dagster.streaming.declared_elsewhere import declared_elsewhere
from lakehouse_dagster.streaming.discovery import Discovered, Discovery, wanted
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.streaming.spec import (
    OtherCatalog,
    ProgressPolicy,
    StartPolicy,
    StreamingJob,
    SupervisionPolicy,
    check_catalog_names,
)
from lakehouse_dagster.streaming.table_settings import TableSettings
from lakehouse_dagster.system_db import SystemDatabase

if TYPE_CHECKING:
    import dagster as dg

    from lakehouse_dagster.maintenance.held import Keeper
    from lakehouse_dagster.maintenance.spec import MaintenancePolicy
    from lakehouse_dagster.paimon import TableSchema
    from lakehouse_dagster.streaming.graph import AssetGraph
    from lakehouse_dagster.streaming.translator import LakehouseTranslator

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_LOGGER = logging.getLogger("lakehouse_dagster")
NOBODY_LOOKED = (
    "No tables of the catalog %s are shown but those of scripts: nobody has looked for others yet. "
    "Run: lakehouse discover"
)


@dataclass(frozen=True)
class Lakehouse:
    """A lakehouse: where its tables are, which cluster runs its jobs, how both are looked after.

    ``name`` stands in Flink job ids, in the names of sensors and jobs, and in the system database:
    keep it. Nothing is connected to before something is done or looked at.
    """

    catalog: PaimonCatalog
    flink: FlinkCluster
    name: str = "lake"
    system_database: SystemDatabase = field(default_factory=SystemDatabase)
    key_prefix: tuple[str, ...] = ()
    supervision: SupervisionPolicy = field(default_factory=SupervisionPolicy)
    progress: ProgressPolicy = field(default_factory=ProgressPolicy)
    materialize_timeout: str = "10m"
    checks: Mapping[str, CheckPolicy] = field(default_factory=dict)
    """Bounds on freshness and lag, by table (``database.table``) or pattern; ``default`` holds for
    tables that no other fits. Tables without bounds have no such checks."""
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    """How tables and sources are shown, by ``database.table``, ``system/…/name`` or pattern; where
    several fit, later ones and the table's own name win."""
    translator: LakehouseTranslator | None = None
    """Makes the assets; by default ``LakehouseTranslator()``."""
    discover: tuple[str, ...] = ()
    """Tables of the catalog, by name or pattern, that are shown though no script names them, once
    ``lakehouse discover`` has found them."""
    other_catalogs: tuple[OtherCatalog, ...] = ()
    """Further Paimon catalogs that the scripts name; their tables are read, never written."""
    maintenance: MaintenancePolicy | None = None
    """When tables are compacted, expired and cleaned; None: not by this lakehouse."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values for ``${NAME}`` in scripts; names that are not here come from the environment."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"A lakehouse cannot be named {self.name!r}.",
                remedy="Use letters, digits, '_', '-' and '.'.",
            )
        if isinstance(self.key_prefix, str) or not all(self.key_prefix):
            raise ConfigurationError(
                f"Lakehouse.key_prefix is {self.key_prefix!r}.",
                remedy='Give the parts of the prefix as a tuple, such as ("prod", "lake").',
            )
        object.__setattr__(self, "key_prefix", tuple(self.key_prefix))
        if isinstance(self.discover, str):
            raise ConfigurationError(
                f"Lakehouse.discover is {self.discover!r}.",
                remedy='Give names or patterns as a tuple, such as ("dwd.*",); ("*",) for all.',
            )
        object.__setattr__(self, "discover", tuple(self.discover))
        object.__setattr__(self, "other_catalogs", tuple(self.other_catalogs))
        check_catalog_names(self.catalog, self.other_catalogs)
        self._check_maintenance()
        duration(self.materialize_timeout, what="Lakehouse.materialize_timeout")

    def _check_maintenance(self) -> None:
        if self.maintenance is None:
            return
        from lakehouse_dagster.maintenance.spec import MaintenancePolicy

        if not isinstance(self.maintenance, MaintenancePolicy):
            raise ConfigurationError(
                f"Lakehouse.maintenance is {self.maintenance!r}.",
                remedy="Give MaintenancePolicy(...), or None for no maintenance.",
            )

    def load(
        self,
        scripts: Scripts,
        *,
        start: StartPolicy | str = StartPolicy.ON_DEMAND,
        base_folder: str | Path | None = None,
        session: Scripts = (),
        sessions: str = "file",
        discovery: Discovery | None = None,
    ) -> LoadedLakehouse:
        """Read the scripts: files, folders (all ``.sql`` files below them) or glob patterns.

        Relative ones are looked for below ``base_folder``, by default the working directory.
        ``session`` are scripts that run before each of them, in their order: catalogs, functions,
        shared tables; with ``sessions="folder"`` the scripts of a folder share one session.
        ``discovery`` says where tables are kept that were found in the catalog, by default in
        ``catalog_tables.json`` there. Needs no network. Raises ``ScriptError`` with file, line
        and column of the first script that cannot be used, and ``ConfigurationError`` when there
        is none.
        """
        policy = _start_policy(start)
        paths = find_scripts(scripts, base_folder)
        project = read_project(
            paths,
            catalog=self.catalog.name,
            base=base_folder,
            session=find_scripts(session, base_folder) if session else (),
            sessions=_sessions(sessions),
            variables=self.variables,
            other_catalogs={o.catalog.name: o.key_prefix for o in self.other_catalogs},
        )
        for problem in project.problems:
            if problem.severity is Severity.WARNING:
                _LOGGER.warning("%s", problem)
        if project.errors:
            first = project.errors[0]
            more = "".join(f"\n{problem}" for problem in project.errors[1:])
            raise ScriptError(
                first.message,
                path=first.location.path,
                line=first.location.line,
                column=first.location.column,
                remedy=f"{first.remedy}{more}",
            )
        folder = Path(base_folder or ".")
        return LoadedLakehouse(
            self, project, policy, folder, discovery or Discovery(folder / "catalog_tables.json")
        )

    def definitions(
        self,
        scripts: Scripts,
        *,
        start: StartPolicy | str = StartPolicy.ON_DEMAND,
        base_folder: str | Path | None = None,
        sensors_running: bool = True,
        session: Scripts = (),
        sessions: str = "file",
        discovery: Discovery | None = None,
    ) -> dg.Definitions:
        """Everything that Dagster shows and does for these scripts; see ``load``.

        ``start="on_load"`` lets the supervisor start every job that was never started; by default
        a job is left alone until someone starts, adopts or materialises it, so running sensors
        never double what already runs.
        """
        with no_collections():
            loaded = self.load(
                scripts,
                start=start,
                base_folder=base_folder,
                session=session,
                sessions=sessions,
                discovery=discovery,
            )
            return loaded.definitions(sensors_running=sensors_running)


@dataclass(frozen=True)
class LoadedLakehouse:
    """A lakehouse with its scripts read: jobs to act on, tables to show."""

    lakehouse: Lakehouse
    project: Project
    start: StartPolicy
    base_folder: Path = Path()
    """What the paths of the scripts are relative to."""
    discovery: Discovery = field(default_factory=Discovery)
    """Where tables that were found in the catalog are kept."""

    @cached_property
    def runtime(self) -> Runtime:
        """What the verbs of the streaming room need."""
        jobs = {
            job.name: StreamingJob(job, self.start, declared)
            for job, declared in declared_elsewhere(self.project)
        }
        if self.lakehouse.maintenance is not None:
            from lakehouse_dagster.maintenance.compaction_jobs import compaction_jobs

            jobs |= compaction_jobs(self.lakehouse.maintenance, jobs)
        return Runtime(
            lakehouse=self.lakehouse.name,
            cluster=self.lakehouse.flink,
            catalog=self.lakehouse.catalog,
            system_database=self.lakehouse.system_database,
            jobs=jobs,
            policy=self.lakehouse.supervision,
            other_catalogs=tuple(other.catalog for other in self.lakehouse.other_catalogs),
            environ=ChainMap(dict(self.lakehouse.variables), os.environ),
        )

    @cached_property
    def keeper(self) -> Keeper:
        """What the verbs of the maintenance room need."""
        from lakehouse_dagster.maintenance.held import Keeper

        return Keeper(self.runtime)

    @cached_property
    def graph(self) -> AssetGraph:
        """The asset graph of the scripts."""
        from lakehouse_dagster.streaming.graph import GraphOptions, build_graph
        from lakehouse_dagster.streaming.translator import LakehouseTranslator

        return build_graph(
            self.project,
            GraphOptions(
                key_prefix=self.lakehouse.key_prefix,
                catalog=self.lakehouse.catalog.name,
                base_folder=self.base_folder,
                translator=self.lakehouse.translator or LakehouseTranslator(),
                settings=self.lakehouse.tables,
                discovered=self._discovered(),
                elsewhere=tuple(other.key_prefix for other in self.lakehouse.other_catalogs),
            ),
        )

    def _discovered(self) -> Mapping[str, TableSchema]:
        """What was found in the catalog, as far as it is wanted; a file that is missing is said."""
        patterns = self.lakehouse.discover
        if not patterns:
            return {}
        found = self.discovery.known()
        if found is None:
            _LOGGER.warning(NOBODY_LOOKED, self.lakehouse.catalog.name)
            return {}
        return {name: table for name, table in found.tables.items() if wanted(name, patterns)}

    def discover(self) -> Discovered:
        """Look into the catalog and keep what is found, for the next time that Dagster loads.

        Raises ``ConfigurationError`` when the lakehouse says nothing of which tables it wants, and
        ``CatalogError`` when the catalog cannot be reached: then what was found before stays.
        """
        if not self.lakehouse.discover:
            raise ConfigurationError(
                f"The lakehouse {self.lakehouse.name} does not say which tables to look for.",
                remedy='Give Lakehouse(discover=("*",)), or discover: true in defs.yaml.',
            )
        return self.discovery.refresh(self.lakehouse.catalog, self.lakehouse.discover)

    def definitions(self, *, sensors_running: bool = True) -> dg.Definitions:
        """Assets, checks, jobs and sensors; the object itself is a resource of the same name."""
        import dagster as dg

        from lakehouse_dagster.streaming import assets, sensors, table_checks
        from lakehouse_dagster.streaming.definitions import job_actions
        from lakehouse_dagster.streaming.names import dagster_name
        from lakehouse_dagster.streaming.upkeep import upkeep

        for below, above in self.graph.cut:
            # The reader's warning of the circle has its place; this tells where it is cut.
            _LOGGER.debug(
                "%s and %s depend on each other; the dependency of the first on the second is "
                "left out of the asset graph.",
                below,
                above,
            )
        for warning in self.graph.warnings:
            _LOGGER.warning("%s", warning)
        status = (
            dg.DefaultSensorStatus.RUNNING if sensors_running else dg.DefaultSensorStatus.STOPPED
        )
        tidy, hourly = upkeep(self.runtime, status=dg.DefaultScheduleStatus(status.value))
        bounds = table_checks.table_check_sensor(
            self.runtime, self.graph, self.lakehouse.checks, status=status
        )
        timeout = duration(self.lakehouse.materialize_timeout).total_seconds()
        written = {key for job in self.runtime.jobs.values() for key in job.sink_keys}
        supervise, asked_for = sensors.supervisor(self.runtime, self.graph, status=status)
        policy = self.lakehouse.maintenance
        figures, upkept = None, dg.Definitions()
        if policy is not None:
            from lakehouse_dagster.maintenance.declared_tables import check_tables
            from lakehouse_dagster.maintenance.definitions import figures_of_tables, maintenance

            for warning in check_tables(
                policy,
                self.project,
                self.graph.tables,
                may_be_found=lambda table: wanted(table, self.lakehouse.discover),
            ):
                _LOGGER.warning("%s", warning)
            figures = figures_of_tables(self.keeper)
            upkept = maintenance(self.keeper, policy, self.graph, status=status)
        report = sensors.progress_sensor(
            self.runtime,
            self.graph,
            self.lakehouse.progress,
            status=status,
            figures=figures,
        )
        own = dg.Definitions(
            assets=[
                *assets.streaming_assets(
                    self.runtime, self.graph, materialize_timeout_seconds=timeout
                ),
                *(spec for table, spec in self.graph.tables.items() if table not in written),
                *self.graph.outside.values(),
            ],
            asset_checks=[
                *assets.health_checks(self.runtime, self.graph),
                *table_checks.table_checks(self.runtime, self.graph, self.lakehouse.checks),
            ],
            jobs=[*job_actions(self.runtime), *asked_for, tidy],
            sensors=[supervise, report, *([bounds] if bounds else [])],
            schedules=[hourly],
            resources={dagster_name(self.lakehouse.name): self},
        )
        return dg.Definitions.merge(own, upkept)


def _start_policy(start: StartPolicy | str) -> StartPolicy:
    try:
        return StartPolicy(start)
    except ValueError:
        known = ", ".join(policy.value for policy in StartPolicy)
        raise ConfigurationError(
            f"start is {start!r}, which is no start policy.", remedy=f"Write one of: {known}."
        ) from None


def _sessions(sessions: str) -> Literal["file", "folder"]:
    if sessions in ("file", "folder"):
        return "folder" if sessions == "folder" else "file"
    raise ConfigurationError(
        f"sessions is {sessions!r}.",
        remedy="Write file (each script is a session of its own) or folder.",
    )
