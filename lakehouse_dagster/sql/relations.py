"""What tables, sources and views a session knows, and which file declares each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lakehouse_dagster.sql.contradictions import contradicts, declared_differently
from lakehouse_dagster.sql.model import (
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
)
from lakehouse_dagster.sql.report import Report
from lakehouse_dagster.sql.session import Relation, Session, UnknownRelation
from lakehouse_dagster.sql.sources import mask_secrets, source_key
from lakehouse_dagster.sql.tables import TableBody
from lakehouse_dagster.sql.variables import Filled


@dataclass
class Found:
    """What one file declares."""

    tables: dict[TableName, TableDefinition] = field(default_factory=dict)
    sources: list[SourceDefinition] = field(default_factory=list)
    views: list[ViewDefinition] = field(default_factory=list)


class Relations:
    """The relations of a session, as one statement after another leaves them."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session = session
        self._report = report
        self._found = Found()
        """Of the file that is being read."""
        self._homes: dict[TableName, Found] = {}

    def begin_file(self) -> Found:
        """Let what is declared from here on be another file's; where it will be."""
        self._found = Found()
        return self._found

    def get(self, name: TableName) -> Relation | None:
        """What the name stands for: what is temporary hides what is lasting."""
        return self._session.temporary.get(name) or self._session.lasting.get(name)

    def remember(self, relation: Relation, *, temporary: bool) -> None:
        """Let the session know a relation."""
        relations = self._session.temporary if temporary else self._session.lasting
        relations[relation.name] = relation

    def declare_table(self, table: TableDefinition) -> None:
        """Take note of a table of the lake; a second one of the name must not contradict it."""
        known = self._home(table.name).tables.get(table.name)
        if known is None:
            self._found.tables[table.name] = table
            self._homes[table.name] = self._found
        elif contradicts(known, table):
            self._report.add(declared_differently(known, table))
        elif table.columns_known and not known.columns_known:
            self._home(table.name).tables[table.name] = table
        self._session.lasting[table.name] = self._home(table.name).tables[table.name]

    def declare_source(self, source: SourceDefinition, *, temporary: bool) -> None:
        """Take note of something outside the lake."""
        self.remember(source, temporary=temporary)
        self._found.sources.append(source)

    def declare_view(self, view: ViewDefinition) -> None:
        """Take note of a view."""
        self.remember(view, temporary=view.temporary)
        self._found.views.append(view)

    def become(self, name: TableName, body: TableBody, filled: Filled) -> None:
        """Put what a table has become in the place of what it was."""
        before = self._session.bodies[name]
        self._session.bodies[name] = body
        temporary = name in self._session.temporary
        relations = self._session.temporary if temporary else self._session.lasting
        known = relations[name]
        if not isinstance(known, TableDefinition | SourceDefinition):
            return
        new = {k: filled.shown(v) for k, v in body.options.items() if before.options.get(k) != v}
        old = {k: v for k, v in known.options.items() if k in body.options}
        options = {**old, **mask_secrets(new)}
        if isinstance(known, TableDefinition):
            relations[name] = self._home(name).tables[name] = replace(
                known,
                columns=body.columns,
                primary_key=body.primary_key,
                partition_keys=body.partition_keys,
                options=options,
                columns_known=body.columns_known,
            )
            return
        source = replace(
            known,
            asset_key=source_key(known.connector, name.table, body.options),
            columns=body.columns if body.columns_known else (),
            options=options,
        )
        relations[name] = source
        self._found.sources = [source if s is known else s for s in self._found.sources]

    def rename(self, old: TableName, name: str) -> None:
        """Let a table be known by another name of its database."""
        new = replace(old, table=name)
        body = self._session.bodies.pop(old)
        home = self._homes.pop(old, self._found)
        for relations in (self._session.temporary, self._session.lasting):
            known = relations.pop(old, None)
            if isinstance(known, TableDefinition):
                home.tables.pop(old, None)
                home.tables[new] = relations[new] = replace(known, name=new)
                self._homes[new] = home
            elif isinstance(known, SourceDefinition):
                relations[new] = replace(known, name=new)
            elif known is not None:
                relations[new] = UnknownRelation(new, f"nothing is known of {old}, which it was")
        self._session.bodies[new] = body

    def forget_columns(self, name: TableName | None) -> None:
        """Let the columns of a table be unknown from here on."""
        if name is None:
            return
        body = self._session.bodies.get(name)
        if body is not None:
            self.become(name, replace(body, columns=(), columns_known=False), Filled(""))

    def _home(self, name: TableName) -> Found:
        return self._homes.get(name, self._found)
