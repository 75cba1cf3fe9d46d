"""``LakehouseComponent``: a lakehouse and its scripts from ``defs.yaml``, without any Python."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Annotated, Any

import dagster as dg

from lakehouse_dagster.components import templates
from lakehouse_dagster.components.attributes import (
    AuthAttributes,
    CatalogAttributes,
    FlinkAttributes,
    LakehouseAttributes,
    Settings,
    SystemDatabaseAttributes,
)
from lakehouse_dagster.components.scaffolder import LakehouseScaffolder
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import BasicAuth, BearerAuth, FlinkCluster
from lakehouse_dagster.lakehouse import Lakehouse
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.streaming.checks import CheckPolicy
from lakehouse_dagster.streaming.spec import ProgressPolicy, SupervisionPolicy
from lakehouse_dagster.system_db import SystemDatabase


def _as_written(resolve: Callable[[dg.ResolutionContext, Any], Any], schema: Any) -> dg.Resolver:
    """A resolver that gets the value as it stands in the file."""
    return dg.Resolver(resolve, model_field_type=schema, inject_before_resolve=False)


def _catalog(context: dg.ResolutionContext, written: CatalogAttributes) -> PaimonCatalog:
    return PaimonCatalog(
        warehouse=templates.text(context, written.warehouse),
        name=templates.text(context, written.name),
        metastore=templates.text(context, written.metastore),
        options=templates.texts(context, written.options),
    )


def _flink(context: dg.ResolutionContext, written: FlinkAttributes) -> FlinkCluster:
    return FlinkCluster(
        rest_url=templates.text(context, written.rest_url),
        sql_gateway_url=templates.text(context, written.sql_gateway_url),
        name=templates.text(context, written.name),
        auth=_auth(context, written.auth) if written.auth is not None else None,
        verify=_verify(context, written.verify),
        connect_timeout_seconds=templates.number(
            context, "flink.connect_timeout_seconds", written.connect_timeout_seconds
        ),
        read_timeout_seconds=templates.number(
            context, "flink.read_timeout_seconds", written.read_timeout_seconds
        ),
    )


def _auth(context: dg.ResolutionContext, written: AuthAttributes) -> BasicAuth | BearerAuth:
    basic = (written.username, written.password)
    if written.token is not None and basic == (None, None):
        return BearerAuth(templates.secret(context, "flink.auth.token", written.token))
    if written.token is None and written.username is not None and written.password is not None:
        return BasicAuth(
            templates.text(context, written.username),
            templates.secret(context, "flink.auth.password", written.password),
        )
    raise ConfigurationError(
        "flink.auth is neither a user with a password nor a token.",
        remedy="Give username and password, or token alone.",
    )


def _verify(context: dg.ResolutionContext, written: bool | str) -> bool | str:
    if isinstance(written, bool):
        return written
    value = templates.text(context, written)
    return {"true": True, "false": False}.get(value.strip().lower(), value)


def _system_database(
    context: dg.ResolutionContext, written: SystemDatabaseAttributes | None
) -> SystemDatabase:
    if written is None:
        return SystemDatabase()
    return SystemDatabase(
        templates.text(context, written.url),
        templates.number(
            context, "system_database.busy_timeout_seconds", written.busy_timeout_seconds
        ),
    )


def _scripts(context: dg.ResolutionContext, written: str | list[str]) -> tuple[str, ...]:
    several = [written] if isinstance(written, str) else written
    return tuple(templates.text(context, one) for one in several)


def _key_prefix(context: dg.ResolutionContext, written: str | list[str]) -> tuple[str, ...]:
    parts = written.split("/") if isinstance(written, str) else written
    return tuple(templates.text(context, part) for part in parts)


def _policy(policy: type[Any], what: str, context: dg.ResolutionContext, written: Settings) -> Any:
    kinds = {setting.name: str(setting.type) for setting in fields(policy)}
    unknown = sorted(set(written) - set(kinds))
    if unknown:
        raise ConfigurationError(
            f"{what} has no setting {', '.join(unknown)}.",
            remedy=f"Its settings are {', '.join(kinds)}.",
        )
    read: dict[str, Callable[[str, Any], Any]] = {
        "int | None": partial(templates.whole_number, context),
        "int": partial(templates.whole_number, context),
        "bool": partial(templates.yes_or_no, context),
    }
    return policy(
        **{
            name: read[kinds[name]](f"{what}.{name}", value)
            if kinds[name] in read
            else templates.text(context, str(value))
            for name, value in written.items()
        }
    )


def _checks(context: dg.ResolutionContext, written: dict[str, Settings]) -> dict[str, CheckPolicy]:
    return {
        table: _policy(CheckPolicy, f"checks.{table}", context, bounds)
        for table, bounds in written.items()
    }


def _sensors_running(context: dg.ResolutionContext, written: bool | str) -> bool:
    return templates.yes_or_no(context, "sensors_running", written)


@dg.scaffold_with(LakehouseScaffolder)
@dataclass(frozen=True)
class LakehouseComponent(dg.Component, dg.Resolvable):
    """A lakehouse from YAML: Flink SQL scripts become assets, jobs, checks and sensors.

    Builds the same object as ``Lakehouse(...).definitions(...)``. Scripts are looked for relative
    to the folder of ``defs.yaml``; nothing is connected to when it is loaded.
    """

    catalog: Annotated[PaimonCatalog, _as_written(_catalog, CatalogAttributes)]
    flink: Annotated[FlinkCluster, _as_written(_flink, FlinkAttributes)]
    scripts: Annotated[tuple[str, ...], _as_written(_scripts, str | list[str])]
    name: Annotated[str, _as_written(templates.text, str)] = "lake"
    start: Annotated[str, _as_written(templates.text, str)] = "on_demand"
    system_database: Annotated[
        SystemDatabase, _as_written(_system_database, SystemDatabaseAttributes | None)
    ] = field(default_factory=SystemDatabase)
    key_prefix: Annotated[tuple[str, ...], _as_written(_key_prefix, str | list[str])] = ()
    supervision: Annotated[
        SupervisionPolicy, _as_written(partial(_policy, SupervisionPolicy, "supervision"), Settings)
    ] = field(default_factory=SupervisionPolicy)
    progress: Annotated[
        ProgressPolicy, _as_written(partial(_policy, ProgressPolicy, "progress"), Settings)
    ] = field(default_factory=ProgressPolicy)
    checks: Annotated[dict[str, CheckPolicy], _as_written(_checks, dict[str, Settings])] = field(
        default_factory=dict
    )
    materialize_timeout: Annotated[str, _as_written(templates.text, str)] = "10m"
    sensors_running: Annotated[bool, _as_written(_sensors_running, bool | str)] = True

    @classmethod
    def get_model_cls(cls) -> type[LakehouseAttributes]:
        """The schema of the attributes; stricter and better described than a derived one."""
        return LakehouseAttributes

    def lakehouse(self) -> Lakehouse:
        """The same lakehouse as Python code would make."""
        return Lakehouse(
            catalog=self.catalog,
            flink=self.flink,
            name=self.name,
            system_database=self.system_database,
            key_prefix=self.key_prefix,
            supervision=self.supervision,
            progress=self.progress,
            checks=self.checks,
            materialize_timeout=self.materialize_timeout,
        )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Read the scripts and make the definitions; needs no network."""
        folder = context.path if context.path.is_dir() else context.path.parent
        return self.lakehouse().definitions(
            self.scripts,
            start=self.start,
            base_folder=folder,
            sensors_running=self.sensors_running,
        )
