"""What must hold after every fault, judged from collected evidence alone.

The evidence is data, so that the judge itself is tested with histories that must not pass.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support.history import LogHistory
from tests.support.rows import Comparison


@dataclass(frozen=True)
class Evidence:
    """All that is known of one job when its fault is over."""

    job: str
    history: LogHistory
    """From the JobManager's log."""
    most_at_once: int = 1
    """By asking the JobManager all the time."""
    foreign_ids: frozenset[str] = frozenset()
    """Jobs of the same name that somebody else started: not ours to count or to end."""
    wanted_id: str | None = None
    """The one job that must run; None: none must."""
    alive_ids: Sequence[str] = ()
    """The jobs of this name that run."""
    rows: Comparison | None = None
    restored: tuple[str | None, str | None] = (None, None)
    """Where the running job was restored from: as recorded, and as Flink says."""
    posted_ids: Sequence[str] = ()
    """The Flink job id in every INSERT that was posted by us."""
    held_leases: Sequence[str] = ()
    running_submissions: Sequence[str] = ()
    """Gateway operations of INSERTs that are still under way."""
    unexpected_errors: Sequence[str] = field(default=(), repr=False)


def violations(evidence: Evidence) -> tuple[str, ...]:
    """Everything that must not be; empty when all is well."""
    return (
        *_doubled_jobs(evidence),
        *_wrong_rows(evidence),
        *_not_as_desired(evidence),
        *_left_behind(evidence),
    )


def _doubled_jobs(evidence: Evidence) -> list[str]:
    found = [
        f"two jobs named {name} ran at once: {first} and {second}"
        for name, first, second in evidence.history.overlaps
        if name == evidence.job and not {first, second} & evidence.foreign_ids
    ]
    if evidence.most_at_once > 1:
        found.append(f"{evidence.most_at_once} jobs named {evidence.job} were seen at once")
    started = Counter(evidence.history.started.get(evidence.job, ()))
    found += [f"job {job} was started {n} times" for job, n in started.items() if n > 1]
    posted = Counter(evidence.posted_ids)
    found += [f"the INSERT of job {job} was sent {n} times" for job, n in posted.items() if n > 1]
    return found


def _wrong_rows(evidence: Evidence) -> list[str]:
    rows = evidence.rows
    if rows is None:
        return []
    found = []
    if rows.missing:
        found.append(f"rows lost: {rows}")
    if rows.unexpected:
        found.append(f"rows doubled or made up: {rows}")
    if not rows.equal or rows.count != rows.expected or rows.distinct != rows.expected:
        found.append(f"{rows.count} rows, {rows.distinct} distinct, for {rows.expected}")
    return found


def _not_as_desired(evidence: Evidence) -> list[str]:
    wanted = {evidence.wanted_id} if evidence.wanted_id else set()
    ours = {job for job in evidence.alive_ids if job not in evidence.foreign_ids}
    found = [f"job {job} should run and does not" for job in sorted(wanted - ours)]
    found += [f"job {job} runs and should not" for job in sorted(ours - wanted)]
    recorded, flinks = (_plain(path) for path in evidence.restored)
    # After a restart of its own Flink names the job's own checkpoint.
    restarted = flinks is not None and f"/{evidence.wanted_id}/" in flinks
    if wanted and recorded != flinks and not restarted:
        found.append(f"restored from {flinks} according to Flink, but {recorded} is on record")
    return found


def _left_behind(evidence: Evidence) -> list[str]:
    found = [f"lease {lease} is still held" for lease in evidence.held_leases]
    found += [f"submission {one} is still under way" for one in evidence.running_submissions]
    found += [f"an error that is none of ours: {one}" for one in evidence.unexpected_errors]
    return found


def _plain(path: str | None) -> str | None:
    return path and re.sub(r"^file:(//)?", "", path)
