"""Which jobs' health is another than what was last told of it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta

from lakehouse_dagster.streaming.observe import Observation, ObservedState, waits_for_a_person
from lakehouse_dagster.streaming.runtime import Runtime
from lakehouse_dagster.system_db import DesiredState, JobRecord

_UNTOUCHED = "untouched"
_TOLD_AGAIN_EVERY = timedelta(seconds=30)
_TOLD_AGAIN_FOR = timedelta(seconds=180)


def told_degraded(health: Mapping[str, str], name: str) -> bool:
    """Whether DEGRADED is what was last told of the job."""
    return health.get(name, "").startswith(ObservedState.DEGRADED.value)


def is_untouched(observation: Observation) -> bool:
    """Whether nobody has had to do with the job yet, so that there is nothing to say of it."""
    return observation.desired is DesiredState.UNMANAGED and not observation.foreign


def changes(
    runtime: Runtime, observations: tuple[Observation, ...], told: Mapping[str, str]
) -> tuple[list[tuple[Observation, JobRecord]], dict[str, str]]:
    """The observations that differ from what was told, and what is told after them, by job."""
    records, now = runtime.memory.state().records, runtime.clock.now()
    changed: list[tuple[Observation, JobRecord]] = []
    after: dict[str, str] = {}
    for observation in observations:
        name = observation.name
        record, known = records[name], runtime.told.get(name)
        if known is not None and known[0] is observation and known[1] is record:
            word = known[2]
        else:
            word = _word(runtime, observation, record, now)
        after[name] = word
        # A check of which nothing was said is "not evaluated" to Dagster: neither good nor bad.
        if told.get(name, _UNTOUCHED) != word:
            changed.append((observation, record))
    return changed, after


def _word(runtime: Runtime, observation: Observation, record: JobRecord, now: datetime) -> str:
    word = _fingerprint(runtime, observation, record, now)
    if not record.attempts and now - record.updated_at >= _TOLD_AGAIN_FOR:
        runtime.told[observation.name] = (observation, record, word)  # time changes it no more
    return word


def _fingerprint(
    runtime: Runtime, observation: Observation, record: JobRecord, now: datetime
) -> str:
    """Short, because the cursor holds one for every job."""
    if is_untouched(observation):
        return _UNTOUCHED
    waits = record.attempts and waits_for_a_person(record, now, runtime.policy)
    what = (
        f"{observation.desired.value}/{observation.healthy}/{bool(waits)}/{record.last_error}/"
        f"{observation.outdated}/{observation.orphaned}/{observation.foreign}/"
        f"{_since_someone_acted(record, now)}"
    )
    return f"{observation.observed.value}-{zlib.crc32(what.encode()):08x}"


def _since_someone_acted(record: JobRecord, now: datetime) -> str:
    """Changes a few times in the minutes after a run or command acted on the job.

    A run that materialises a table also evaluates its checks, and Dagster shows that result as "not
    evaluated" from the next progress event on; ours, which is tied to no event, must come after it.
    """
    if record.desired is DesiredState.UNMANAGED:
        return "nobody"
    age = now - record.updated_at
    if age >= _TOLD_AGAIN_FOR:
        return "long ago"
    return f"{record.updated_at.timestamp()}+{age // _TOLD_AGAIN_EVERY}"
