"""Makes objects of the attributes of ``defs.yaml``; every error is about the field it is in."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from typing import Any

import dagster as dg

from lakehouse_dagster.components import templates
from lakehouse_dagster.components.attributes import (
    AuthAttributes,
    CatalogAttributes,
    FlinkAttributes,
    OtherCatalogAttributes,
    Settings,
    SystemDatabaseAttributes,
    TableAttributes,
    Texts,
)
from lakehouse_dagster.components.places import FieldError, at, each, field, field_name
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.flink import BasicAuth, BearerAuth, FlinkCluster
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.secret_names import is_secret
from lakehouse_dagster.streaming.checks import CheckPolicy
from lakehouse_dagster.streaming.partitions import TablePartitions
from lakehouse_dagster.streaming.spec import OtherCatalog, StartPolicy
from lakehouse_dagster.streaming.table_settings import TableSettings
from lakehouse_dagster.streaming.translator import LakehouseTranslator
from lakehouse_dagster.system_db import SystemDatabase
from lakehouse_dagster.system_db.database import holds_password

_ALL = ("*",)


def catalog(context: dg.ResolutionContext, written: CatalogAttributes) -> PaimonCatalog:
    """The Paimon catalog."""
    return PaimonCatalog(
        warehouse=templates.text(at(context, "warehouse"), written.warehouse),
        name=templates.text(at(context, "name"), written.name),
        metastore=templates.text(at(context, "metastore"), written.metastore),
        uri=templates.optional_text(at(context, "uri"), written.uri),
        options={
            key: (templates.secret if is_secret(key) else templates.text)(
                at(context, "options", key), value
            )
            for key, value in written.options.items()
        },
    )


def other_catalogs(
    context: dg.ResolutionContext, written: list[OtherCatalogAttributes]
) -> tuple[OtherCatalog, ...]:
    """Further catalogs that scripts may name."""
    made = []
    for number, one in enumerate(written):
        place = at(context, number)
        with each(place):
            prefix = key(at(place, "key_prefix"), one.key_prefix)
            made.append(OtherCatalog(catalog(place, one), prefix))
    return tuple(made)


def flink(context: dg.ResolutionContext, written: FlinkAttributes) -> FlinkCluster:
    """The Flink cluster."""
    auth = at(context, "auth")
    connect, read = "connect_timeout_seconds", "read_timeout_seconds"
    return FlinkCluster(
        rest_url=templates.text(at(context, "rest_url"), written.rest_url),
        sql_gateway_url=templates.text(at(context, "sql_gateway_url"), written.sql_gateway_url),
        name=templates.text(at(context, "name"), written.name),
        auth=_auth(auth, written.auth) if written.auth is not None else None,
        verify=_verify(at(context, "verify"), written.verify),
        connect_timeout_seconds=templates.number(
            at(context, connect), written.connect_timeout_seconds
        ),
        read_timeout_seconds=templates.number(at(context, read), written.read_timeout_seconds),
    )


def _auth(context: dg.ResolutionContext, written: AuthAttributes) -> BasicAuth | BearerAuth:
    basic = (written.username, written.password)
    if written.token is not None and basic == (None, None):
        return BearerAuth(templates.secret(at(context, "token"), written.token))
    if written.token is None and written.username is not None and written.password is not None:
        return BasicAuth(
            templates.text(at(context, "username"), written.username),
            templates.secret(at(context, "password"), written.password),
        )
    raise FieldError(
        "flink.auth is neither a user with a password nor a token.",
        path=context.path,
        remedy="Give username and password, or token alone.",
    )


def _verify(context: dg.ResolutionContext, written: bool | str) -> bool | str:
    if isinstance(written, bool):
        return written
    value = templates.text(context, written)
    return {"true": True, "false": False}.get(value.strip().lower(), value)


def system_database(
    context: dg.ResolutionContext, written: SystemDatabaseAttributes | None
) -> SystemDatabase:
    """Where jobs are remembered."""
    if written is None:
        return SystemDatabase()
    waits = templates.number(at(context, "busy_timeout_seconds"), written.busy_timeout_seconds)
    with field(at(context, "url")):
        if holds_password(templates.without_variables(written.url)):
            raise ConfigurationError(
                "The URL of the system database holds a password.",
                remedy="Keep secrets out of files: write "
                '"postgresql://user:{{ env.NAME }}@host/database", or "{{ env.NAME }}" for all.',
            )
        return SystemDatabase(templates.text(at(context, "url"), written.url), waits)


def start(context: dg.ResolutionContext, written: str) -> str:
    """The start policy, checked."""
    value = templates.text(context, written)
    known = [policy.value for policy in StartPolicy]
    if value not in known:
        raise ConfigurationError(
            f"start is {value!r}, which is no start policy.",
            remedy=f"Write one of: {', '.join(known)}.",
        )
    return value


def key(context: dg.ResolutionContext, written: Texts) -> tuple[str, ...]:
    """The parts of an asset key, or of its beginning: a list, or a text with ``/``."""
    parts = templates.one_or_several(context, written)
    return tuple(
        part for text in parts for part in (text.split("/") if len(parts) == 1 else [text])
    )


def policy(kind: type[Any], context: dg.ResolutionContext, written: Settings) -> Any:
    """A policy of named settings, each of which is checked at its own place."""
    kinds = {setting.name: str(setting.type) for setting in fields(kind)}
    read: dict[str, Callable[[dg.ResolutionContext, Any], Any]] = {
        "int | None": templates.whole_number,
        "int": templates.whole_number,
        "bool": templates.yes_or_no,
    }
    values: dict[str, Any] = {}
    for name, value in written.items():
        with each(at(context, name)):
            if name not in kinds:
                raise ConfigurationError(
                    f"{field_name(context)} has no setting {name}.",
                    remedy=f"Its settings are {', '.join(kinds)}.",
                )
            as_text = partial(_as_text, value)
            taken = read.get(kinds[name], as_text)(at(context, name), value)
            with as_field(kind, name):
                kind(**{name: taken})
            values[name] = taken
    return kind(**values)


@contextmanager
def as_field(kind: type[Any], name: str) -> Iterator[None]:
    """The place names the field already: what is wrong with it is told without its Python name."""
    try:
        yield
    except ConfigurationError as error:
        told = error.message.removeprefix(f"{kind.__name__}.{name} ")
        message = error.message if told == error.message else f"It {told}"
        raise ConfigurationError(message, remedy=error.remedy) from None


def _as_text(value: Any, context: dg.ResolutionContext, _: Any) -> str:
    return templates.text(context, str(value))


def checks(context: dg.ResolutionContext, written: dict[str, Settings]) -> dict[str, CheckPolicy]:
    """Bounds by table or pattern."""
    made: dict[str, CheckPolicy] = {}
    for table, bounds in written.items():
        with each(at(context, table)):
            made[table] = policy(CheckPolicy, at(context, table), bounds)
    return made


def tables(
    context: dg.ResolutionContext, written: Mapping[str, TableAttributes]
) -> dict[str, TableSettings]:
    """How tables are shown, by name or pattern."""
    made: dict[str, TableSettings] = {}
    for name, said in written.items():
        with each(at(context, name)):
            made[name] = _table(at(context, name), said)
    return made


def _table(context: dg.ResolutionContext, said: TableAttributes) -> TableSettings:
    values: dict[str, Any] = {
        "key": None if said.key is None else key(at(context, "key"), said.key),
        "group": templates.optional_text(at(context, "group"), said.group),
        "owners": templates.one_or_several(at(context, "owners"), said.owners),
        "tags": templates.texts(at(context, "tags"), said.tags),
        "kinds": templates.one_or_several(at(context, "kinds"), said.kinds),
        "description": templates.optional_text(at(context, "description"), said.description),
    }
    if said.partitions is not None:
        with field(at(context, "partitions")):
            filled = templates.filled(at(context, "partitions"), said.partitions)
            values["partitions"] = TablePartitions.read(filled)
    for name, value in values.items():
        with field(at(context, name)):
            TableSettings(**{name: value})
    return TableSettings(**values)


def discover(context: dg.ResolutionContext, written: bool | Texts) -> tuple[str, ...]:
    """The tables to look for in the catalog: none, all, or those of these names and patterns."""
    if isinstance(written, bool):
        return _ALL if written else ()
    said = templates.one_or_several(context, written)
    if len(said) == 1 and said[0].strip().lower() in ("true", "false"):
        return _ALL if said[0].strip().lower() == "true" else ()
    return said


def translator(context: dg.ResolutionContext, written: str | None) -> LakehouseTranslator | None:
    """A translator by its place in Python: a class, or an instance."""
    if written is None:
        return None
    name = templates.text(context, written)
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute) if module else None
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"The translator {name} cannot be imported: {error}.",
            remedy="Write module and class, such as my_project.lake.Translator.",
        ) from error
    made: object = found() if isinstance(found, type) else found
    if not isinstance(made, LakehouseTranslator):
        raise ConfigurationError(
            f"{name} is no LakehouseTranslator.",
            remedy="Name a class that inherits from lakehouse_dagster.LakehouseTranslator.",
        )
    return made


def sessions(context: dg.ResolutionContext, written: str) -> str:
    """What makes a session: each file, or each folder."""
    value = templates.text(context, written)
    if value not in ("file", "folder"):
        raise ConfigurationError(f"sessions is {value!r}.", remedy="Write file or folder.")
    return value
