"""What ALTER TABLE makes of a table, where that is beyond doubt."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from lakehouse_dagster.sql import dialect_nodes as nodes
from lakehouse_dagster.sql.model import Column
from lakehouse_dagster.sql.tables import TableBody, options_among, table_elements

_KEEPS_COLUMNS = {"ADD DISTRIBUTION", "MODIFY DISTRIBUTION", "DROP DISTRIBUTION", "DROP WATERMARK"}


class NotFollowedError(Exception):
    """The table after the statement is not known."""


def altered(body: TableBody, action: nodes.AlterAction) -> TableBody:
    """Return the table after ``ALTER TABLE … action``.

    Raises:
        NotFollowedError: What the action does to this table cannot be told.
    """
    kind = action.args["kind"]
    members = list(action.expressions)
    if kind == "SET":
        return replace(body, options={**body.options, **options_among(members)})
    if kind == "RESET":
        reset = {key.name for key in members}
        return replace(body, options={k: v for k, v in body.options.items() if k not in reset})
    if kind in _KEEPS_COLUMNS or any(isinstance(member, exp.Partition) for member in members):
        return body
    if kind in ("DROP PRIMARY KEY", "DROP CONSTRAINT"):
        return replace(body, primary_key=())
    if not body.columns_known:
        raise NotFollowedError
    if kind == "RENAME" and isinstance(action.this, exp.Identifier):
        return _renamed(body, action.this.name, action.args["value"].name)
    if kind == "DROP" and all(isinstance(member, exp.Identifier) for member in members):
        return _dropped(body, [member.name for member in members])
    if kind in ("ADD", "MODIFY"):
        return _added(body, members, modifies=kind == "MODIFY")
    raise NotFollowedError


def _renamed(body: TableBody, old: str, new: str) -> TableBody:
    _index(body.columns, old)

    def names(written: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in written)

    return replace(
        body,
        columns=tuple(
            replace(column, name=new) if column.name == old else column for column in body.columns
        ),
        primary_key=names(body.primary_key),
        partition_keys=names(body.partition_keys),
        computed={
            (new if column == old else column): names(made_from)
            for column, made_from in body.computed.items()
        },
    )


def _dropped(body: TableBody, dropped: list[str]) -> TableBody:
    columns = list(body.columns)
    for name in dropped:
        del columns[_index(tuple(columns), name)]
    return replace(body, columns=tuple(columns))


def _added(body: TableBody, members: list[exp.Expr], *, modifies: bool) -> TableBody:
    elements = table_elements(members)
    key = set(elements.primary_key)
    columns = [replace(c, nullable=False) if c.name in key else c for c in body.columns]
    places = [m.args.get("position") for m in members if isinstance(m, exp.ColumnDef)]
    for column, place in zip(elements.columns, places, strict=True):
        known = next((n for n, c in enumerate(columns) if c.name == column.name), None)
        if (known is not None) != modifies:
            raise NotFollowedError
        at = len(columns) if known is None else known
        if known is not None:
            if place is not None:
                del columns[known]
            else:
                columns[known] = column
                continue
        columns.insert(_place(tuple(columns), place, at), column)
    return replace(
        body,
        columns=tuple(columns),
        primary_key=elements.primary_key or body.primary_key,
        computed={**body.computed, **elements.computed},
    )


def _place(columns: tuple[Column, ...], place: exp.Expr | None, otherwise: int) -> int:
    if place is None:
        return otherwise
    if place.args.get("position") == "FIRST":
        return 0
    return _index(columns, place.name) + 1


def _index(columns: tuple[Column, ...], name: str) -> int:
    for number, column in enumerate(columns):
        if column.name == name:
            return number
    raise NotFollowedError
