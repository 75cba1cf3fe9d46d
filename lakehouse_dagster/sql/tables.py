"""From a parsed ``CREATE TABLE`` to columns, keys and options."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.model import Column, ColumnKind


@dataclass(frozen=True)
class TableBody:
    """What a CREATE TABLE says besides the name."""

    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    partition_keys: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    columns_known: bool = True
    like: tuple[str, ...] = ()
    """Name of the table that it is declared LIKE, if it is."""
    like_options: str = ""
    """The words in brackets after LIKE, in capitals."""

    @property
    def inherits_options(self) -> bool:
        """Whether LIKE brings the other table's WITH options along (Flink's default)."""
        excluded = "EXCLUDING ALL", "EXCLUDING OPTIONS"
        return bool(self.like) and (
            "INCLUDING OPTIONS" in self.like_options
            or not any(words in self.like_options for words in excluded)
        )


def table_body(create: exp.Create) -> TableBody:
    """Read the parts of a CREATE TABLE; a column of the primary key is never nullable."""
    members = create.this.expressions if isinstance(create.this, exp.Schema) else []
    definitions = [member for member in members if isinstance(member, exp.ColumnDef)]
    primary_key = _primary_key(members)
    properties = _properties(create)
    comment = next((p for p in properties if isinstance(p, exp.SchemaCommentProperty)), None)
    partitioning = next((p for p in properties if isinstance(p, exp.PartitionedByProperty)), None)
    like = next((p for p in properties if isinstance(p, nodes.TableLikeProperty)), None)
    derived = create.expression is not None or like is not None
    return TableBody(
        columns=tuple(_column(definition, primary_key) for definition in definitions),
        primary_key=primary_key,
        partition_keys=tuple(i.name for i in partitioning.this.expressions) if partitioning else (),
        options=options_of(create),
        comment=comment.this.name if comment else None,
        columns_known=not derived,
        like=tuple(part.name for part in like.this.parts) if like else (),
        like_options=(like.args.get("options") or "") if like else "",
    )


def options_of(create: exp.Create) -> dict[str, str]:
    """Return the WITH options; a variable that stands for several options is left out."""
    return {
        p.this.name: p.args["value"].name
        for p in _properties(create)
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
        type=data_type.sql("flink") if data_type else "",
        nullable=not (not_null or definition.name in primary_key),
        comment=comment.this.name if comment else None,
        kind=kind,
    )
