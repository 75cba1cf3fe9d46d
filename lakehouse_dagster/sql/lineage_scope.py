"""Where the columns of a query are looked for, and what each of them is made from.

What a column is made from is one number, a set of bits: a bit for every column of a table that the
query names, and one for what is not known. Combining is then a single ``|``, however many columns
a statement has; the numbers become ``ColumnLineage`` once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lakehouse_dagster.sql.model import Certainty, ColumnLineage, ColumnOrigin

NOTHING = 0
"""Of a constant: made from no column."""
UNKNOWN = 1
"""Perhaps made from further columns."""


class Origins:
    """What the bits stand for: each for the lineage of one column of a table or view."""

    def __init__(self) -> None:
        self._meanings = [ColumnLineage("", (), Certainty.UNKNOWN)]
        self._told: dict[int, tuple[tuple[ColumnOrigin, ...], Certainty]] = {}

    def bits(self, columns: Iterable[ColumnLineage]) -> list[int]:
        """Give every column a bit of its own; a constant has none."""
        return [
            NOTHING if not c.origins and c.certainty is Certainty.EXACT else self._bit(c)
            for c in columns
        ]

    def _bit(self, column: ColumnLineage) -> int:
        self._meanings.append(column)
        return 1 << len(self._meanings) - 1

    def at_most(self, made_from: int) -> int:
        """Give a bit to what is made from some of these columns, perhaps not from all."""
        origins, certainty = self.tell(made_from)
        doubt = Certainty.UNKNOWN if certainty is Certainty.UNKNOWN else Certainty.AT_MOST
        return self.bits([ColumnLineage("", origins, doubt)])[0]

    def tell_filters(self, filters: int) -> tuple[ColumnOrigin, ...]:
        """Return the columns that surely filter rows."""
        parts = [part for part in self._parts(filters) if part.certainty is not Certainty.AT_MOST]
        return tuple(dict.fromkeys(origin for part in parts for origin in part.origins))

    def tell(self, made_from: int) -> tuple[tuple[ColumnOrigin, ...], Certainty]:
        """Return the columns that the bits stand for, table by table, and how sure that is."""
        known = self._told.get(made_from)
        if known is None:
            known = self._told[made_from] = self._tell(made_from)
        return known

    def _tell(self, made_from: int) -> tuple[tuple[ColumnOrigin, ...], Certainty]:
        parts = self._parts(made_from)
        if len(parts) == 1:
            return parts[0].origins, parts[0].certainty
        certainties = {part.certainty for part in parts}
        certainty = Certainty.EXACT
        if Certainty.UNKNOWN in certainties:
            certainty = Certainty.UNKNOWN
        elif Certainty.AT_MOST in certainties:
            certainty = Certainty.AT_MOST
        return tuple(dict.fromkeys(o for part in parts for o in part.origins)), certainty

    def _parts(self, made_from: int) -> list[ColumnLineage]:
        parts = []
        while made_from:
            lowest = made_from & -made_from
            parts.append(self._meanings[lowest.bit_length() - 1])
            made_from ^= lowest
        return parts


class Relation:
    """What stands in FROM, and what a query gives.

    Args:
        names: Its columns in order: all of them, or where ``beyond`` is given, the known ones.
        made_from: Of each of ``names``.
        filters: What decides which rows it has.
        beyond: Tells what a column is made from that is not among ``names``, if there may be any.
        fields: Fields of its ROW columns, which Flink also finds by their own name alone.
    """

    __slots__ = ("_index", "beyond", "fields", "filters", "made_from", "names")

    def __init__(
        self,
        names: Sequence[str],
        made_from: Sequence[int],
        filters: int = NOTHING,
        beyond: Callable[[str], int] | None = None,
        fields: Mapping[str, int] | None = None,
    ) -> None:
        self.names = names
        self.made_from = made_from
        self.filters = filters
        self.beyond = beyond
        self.fields = fields or {}
        self._index: dict[str, int] | None = None

    def find(self, name: str) -> int | None:
        """Return what the column is made from; None if there is none of that name."""
        if self._index is None:
            self._index = index_of(zip(self.names, self.made_from, strict=True))
        found = self._index.get(name)
        if found is None:
            found = self.fields.get(name)
        if found is None and self.beyond is not None:
            return self.beyond(name)
        return found

    def renamed(self, names: Sequence[str]) -> Relation:
        """The same under other names, as ``AS t (a, b)`` gives them, from the first column on."""
        if not names:
            return self
        if self.beyond is None:
            kept = list(self.names[len(names) :])
            return Relation([*names, *kept], self.made_from, self.filters, None, self.fields)
        # Which columns the names belong to cannot be told.
        return Relation(names, [UNKNOWN] * len(names), self.filters, lambda _: UNKNOWN)

    @property
    def everything(self) -> int:
        """What all its columns together are made from."""
        together = NOTHING if self.beyond is None else UNKNOWN
        for bits in self.made_from:
            together |= bits
        return together


def index_of(columns: Iterable[tuple[str, int]]) -> dict[str, int]:
    """What each name stands for; a name that several columns have is not known."""
    index: dict[str, int] = {}
    for name, made_from in columns:
        index[name] = UNKNOWN if name in index else made_from
    return index


class Scope:
    """What names mean at one place of a query: the relations of its FROM, then those around it."""

    __slots__ = (
        "_index",
        "around",
        "ctes",
        "filters",
        "has_comma",
        "made_from",
        "names",
        "relations",
        "windows",
    )

    def __init__(self, around: Scope | None, ctes: dict[str, Relation] | None = None) -> None:
        self.around = around
        self.ctes: dict[str, Relation] = ctes or (around.ctes if around else {})
        self.relations: list[tuple[tuple[str, ...], Relation]] = []
        """Every relation of FROM with the name that it can be called by, as written."""
        self.names: list[str] = []
        """The columns that a star stands for, as far as they are known."""
        self.made_from: list[int] = []
        self.filters = NOTHING
        self.has_comma = False
        """Whether FROM has commas, after which USING and NATURAL are read in a way of their own."""
        self.windows: dict[str, object] = {}
        self._index: dict[str, int] | None = None

    def add(self, called: tuple[str, ...], relation: Relation) -> None:
        """Put a further relation beside those of the FROM clause."""
        self.relations.append((called, relation))
        self.names.extend(relation.names)
        self.made_from.extend(relation.made_from)
        self.filters |= relation.filters
        self._index = None

    def filter_by(self, made_from: int) -> None:
        """Take note that rows come about, or not, by these columns."""
        self.filters |= made_from

    def add_all(self, inner: Scope) -> None:
        """Put the relations of a join in brackets beside those of the FROM clause."""
        self.relations.extend(inner.relations)
        self.names.extend(inner.names)
        self.made_from.extend(inner.made_from)
        self.filters |= inner.filters
        self._index = None

    def merge(self, common: dict[str, int]) -> None:
        """Let the columns that a join has in common appear once, before all others."""
        kept = [
            (name, made_from)
            for name, made_from in zip(self.names, self.made_from, strict=True)
            if name not in common
        ]
        self.names = [*common, *(name for name, _ in kept)]
        self.made_from = [*common.values(), *(made_from for _, made_from in kept)]
        self._index = None

    def doubt(self) -> None:
        """Take note that it cannot be told which columns a join merges."""
        self.made_from = [made_from | UNKNOWN for made_from in self.made_from]
        self.add((), Relation((), (), NOTHING, lambda _: UNKNOWN))

    @property
    def open(self) -> list[Relation]:
        """The relations that may have columns that are not known."""
        found = {id(r): r for _, r in self.relations if r.beyond is not None}
        return list(found.values())

    def star(self) -> Relation:
        """What ``*`` stands for."""
        beyond = self._beyond if self.open else None
        return Relation([*self.names], [*self.made_from], NOTHING, beyond, self.fields)

    @property
    def fields(self) -> dict[str, int]:
        """Fields of ROW columns of all relations."""
        return index_of(item for _, relation in self.relations for item in relation.fields.items())

    def _field(self, name: str) -> int | None:
        found = [r.fields[name] for _, r in self.relations if name in r.fields]
        return found[0] if len(found) == 1 else UNKNOWN if found else None

    def _beyond(self, name: str) -> int:
        candidates = self.open
        if len(candidates) == 1 and candidates[0].beyond is not None:
            return candidates[0].beyond(name)
        return UNKNOWN

    def column(self, parts: Sequence[str]) -> int | None:
        """What a written column is made from; None if nothing can have that name.

        A name of several parts is first a relation and its column, the longest name first, then a
        column and its field (``DelegatingScope.fullyQualify`` in Calcite): a field is told as the
        column that it is in.
        """
        for length in range(len(parts) - 1, 0, -1):
            found = self._column_of(tuple(parts[:length]), parts[length])
            if found is not None:
                return found
        return self.unqualified(parts[0])

    def called(self, name: tuple[str, ...]) -> list[Relation]:
        """The relations that can be called so, of the innermost scope that has any."""
        scope: Scope | None = self
        while scope is not None:
            found = [relation for called, relation in scope.relations if _is_called(called, name)]
            if found:
                return found
            scope = scope.around
        return []

    def _column_of(self, name: tuple[str, ...], column: str) -> int | None:
        relations = self.called(name)
        if len(relations) > 1:
            return UNKNOWN
        return relations[0].find(column) if relations else None

    def unqualified(self, name: str) -> int | None:
        """What a name without a relation's name is made from."""
        maybe: Scope | None = None
        scope: Scope | None = self
        while scope is not None:
            if scope._index is None:
                scope._index = index_of(zip(scope.names, scope.made_from, strict=True))
            found = scope._index.get(name)
            if found is None:
                found = scope._field(name)
            if found is not None:
                # An inner relation whose columns are not known may have one of that name, too.
                return found if maybe is None else UNKNOWN
            if scope.open:
                if maybe is not None:
                    return UNKNOWN
                maybe = scope
            scope = scope.around
        return None if maybe is None else maybe._beyond(name)


def _is_called(called: tuple[str, ...], name: tuple[str, ...]) -> bool:
    """Whether a name, which may leave out or add database and catalog, is the relation's."""
    shared = min(len(called), len(name))
    return shared > 0 and called[-shared:] == name[-shared:]
