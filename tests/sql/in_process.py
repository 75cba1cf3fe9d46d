"""Reads scripts in this process: fast, and a mistake of the reader shows its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse_dagster.sql.model import Project, Script
from lakehouse_dagster.sql.project import read_units
from lakehouse_dagster.sql.script_reader import read_declarations, read_jobs
from lakehouse_dagster.sql.unit import (
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    SourceText,
    Unit,
    normalized,
    unit_of,
)


def read_alone(
    text: str, path: str, *, lake: str = "lake", context: ReadingContext | None = None
) -> Script:
    """Read one script; what it declares itself is all that is known."""
    unit = Unit((SourceText(path, text),))
    context = context or ReadingContext(catalog=lake)
    declared = read_declarations(unit, context).declared
    return read_jobs(unit, context, declared).scripts[0]


def read_files(
    files: Mapping[str, str],
    *,
    session: Sequence[str] = (),
    together: bool = False,
    lake: str = "lake",
    variables: Mapping[str, str] | None = None,
    other_catalogs: Mapping[str, tuple[str, ...]] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Project:
    """Read files, given by path; those that no other includes are scripts.

    Args:
        session: Paths of session files.
        together: Whether all scripts are one session.
    """
    texts = {path: normalized(text) for path, text in files.items()}

    def unit(*paths: str) -> Unit:
        return unit_of([SourceText(path, texts[path]) for path in paths], texts.get)

    names = [p for p in sorted(texts) if p not in session and not p.startswith("included/")]
    units = [unit(*names)] if together else [unit(name) for name in names]
    context = ReadingContext(
        catalog=lake,
        prelude=unit(*session),
        variables=variables or {},
        other_catalogs=other_catalogs or {},
    )
    return read_units(units, context, _declarations, _jobs, environ=environ or {})


def _declarations(
    units: Sequence[Unit], context: ReadingContext, externals: Externals
) -> Sequence[Declarations]:
    return [read_declarations(unit, context, externals) for unit in units]


def _jobs(
    units: Sequence[Unit], context: ReadingContext, externals: Externals
) -> Sequence[Reading]:
    return [read_jobs(unit, context, externals) for unit in units]
