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
from lakehouse_dagster.components.places import at, field, field_name
from lakehouse_dagster.components.resolving import policy
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.spec import (
    CheckBounds,
    CompactSpec,
    ExpireSpec,
    Limits,
    MaintenancePolicy,
    ManifestSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
)

_PARTS: Mapping[str, type[Any]] = {
    "compact": CompactSpec,
    "expire": ExpireSpec,
    "changelogs": ExpireSpec,
    "partitions": PartitionExpirySpec,
    "tags": TagSpec,
    "manifests": ManifestSpec,
    "orphans": OrphanSpec,
    "bounds": CheckBounds,
}
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
    default = TablePolicy()
    if written.default is not None:
        default = _table(at(context, "default"), written.default, default)
    return MaintenancePolicy(
        default,
        {
            pattern: _table(at(context, "tables", pattern), said, default)
            for pattern, said in written.tables.items()
        },
        policy(Limits, at(context, "limits"), written.limits),
    )


def _table(
    context: dg.ResolutionContext, written: TablePolicyAttributes, base: TablePolicy
) -> TablePolicy:
    """``base`` with what is said."""
    said = written.model_fields_set
    changes: dict[str, Any] = {}
    if "compaction" in said:
        with field(at(context, "compaction")):
            changes["compaction"] = _compaction(at(context, "compaction"), written.compaction)
            changes["compaction_group"] = None
            TablePolicy(compaction=changes["compaction"])
    if "compaction_group" in said:
        changes["compaction_group"] = templates.optional_text(
            at(context, "compaction_group"), written.compaction_group
        )
    for name, kind in _PARTS.items():
        if name in said:
            with field(at(context, name)):
                changes[name] = _part(
                    kind, at(context, name), getattr(written, name), getattr(base, name)
                )
    with field(context):
        return replace(base, **changes)


def _compaction(context: dg.ResolutionContext, written: str | bool | None) -> str:
    """YAML takes ``off`` for false."""
    if isinstance(written, bool):
        return "batch" if written else "off"
    return templates.text(context, written or "")


def _part(kind: type[Any], context: dg.ResolutionContext, written: Part, base: Any) -> Any:
    """A spec: ``base`` with what is said, or, where the default has none, one of its own."""
    if written is False or written is None:
        return None
    settings = {} if written is True else written
    types = {setting.name: str(setting.type) for setting in fields(kind)}
    values: dict[str, Any] = {}
    for name, value in settings.items():
        with field(at(context, name)):
            if name not in types:
                raise ConfigurationError(
                    f"{field_name(context)} has no setting {name}.",
                    remedy=f"Its settings are {', '.join(types)}.",
                )
            place = at(context, name)
            read = _READ.get(types[name])
            values[name] = read(place, value) if read else templates.text(place, str(value))
    if base is None:
        base = _smallest(kind, context, values)
    for name, value in values.items():
        with field(at(context, name)):
            replace(base, **{name: value})
    return replace(base, **values)


def _smallest(kind: type[Any], context: dg.ResolutionContext, values: Mapping[str, Any]) -> Any:
    """A spec with nothing but what must be said."""
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    for name in needed:
        if name not in values:
            raise ConfigurationError(
                f"{field_name(context)} does not say {name}.", remedy=f"Write {name} there."
            )
        with field(at(context, name)):
            made = kind(**{n: values[n] for n in needed if n in values})
    return made if needed else kind()
