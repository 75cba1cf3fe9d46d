"""What a Flink SQL script says, as plain frozen data that can cross a process boundary as JSON.

Every class here holds only strings, numbers, booleans, tuples, mappings and further classes of
this module, so that ``to_data`` and ``from_data`` can carry a whole ``Script`` through JSON: the
reader may then run in a process of its own.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from lakehouse_dagster.sql.scanner import significant_text

T = TypeVar("T")

_STEERS = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")


class StatementKind(str, Enum):
    """What a statement does, told from its leading words alone; it need not be readable."""

    CREATE_CATALOG = "create catalog"
    CREATE_DATABASE = "create database"
    CREATE_TABLE = "create table"
    CREATE_TEMPORARY_TABLE = "create temporary table"
    CREATE_TABLE_AS = "create table as"
    CREATE_VIEW = "create view"
    CREATE_TEMPORARY_VIEW = "create temporary view"
    CREATE_FUNCTION = "create function"
    CREATE_OTHER = "create"
    ALTER = "alter"
    DROP = "drop"
    DROP_TEMPORARY = "drop temporary"
    USE = "use"
    SET = "set"
    RESET = "reset"
    INSERT = "insert"
    STATEMENT_SET = "statement set"
    MODULE_OR_JAR = "module or jar"
    QUERY = "query"
    """SELECT, SHOW, DESCRIBE, EXPLAIN and so on: answers something, changes nothing."""
    ACTION = "action"
    """CALL, UPDATE, DELETE, TRUNCATE, EXECUTE PLAN, STOP JOB and so on: acts once, when run."""
    UNKNOWN = "unknown"


class Severity(str, Enum):
    """An error stops the script from being used; a warning names what is not known or left out.

    Advice is what could be better though all of it works; `lakehouse plan` shows it.
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class ColumnKind(str, Enum):
    """Where a column's values come from (Flink's CREATE TABLE page)."""

    PHYSICAL = "physical"
    COMPUTED = "computed"
    METADATA = "metadata"


@dataclass(frozen=True)
class Location:
    """A place in a script: 1-based line and column, counted in characters."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


@dataclass(frozen=True)
class TableName:
    """A table by catalog, database and name."""

    catalog: str
    database: str
    table: str

    @property
    def key(self) -> str:
        """``database.table``, as the Paimon catalog names it."""
        return f"{self.database}.{self.table}"

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.table}"


@dataclass(frozen=True)
class Statement:
    """One statement exactly as written, without its closing semicolon; ``${VAR}`` not filled in."""

    text: str = field(repr=False)
    location: Location
    kind: StatementKind


@dataclass(frozen=True)
class Column:
    """A column as declared; ``type`` is empty where a computed column leaves it to Flink."""

    name: str
    type: str
    nullable: bool = True
    comment: str | None = None
    kind: ColumnKind = ColumnKind.PHYSICAL


class Certainty(str, Enum):
    """How far the origins of a column can be trusted."""

    EXACT = "exact"
    AT_MOST = "at most"
    """The column comes from some of the origins, perhaps not all (MATCH_RECOGNIZE, a function that
    takes a whole table)."""
    UNKNOWN = "unknown"
    """There may be further origins; those named are true."""


@dataclass(frozen=True)
class ColumnOrigin:
    """A column of the lake's table, or of a source outside the lake: one of both is given."""

    table: TableName | None
    source: tuple[str, ...] | None
    column: str

    @property
    def relation(self) -> str:
        """``catalog.database.table``, or a source's key parts joined by ``/``."""
        return str(self.table) if self.table is not None else "/".join(self.source or ())

    def __str__(self) -> str:
        return f"{self.relation}.{self.column}"


@dataclass(frozen=True)
class ColumnLineage:
    """What the values of one column are made from; a constant has no origins."""

    column: str
    origins: tuple[ColumnOrigin, ...]
    certainty: Certainty = Certainty.EXACT


@dataclass(frozen=True)
class TableDefinition:
    """A table of the lake's catalog as a script creates it.

    ``columns_known`` is false where the columns follow from another table or a query that is not
    known (``LIKE``, ``AS SELECT``), or where the statement cannot be read. ``filled_by`` is what
    ``CREATE TABLE … AS SELECT`` fills the table from, once, by no job of the project; the types of
    its columns are then empty.
    """

    name: TableName
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partition_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None
    location: Location
    columns_known: bool = True
    filled_by: Flow | None = None

    @property
    def shape(self) -> tuple[object, ...]:
        """All that must agree when the same table is declared more than once."""
        options = tuple(sorted(self.options.items()))
        return (self.columns, self.primary_key, self.partition_keys, options, self.columns_known)


@dataclass(frozen=True)
class SourceDefinition:
    """Something outside the lake that a script declares a connector table for.

    Args:
        name: The connector table's name in the script.
        asset_key: Parts of the key of the external asset, such as ``("kafka", "orders")``.
        options: The ``WITH`` options; values of options that name a secret are masked.
    """

    name: TableName
    connector: str
    asset_key: tuple[str, ...]
    columns: tuple[Column, ...]
    options: Mapping[str, str]
    location: Location


