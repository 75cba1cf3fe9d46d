"""Makes a maintenance policy of what stands in ``defs.yaml``; errors are about their field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import dagster as dg

from lakehouse_dagster.components import templates
from lakehouse_dagster.components.attributes import (
    MaintenanceAttributes,
    Part,
    TablePolicyAttributes,
)
from lakehouse_dagster.components.places import at, each, field, field_name
from lakehouse_dagster.components.resolving import as_field, policy
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.spec import PARTS, Limits, MaintenancePolicy, TablePolicy

_READ: Mapping[str, Callable[[dg.ResolutionContext, Any], Any]] = {
    "int": templates.whole_number,
    "float": templates.number,
}


def maintenance(
    context: dg.ResolutionContext, written: MaintenanceAttributes | None
) -> MaintenancePolicy | None:
    """The policy; None where nothing is said, which is no maintenance."""
    if written is None:
        return None
    default, tables = TablePolicy(), {}
    if written.default is not None:
        with each(at(context, "default")):
            default = _table(at(context, "default"), written.default, default)
    for pattern, said in written.tables.items():
        with each(at(context, "tables", pattern)):
            tables[pattern] = _table(at(context, "tables", pattern), said, default)
    return MaintenancePolicy(default, tables, policy(Limits, at(context, "limits"), written.limits))


def _table(
    context: dg.ResolutionContext, written: TablePolicyAttributes, base: TablePolicy
) -> TablePolicy:
    """``base`` with what is said."""
    said = written.model_fields_set
    changes: dict[str, Any] = {}
    if "compaction" in said:
        with each(at(context, "compaction")):
            compaction = _compaction(at(context, "compaction"), written.compaction)
            TablePolicy(compaction=compaction)
            changes |= {"compaction": compaction, "compaction_group": None}
    if "compaction_group" in said:
        changes["compaction_group"] = templates.optional_text(
            at(context, "compaction_group"), written.compaction_group
        )
    for name, kind in PARTS.items():
        if name in said:
            with each(at(context, name)):
                changes[name] = _part(
                    kind, at(context, name), getattr(written, name), getattr(base, name)
                )
    with field(context):
        return replace(base, **changes)


def _compaction(context: dg.ResolutionContext, written: str | bool | None) -> str:
    """YAML takes ``off`` for false."""
    if written is False:
        return "off"
    return templates.text(context, "true" if written is True else written or "")


def _part(kind: type[Any], context: dg.ResolutionContext, written: Part, base: Any) -> Any:
    """A spec: ``base`` with what is said, or, where the default has none, one of its own."""
    if written is False or written is None:
        return None
    settings = {} if written is True else written
    types = {setting.name: str(setting.type) for setting in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in settings.items():
        with each(at(context, name)):
            if name not in types:
                raise ConfigurationError(
                    f"{field_name(context)} has no setting {name}.",
                    remedy=f"Its settings are {', '.join(types)}.",
                )
            place = at(context, name)
            read = _READ.get(types[name])
            values[name] = read(place, value) if read else templates.text(place, str(value))
    if base is None and settings.keys() != values.keys():
        return None  # what is refused may be what must be said
    if base is None:
        base = _smallest(kind, context, values)
    for name in sorted(values, key="lasts".__eq__):
        if name == "lasts" and "cron" in settings and base.cron is None:
            continue  # it goes with a cron that is refused
        with each(at(context, name)), as_field(kind, name):
            base = replace(base, **{name: values[name]})
    return base


def _smallest(kind: type[Any], context: dg.ResolutionContext, values: Mapping[str, Any]) -> Any:
    """A spec with nothing but what must be said."""
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    for name in needed:
        if name not in values:
            raise ConfigurationError(
                f"{field_name(context)} does not say {name}.", remedy=f"Write {name} there."
            )
        with field(at(context, name)), as_field(kind, name):
            made = kind(**{n: values[n] for n in needed if n in values})
    return made if needed else kind()
