"""Reads units: what was read before comes from the cache, the rest from reading processes."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lakehouse_dagster.sql.cache import ScriptCache, key_of
from lakehouse_dagster.sql.model import Location, Problem, Script, Severity
from lakehouse_dagster.sql.packing import unpack
from lakehouse_dagster.sql.sources import mask_secrets
from lakehouse_dagster.sql.transport import from_data, to_data
from lakehouse_dagster.sql.unit import (
    Asked,
    Declarations,
    Externals,
    Reading,
    ReadingContext,
    Unit,
)
from lakehouse_dagster.sql.worker_pool import Question, Unanswered, WorkerPool

R = TypeVar("R", Declarations, Reading)

_NOTHING = Declarations(Externals(), Asked())


class KeptReading:
    """The two passes of reading (``project.ReadDeclarations``, ``project.ReadJobs``).

    A result follows from the unit, the context, and what the unit asked others for and was
    answered. What it asks shows only when it is read, so that is kept as well, under a key of
    unit and context, and leads to the key of the result.
    """

    def __init__(self, pool: WorkerPool, cache: ScriptCache) -> None:
        self._pool = pool
        self._cache = cache
        self._unanswered: dict[Unit, Unanswered] = {}
        self.kept_as: list[str | None] = []
        """Keys of the readings of ``jobs``, in order; None for what is not kept."""

    def declarations(
        self, units: Sequence[Unit], context: ReadingContext, externals: Externals
    ) -> list[Declarations]:
        """The first pass."""
        found, _ = self._read("declarations", Declarations, units, context, externals)
        return [_NOTHING if isinstance(one, Unanswered) else one for one in found]

    def jobs(
        self, units: Sequence[Unit], context: ReadingContext, externals: Externals
    ) -> list[Reading]:
        """The second pass."""
        found, keys = self._read("jobs", Reading, units, context, externals)
        self.kept_as += keys
        return [
            _failed(unit, one) if isinstance(one, Unanswered) else one
            for unit, one in zip(units, found, strict=True)
        ]

    def kept(self, keys: Sequence[str]) -> list[Reading] | None:
        """The readings under these keys, if all of them are kept."""
        with no_collections():
            found: list[Reading] = []
            for key in keys:
                data = self._cache.get(key)
                if data is None:
                    return None
                found.append(unpack(Reading, data))
            return found

    def _read(
        self,
        task: str,
        kind: type[R],
        units: Sequence[Unit],
        context: ReadingContext,
        externals: Externals,
    ) -> tuple[list[R | Unanswered], list[str | None]]:
        told = to_data(context)
        first_keys = [key_of(task, told, to_data(unit)) for unit in units]
        found: list[R | Unanswered | None] = [self._unanswered.get(unit) for unit in units]
        keys: list[str | None] = [None] * len(units)
        with no_collections():
            for n, first_key in enumerate(first_keys):
                asked = self._cache.get(first_key)
                if asked is not None and found[n] is None:
                    keys[n] = key = _key(first_key, asked, externals)
                    data = self._cache.get(key)
                    found[n] = None if data is None else unpack(kind, data)
        missing = [n for n, one in enumerate(found) if one is None]
        if missing:
            questions = [_question(task, units[n]) for n in missing]
            setting = {"context": told, "externals": to_data(externals)}
            secrets = _secrets(context.variables)
            for n, told_one in zip(missing, self._pool.ask_all(questions, setting), strict=True):
                keys[n] = None
                if isinstance(told_one, Unanswered):
                    found[n] = self._unanswered[units[n]] = told_one
                    continue
                found[n] = unpack(kind, told_one["read"])
                if told_one["may_be_kept"]:
                    key = _key(first_keys[n], told_one["asked"], externals)
                    if self._cache.put(key, told_one["read"], never=secrets):
                        self._cache.put(first_keys[n], told_one["asked"])
                        keys[n] = key
        return [one for one in found if one is not None], keys


def _key(first_key: str, asked: Any, externals: Externals) -> str:
    answers = externals.answers(from_data(Asked, asked))
    return key_of(first_key, asked, to_data(answers))


def _question(task: str, unit: Unit) -> Question:
    characters = sum(len(file.text) for file in (*unit.files, *unit.included))
    return Question(task, to_data(unit), unit.files[0].path, characters)


def _secrets(variables: Mapping[str, str]) -> list[str]:
    masked = mask_secrets(variables)
    return [value for name, value in variables.items() if value and masked[name] != value]


def _failed(unit: Unit, why: Unanswered) -> Reading:
    scripts = (
        Script(
            path=file.path,
            problems=(
                Problem(
                    Location(file.path, 1, 1),
                    Severity.ERROR,
                    f"Nothing is known of the script: {why.reason}.",
                    "Split it, or leave it out of the scripts. If it is an ordinary one, please "
                    "report it.",
                ),
            ),
        )
        for file in unit.files
    )
    return Reading(tuple(scripts), Asked())


@contextmanager
def no_collections() -> Iterator[None]:
    """Spare the garbage collector a hundred thousand new objects of which hardly one is garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