@dataclass(frozen=True)
class ViewDefinition:
    """A view, expanded to the tables and sources that it reads.

    Args:
        columns: What its columns are made from, in order; None where its columns cannot be told.
        row_filters: What decides which rows it has.
    """

    name: TableName
    temporary: bool
    reads: tuple[TableName, ...]
    sources: tuple[tuple[str, ...], ...]
    dependencies_known: bool
    location: Location
    columns: tuple[ColumnLineage, ...] | None = None
    row_filters: tuple[ColumnOrigin, ...] = ()


@dataclass(frozen=True)
class Flow:
    """One ``INSERT`` of a job: where it writes and what it reads.

    Args:
        sink: The lake's table it writes; None for an external sink and where it cannot be told.
        external_sink: Key parts of what it writes outside the lake, if it does.
        reads: Tables of the lake that it reads, views expanded, its own sink left out.
        sources: Asset keys of the sources that it reads.
        columns: What each column of the sink that it writes is made from, in the sink's order;
            None where that cannot be told.
        row_filters: What decides, besides the values, which rows come about: WHERE, join
            conditions, HAVING, the keys of a top-N.
    """

    sink: TableName | None
    external_sink: tuple[str, ...] | None
    reads: tuple[TableName, ...]
    sources: tuple[tuple[str, ...], ...]
    reads_itself: bool
    dependencies_known: bool
    location: Location
    columns: tuple[ColumnLineage, ...] | None = None
    row_filters: tuple[ColumnOrigin, ...] = ()


@dataclass(frozen=True)
class JobDefinition:
    """A streaming job: one ``INSERT`` or statement set of a script.

    Args:
        setup: The statements before it that make the session it needs, in order.
        settings: The ``SET`` options in force at the statement.
        sinks: The lake's tables that it writes.
        reads: The lake's tables that it reads; no ``INSERT``'s own sink (``reads_itself``).
        sources: Asset keys of the sources that it reads.
        dependencies_known: False when something it reads or writes could not be told.
        flows: Its single ``INSERT``s, where the fields above are their union.
    """

    name: str
    name_is_explicit: bool
    statement: Statement
    setup: tuple[Statement, ...]
    settings: Mapping[str, str] = field(repr=False)
    sinks: tuple[TableName, ...]
    reads: tuple[TableName, ...]
    sources: tuple[tuple[str, ...], ...]
    reads_itself: bool
    dependencies_known: bool
    location: Location
    flows: tuple[Flow, ...] = ()

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over what the job runs; white space and comments do not count."""
        digest = _digest_of_setup(self.setup)
        digest.update(_what_counts(self.statement))
        for key, value in sorted(self.settings.items()):
            digest.update(f"{key}={value}".encode() + b"\0")
        return digest.hexdigest()


_last_setup: tuple[tuple[Statement, ...], hashlib._Hash] = ((), hashlib.sha256())


def _digest_of_setup(setup: tuple[Statement, ...]) -> hashlib._Hash:
    """A digest to go on with; that of a script's next job begins with that of the one before."""
    global _last_setup
    known, digest = _last_setup
    # The same objects: comparing them is quick.
    if setup[: len(known)] != known:
        known, digest = (), hashlib.sha256()
    digest = digest.copy()
    for statement in setup[len(known) :]:
        digest.update(_what_counts(statement))
    _last_setup = (setup, digest)
    return digest.copy()


def _what_counts(statement: Statement) -> bytes:
    return significant_text(statement.text).encode() + b"\0"


@dataclass(frozen=True)
class Problem:
    """Something about a script that its author should know, with what to do about it."""

    location: Location
    severity: Severity
    message: str
    remedy: str
    statement_start: str = ""

    def __str__(self) -> str:
        text = f"{self.location}: {self.severity.value}: {self.message} {self.remedy}".rstrip()
        return printable(text)


@dataclass(frozen=True)
class Script:
    """All that one file says.

    Args:
        statements: Those of the file, with those of files that it includes in their places.
        setup: The statements that make the session which the file leaves behind, those of session
            files among them; given only where the file declares tables, for others to make them.
    """

    path: str
    statements: tuple[Statement, ...] = ()
    tables: tuple[TableDefinition, ...] = ()
    sources: tuple[SourceDefinition, ...] = ()
    views: tuple[ViewDefinition, ...] = ()
    jobs: tuple[JobDefinition, ...] = ()
    problems: tuple[Problem, ...] = ()
    setup: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Project:
    """All scripts of a project, read together; names are resolved across them."""

    scripts: tuple[Script, ...] = ()
    tables: tuple[TableDefinition, ...] = ()
    sources: tuple[SourceDefinition, ...] = ()
    jobs: tuple[JobDefinition, ...] = ()
    problems: tuple[Problem, ...] = field(default=())

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that stop the project from being used."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR)


def printable(text: str) -> str:
    """Return a text with what steers a terminal, line breaks among it, written as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode() if unicodedata.category(sign) in _STEERS else sign
        for sign in text
    )


def unique(items: Iterable[T]) -> tuple[T, ...]:
    """The items without repetition, in the order of their first appearance."""
    return tuple(dict.fromkeys(items))
