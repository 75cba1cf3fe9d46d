"""``LakehouseComponent``: a lakehouse and its scripts from ``defs.yaml``, without any Python."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs
from typing_extensions import Self

from lakehouse_dagster.components import maintaining, resolving, templates
from lakehouse_dagster.components.attributes import (
    CatalogAttributes,
    FlinkAttributes,
    LakehouseAttributes,
    MaintenanceAttributes,
    OtherCatalogAttributes,
    Settings,
    SystemDatabaseAttributes,
    TableAttributes,
    Texts,
    WrittenAttributes,
)
from lakehouse_dagster.components.places import (
    FieldError,
    about,
    about_what_it_names,
    here,
    refuse_repeated,
    report,
    with_line,
)
from lakehouse_dagster.components.scaffolder import LakehouseScaffolder
from lakehouse_dagster.components.wrong_types import wrong_types
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import FlinkCluster
from lakehouse_dagster.lakehouse import Lakehouse
from lakehouse_dagster.maintenance.spec import MaintenancePolicy
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.sql.script_files import find_scripts
from lakehouse_dagster.sql.variables_file import read_variables
from lakehouse_dagster.streaming import discovery
from lakehouse_dagster.streaming.checks import CheckPolicy
from lakehouse_dagster.streaming.spec import OtherCatalog, ProgressPolicy, SupervisionPolicy
from lakehouse_dagster.streaming.table_settings import TableSettings
from lakehouse_dagster.streaming.translator import LakehouseTranslator
from lakehouse_dagster.system_db import SystemDatabase


def _as_written(resolve: Callable[[dg.ResolutionContext, Any], Any], schema: Any) -> dg.Resolver:
    """A resolver that gets the value as it stands in the file."""
    return dg.Resolver(here(resolve), model_field_type=schema, inject_before_resolve=False)


@dg.scaffold_with(LakehouseScaffolder)
@dataclass(frozen=True)
class LakehouseComponent(dg.StateBackedComponent, dg.Resolvable):
    """A lakehouse from YAML: Flink SQL scripts become assets, jobs, checks and sensors.

    Builds the same object as ``Lakehouse(...).definitions(...)``. Scripts are looked for relative
    to the folder of ``defs.yaml``; nothing is connected to when it is loaded. Its state are the
    tables of the catalog that were found when it was last refreshed (``discover``).
    """

    catalog: Annotated[PaimonCatalog, _as_written(resolving.catalog, CatalogAttributes)]
    flink: Annotated[FlinkCluster, _as_written(resolving.flink, FlinkAttributes)]
    scripts: Annotated[tuple[str, ...], _as_written(templates.one_or_several, Texts)]
    name: Annotated[str, _as_written(templates.text, str)] = "lake"
    start: Annotated[str, _as_written(resolving.start, str)] = "on_demand"
    system_database: Annotated[
        SystemDatabase, _as_written(resolving.system_database, SystemDatabaseAttributes | None)
    ] = field(default_factory=SystemDatabase)
    key_prefix: Annotated[tuple[str, ...], _as_written(resolving.key, Texts)] = ()
    session: Annotated[tuple[str, ...], _as_written(templates.one_or_several, Texts)] = ()
    sessions: Annotated[str, _as_written(resolving.sessions, str)] = "file"
    variables: Annotated[dict[str, str], _as_written(templates.texts, dict[str, str])] = field(
        default_factory=dict
    )
    variables_file: Annotated[str | None, _as_written(templates.optional_text, str | None)] = None
    other_catalogs: Annotated[
        tuple[OtherCatalog, ...],
        _as_written(resolving.other_catalogs, list[OtherCatalogAttributes]),
    ] = ()
    tables: Annotated[
        dict[str, TableSettings], _as_written(resolving.tables, dict[str, TableAttributes])
    ] = field(default_factory=dict)
    discover: Annotated[tuple[str, ...], _as_written(resolving.discover, bool | Texts)] = ()
    translator: Annotated[
        LakehouseTranslator | None, _as_written(resolving.translator, str | None)
    ] = None
    defs_state: Annotated[
        DefsStateConfigArgs | None,
        dg.Resolver.default(model_field_type=DefsStateConfigArgs | None),
    ] = None
    supervision: Annotated[
        SupervisionPolicy, _as_written(partial(resolving.policy, SupervisionPolicy), Settings)
    ] = field(default_factory=SupervisionPolicy)
    progress: Annotated[
        ProgressPolicy, _as_written(partial(resolving.policy, ProgressPolicy), Settings)
    ] = field(default_factory=ProgressPolicy)
    checks: Annotated[
        dict[str, CheckPolicy], _as_written(resolving.checks, dict[str, Settings])
    ] = field(default_factory=dict)
    maintenance: Annotated[
        MaintenancePolicy | None,
        _as_written(maintaining.maintenance, MaintenanceAttributes | None),
    ] = None
    materialize_timeout: Annotated[str, _as_written(templates.text, str)] = "10m"
    sensors_running: Annotated[bool, _as_written(templates.yes_or_no, bool | str)] = True

    @classmethod
    def get_model_cls(cls) -> type[WrittenAttributes]:
        """The schema of the attributes; stricter and better described than a derived one."""
        return WrittenAttributes

    @classmethod
    def load(cls, attributes: Any, context: dg.ComponentLoadContext) -> Self:
        """Make the component; what is wrong is told with file, line and field."""
        said = None if attributes is None else dict(attributes.model_extra or {})
        load = super().load
        return with_line(
            lambda: load(cls._checked(said, _folder(context)), context),
            component=cls.__name__,
            folder=_folder(context),
            attributes=said,
        )

    @classmethod
    def _checked(cls, said: dict[str, Any] | None, folder: Path) -> LakehouseAttributes:
        """What is written, all of it of the right types."""
        if said is None:
            raise FieldError(
                f"{cls.__name__} has no attributes.",
                path=("attributes",),
                remedy="Give at least catalog, flink and scripts below attributes.",
            )
        refuse_repeated(folder, cls.__name__, said)
        report(wrong_types(LakehouseAttributes, said))
        return LakehouseAttributes.model_validate(said)

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where what was discovered is kept: by default in the project's folder.

        It is refreshed by command only, also by ``dagster dev``: loading needs no network.
        """
        args = self.defs_state or DefsStateConfigArgs.local_filesystem()
        if self.defs_state is None or "refresh_if_dev" not in args.model_fields_set:
            args = args.model_copy(update={"refresh_if_dev": False})
        return DefsStateConfig.from_args(args, default_key=f"LakehouseComponent[{self.name}]")

    def lakehouse(self, folder: Path = Path()) -> Lakehouse:
        """The same lakehouse as Python code would make.

        Args:
            folder: what the path of ``variables_file`` is relative to.
        """
        return Lakehouse(
            catalog=self.catalog,
            flink=self.flink,
            name=self.name,
            system_database=self.system_database,
            key_prefix=self.key_prefix,
            supervision=self.supervision,
            progress=self.progress,
            checks=self.checks,
            maintenance=self.maintenance,
            materialize_timeout=self.materialize_timeout,
            tables=self.tables,
            translator=self.translator,
            discover=self.discover,
            other_catalogs=self.other_catalogs,
            variables={**self._variables_of_file(folder), **self.variables},
        )

    def _require_files(self, folder: Path) -> None:
        with about("scripts"):
            find_scripts(self.scripts, folder)
        with about("session"):
            if self.session:
                find_scripts(self.session, folder)
        with about("variables_file"):
            self._variables_of_file(folder)

    def _variables_of_file(self, folder: Path) -> dict[str, str]:
        return read_variables(folder / self.variables_file) if self.variables_file else {}

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Read the scripts and make the definitions; needs no network."""
        if not self.discover:
            return self.build_defs_from_state(context, None)
        return super().build_defs(context)

    def build_defs_from_state(
        self, context: dg.ComponentLoadContext, state_path: Path | None
    ) -> dg.Definitions:
        """The definitions, with the tables that were found at the last refresh."""
        folder = _folder(context)
        found = discovery.Discovery(state_path, partial(self._refresh, context.project_root))
        return with_line(
            lambda: self._definitions(folder, found),
            component=type(self).__name__,
            folder=folder,
        )

    def _definitions(self, folder: Path, found: discovery.Discovery) -> dg.Definitions:
        self._require_files(folder)
        with about_what_it_names():
            return self.lakehouse(folder).definitions(
                self.scripts,
                start=self.start,
                base_folder=folder,
                sensors_running=self.sensors_running,
                session=self.session,
                sessions=self.sessions,
                discovery=found,
            )

    def write_state_to_path(self, state_path: Path) -> None:
        """Look into the catalog; what was found before stays when it cannot be reached."""
        found = discovery.discover(self.catalog, self.discover, discovery.read(state_path))
        discovery.write(state_path, found)
        object.__setattr__(self, "found", found)

    found: ClassVar[discovery.Discovered | None] = None
    """What this object found itself."""

    def _refresh(self, project_root: Path) -> discovery.Discovered:
        """Refresh the state as ``dg utils refresh-defs-state`` does."""
        try:
            asyncio.run(self.refresh_state(project_root))
        except dg.DagsterInvalidInvocationError as error:
            raise ConfigurationError(
                f"The state of {self.defs_state_config.key} is kept in a place that only Dagster's "
                "own command can write.",
                remedy="Run: dg utils refresh-defs-state",
            ) from error
        assert self.found is not None
        return self.found


def _folder(context: dg.ComponentLoadContext) -> Path:
    return context.path if context.path.is_dir() else context.path.parent
