"""From a parsed ``CREATE TABLE`` to columns, keys and options."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.lineage import referenced_columns
from lakehouse_dagster.sql.model import Column, ColumnKind
from lakehouse_dagster.sql.sources import mask_address

_MOST_TYPES = 10_000
_WRITTEN_TYPES: dict[Hashable, str] = {}
_DERIVED_KINDS = {ColumnKind.COMPUTED: "GENERATED", ColumnKind.METADATA: "METADATA"}


@dataclass(frozen=True)
class TableBody:
    """What a CREATE TABLE says besides the name."""

    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    columns_known: bool = True
    computed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By computed column, the columns that its expression names."""
    like: tuple[str, ...] = ()
    """Name of the table that it is declared LIKE, if it is."""
    like_options: Mapping[str, str] = field(default_factory=dict)
    """INCLUDING, EXCLUDING or OVERWRITING by feature, as said after LIKE."""

    def takes(self, feature: str) -> bool:
        """Whether LIKE brings a feature of the other table along (Flink's CREATE TABLE page).

        Features are ALL, CONSTRAINTS, GENERATED, METADATA, OPTIONS, PARTITIONS; what is said of
        one feature wins over what is said of ALL, and what is not said is included.
        """
        rules = self.like_options
        return rules.get(feature, rules.get("ALL", "INCLUDING")) != "EXCLUDING"

    def like_table(self, base: TableBody | None) -> TableBody:
        """The whole table, with what it takes from the one that it is LIKE; None: not known."""
        if base is None:
            return replace(self, columns_known=False)
        taken = tuple(
            column
            for column in base.columns
            if column.kind is ColumnKind.PHYSICAL or self.takes(_DERIVED_KINDS[column.kind])
        )
        own = {column.name for column in self.columns}
        return replace(
            self,
            columns=(*(column for column in taken if column.name not in own), *self.columns),
            primary_key=self.primary_key or (base.primary_key if self.takes("CONSTRAINTS") else ()),
            partition_keys=self.partition_keys
            or (base.partition_keys if self.takes("PARTITIONS") else ()),
            options={**(base.options if self.takes("OPTIONS") else {}), **self.options},
            columns_known=base.columns_known,
            computed={**base.computed, **self.computed},
        )


def table_body(create: exp.Create) -> TableBody:
    """Read the parts of a CREATE TABLE; a column of the primary key is never nullable."""
    elements = table_elements(
        create.this.expressions if isinstance(create.this, exp.Schema) else []
    )
    properties = _properties(create)
    comment = next((p for p in properties if isinstance(p, exp.SchemaCommentProperty)), None)
    partitioning = next((p for p in properties if isinstance(p, exp.PartitionedByProperty)), None)
    like = next((p for p in properties if isinstance(p, nodes.TableLikeProperty)), None)
    derived = create.expression is not None or like is not None
    return replace(
        elements,
        partition_keys=tuple(i.name for i in partitioning.this.expressions) if partitioning else (),
        options=options_of(create),
        comment=mask_address(comment.this.name) if comment else None,
        columns_known=not derived,
        like=tuple(part.name for part in like.this.parts) if like else (),
        like_options={o.name: o.args["strategy"] for o in like.expressions} if like else {},
    )


def table_elements(members: list[exp.Expr]) -> TableBody:
    """Read what stands in the brackets of CREATE TABLE, or of ALTER TABLE … ADD."""
    definitions = [member for member in members if isinstance(member, exp.ColumnDef)]
    primary_key = _primary_key(members)
    return TableBody(
        columns=tuple(_column(definition, primary_key) for definition in definitions),
        primary_key=primary_key,
        computed=dict(_computed(definitions)),
    )


def options_of(create: exp.Create) -> dict[str, str]:
    """Return the WITH options; a variable that stands for several options is left out."""
    return options_among(_properties(create))


def options_among(properties: list[exp.Expr]) -> dict[str, str]:
    """Return those of the properties that are ``'key' = 'value'``."""
    return {
        p.this.name: p.args["value"].name
        for p in properties
        if type(p) is exp.Property and p.args.get("value")
    }


def is_temporary(create: exp.Create) -> bool:
    """Whether it is CREATE TEMPORARY."""
    return any(isinstance(p, exp.TemporaryProperty) for p in _properties(create))


def created_table(create: exp.Create) -> exp.Table:
    """Return the name that is created."""
    target = create.this.this if isinstance(create.this, exp.Schema) else create.this
    if not isinstance(target, exp.Table):
        raise TypeError(f"CREATE of {type(target).__name__}")
    return target


def _computed(definitions: list[exp.ColumnDef]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for definition in definitions:
        for constraint in definition.constraints:
            if isinstance(constraint.kind, exp.ComputedColumnConstraint):
                yield definition.name, referenced_columns(constraint.kind.this)


def _properties(create: exp.Create) -> list[exp.Expr]:
    properties = create.args.get("properties")
    return list(properties.expressions) if properties else []


def _primary_key(members: list[exp.Expr]) -> tuple[str, ...]:
    for member in members:
        key = member.expressions[0] if isinstance(member, exp.Constraint) else member
        if isinstance(key, exp.PrimaryKey):
            return tuple(column.name for column in key.expressions)
    return tuple(
        member.name
        for member in members
        if isinstance(member, exp.ColumnDef)
        and any(isinstance(c.kind, exp.PrimaryKeyColumnConstraint) for c in member.constraints)
    )


def _column(definition: exp.ColumnDef, primary_key: tuple[str, ...]) -> Column:
    constraints = [constraint.kind for constraint in definition.constraints]
    not_null = any(
        isinstance(c, exp.NotNullColumnConstraint) and not c.args.get("allow_null")
        for c in constraints
    )
    comment = next((c for c in constraints if isinstance(c, exp.CommentColumnConstraint)), None)
    kind = ColumnKind.PHYSICAL
    if any(isinstance(c, exp.ComputedColumnConstraint) for c in constraints):
        kind = ColumnKind.COMPUTED
    elif any(isinstance(c, nodes.MetadataColumnConstraint) for c in constraints):
        kind = ColumnKind.METADATA
    data_type = definition.args.get("kind")
    return Column(
        name=definition.name,
        type=_written_type(data_type) if data_type else "",
        nullable=not (not_null or definition.name in primary_key),
        comment=mask_address(comment.this.name) if comment else None,
        kind=kind,
    )


def _written_type(data_type: exp.Expr) -> str:
    """A type as Flink writes it; a project has few of them, for very many columns."""
    form = _form(data_type)
    written = _WRITTEN_TYPES.get(form)
    if written is None:
        if len(_WRITTEN_TYPES) == _MOST_TYPES:
            _WRITTEN_TYPES.clear()
        written = _WRITTEN_TYPES[form] = data_type.sql("flink")
    return written


def _form(node: Any) -> Hashable:
    """All of a tree that decides how it is written, to be compared quickly."""
    if isinstance(node, list):
        return tuple([_form(member) for member in node])
    if not isinstance(node, exp.Expr):
        known: Hashable = node
        return known
    members = [(key, _form(member)) for key, member in node.args.items() if member is not None]
    return (type(node), tuple(node.comments or ()), *members)
