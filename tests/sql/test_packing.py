"""What crosses to another process is equal on the other side, and no longer than it need be."""

from __future__ import annotations

import json

from lakehouse_dagster.sql.packing import pack, unpack
from lakehouse_dagster.sql.script_reader import read_jobs
from lakehouse_dagster.sql.unit import Externals, Reading, ReadingContext, SourceText, Unit


def _read(text: str) -> Reading:
    return read_jobs(Unit((SourceText("s.sql", text),)), ReadingContext(), Externals())


def _script(jobs: int) -> str:
    return "".join(
        f"CREATE TABLE a.t{n} (x INT);\nINSERT INTO a.t{n} SELECT x FROM b.t{n};\n"
        for n in range(jobs)
    )


def test_sessions_that_grow_from_job_to_job_come_back_equal() -> None:
    reading = _read(_script(100))
    assert unpack(Reading, json.loads(json.dumps(pack(reading)))) == reading


def test_twice_the_jobs_are_about_twice_as_long() -> None:
    few, many = (len(json.dumps(pack(_read(_script(jobs))))) for jobs in (200, 400))
    assert many < 2.2 * few
