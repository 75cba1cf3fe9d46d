"""What is read in one go, and what a reading tells and asks of the rest of the project.

A *unit* is what Flink would run in one session: usually one file. Units are read one by one, each
twice: first for what it declares, then, with what others declare at hand, for its jobs. All here
is plain data, so that a unit can be read in another process and what comes out can be kept.
"""

from __future__ import annotations

import math
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakehouse_dagster.sql.model import (
    Script,
    SourceDefinition,
    TableDefinition,
    TableName,
    ViewDefinition,
)
from lakehouse_dagster.sql.script_text import included_path, statements_of

_MAY_INCLUDE = re.compile(r"(?i)(?:^|[;>\n])\s*SOURCE\s")


@dataclass(frozen=True)
class SourceText:
    """A file's text; ``path`` is what locations call the file."""

    path: str
    text: str = field(repr=False)

    @property
    def stem(self) -> str:
        """The file's name without folder and extension."""
        return posixpath.splitext(posixpath.basename(self.path.replace("\\", "/")))[0]


@dataclass(frozen=True)
class Unit:
    """Files that run in one session, in order, and the files that they name by ``SOURCE``."""

    files: tuple[SourceText, ...] = ()
    included: tuple[SourceText, ...] = ()

    def text_of(self, path: str) -> str | None:
        """The text of an included file; None if it could not be read."""
        return next((file.text for file in self.included if file.path == path), None)


@dataclass(frozen=True)
class ReadingContext:
    """What is the same for all units of a project.

    Args:
        catalog: Name of the lake's catalog, current when a session begins.
        prelude: Session files, which run before every unit.
        variables: The project's variables.
        other_catalogs: Further Paimon catalogs of the project: key prefix of their tables by name.
    """

    catalog: str = "lake"
    prelude: Unit = Unit()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    other_catalogs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    only_session: bool = False
    """Whether what is read are session files, which start no jobs."""

    def for_prelude(self) -> ReadingContext:
        """The context in which the session files themselves are read."""
        return replace(self, prelude=Unit(), only_session=True)


@dataclass(frozen=True)
class CatalogDefinition:
    """A catalog by name.

    Args:
        kind: Its type, or the system that a JDBC catalog shows.
        database: The database that is current when the catalog becomes so.
    """

    name: str
    kind: str
    database: str = "default"


@dataclass(frozen=True)
class Asked:
    """What a reading looked for outside of its own unit, whether it was found or not."""

    relations: tuple[TableName, ...] = ()
    catalogs: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Externals:
    """What units declare lastingly, so that other units can use it."""

    tables: tuple[TableDefinition, ...] = ()
    sources: tuple[SourceDefinition, ...] = ()
    """Tables of catalogs other than the lake's."""
    views: tuple[ViewDefinition, ...] = ()
    catalogs: tuple[CatalogDefinition, ...] = ()
    functions: tuple[str, ...] = ()

    def answers(self, asked: Asked) -> Externals:
        """That part of it that was asked for: on this, and nothing else, a reading depends."""
        known = self.relations
        relations = [known[name] for name in asked.relations if name in known]
        return Externals(
            tables=tuple(r for r in relations if isinstance(r, TableDefinition)),
            sources=tuple(r for r in relations if isinstance(r, SourceDefinition)),
            views=tuple(r for r in relations if isinstance(r, ViewDefinition)),
            catalogs=tuple(self.kinds[n] for n in asked.catalogs if n in self.kinds),
            functions=tuple(n for n in asked.functions if n.lower() in self.function_names),
        )

    @cached_property
    def relations(self) -> Mapping[TableName, TableDefinition | SourceDefinition | ViewDefinition]:
        """Tables, sources and views by name."""
        found: dict[TableName, TableDefinition | SourceDefinition | ViewDefinition] = {}
        for table in self.tables:
            found.setdefault(table.name, table)
        for source in self.sources:
            found.setdefault(source.name, source)
        for view in self.views:
            found.setdefault(view.name, view)
        return found

    @cached_property
    def kinds(self) -> Mapping[str, CatalogDefinition]:
        """Catalogs by name."""
        return {catalog.name: catalog for catalog in self.catalogs}

    @cached_property
    def function_names(self) -> frozenset[str]:
        """Functions in lower case."""
        return frozenset(name.lower() for name in self.functions)


@dataclass(frozen=True)
class Declarations:
    """What one unit declares lastingly, and what it had to ask for."""

    declared: Externals
    asked: Asked


@dataclass(frozen=True)
class Reading:
    """One unit read: a script for each of its files, and what it had to ask for."""

    scripts: tuple[Script, ...]
    asked: Asked


@dataclass
class Deadline:
    """Until when a unit is read, in seconds of this process's processor time."""

    cpu_seconds: float = math.inf
    is_over: bool = False
    """Whether it came before all was read."""

    def check(self) -> bool:
        """Whether there is no more time; from then on ``is_over``."""
        self.is_over = self.is_over or time.process_time() > self.cpu_seconds
        return self.is_over


def normalized(text: str) -> str:
    """Return a file's text without byte-order mark and with the line ends of Unix."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def unit_of(files: Sequence[SourceText], load: Callable[[str], str | None]) -> Unit:
    """Gather a unit: its files and all that they include, directly or not.

    Args:
        files: What runs in one session, in order.
        load: Gives the text of a file by its path (``SOURCE`` paths are completed from the
            folder of the file that names them), or None if there is none.
    """
    found: dict[str, SourceText] = {}
    waiting = list(files)
    own = {file.path for file in files}
    while waiting:
        for path in _includes(waiting.pop()):
            if path in found or path in own:
                continue
            text = load(path)
            if text is not None:
                found[path] = SourceText(path, normalized(text))
                waiting.append(found[path])
    return Unit(tuple(files), tuple(found[path] for path in sorted(found)))


def _includes(file: SourceText) -> Iterator[str]:
    # Looking for the word alone takes a tenth of the time.
    if "ource" in file.text.casefold() and _MAY_INCLUDE.search(file.text):
        for statement in statements_of(file.text, file.path).statements:
            path = included_path(statement)
            if path is not None:
                yield path
