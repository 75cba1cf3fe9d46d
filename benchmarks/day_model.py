"""A model of tables that are written to all day, and of what compaction does to their files.

What is modelled, after Paimon's documentation and its defaults:

* A commit a minute. A table with a primary key gets a level-0 file in every bucket; an append table
  one file from every writer. Tables of little traffic commit less often.
* Traffic is distributed over the tables after Zipf (exponent 1.1) and swings with the time of day.
* Writers that compact themselves do so right after a commit: with a primary key by universal
  compaction (5 sorted runs, 6 levels, size ratio 1 %, size amplification 200 %), without by merging
  small files (less than 0.7 of the target file size) as soon as 5 of them lie in a partition.
* Merging into the highest level drops overwritten rows: 30 % of what comes is new.
* Target file sizes are 128 MB (primary key) and 256 MB (append).
* A full compaction leaves a bucket alone that has one run only, and in an append table the files
  that are no longer small.

Not modelled: conflicts with writers' commits, retries, deletion vectors, changelogs, and files
whose key ranges do not meet (Paimon moves those without rewriting them; here all ranges meet).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from lakehouse_dagster.paimon.file_facts import SMALL_SHARE, BucketFacts, TableFacts, TableKind

MIB = 1024**2
GIB = 1024**3
MINUTES_A_DAY = 1440

_TRIGGER = 5
_MAX_LEVEL = 5
_SIZE_RATIO_PERCENT = 1
_MAX_AMPLIFICATION = 2.0
_NEW_SHARE = 0.3
_TARGET = {True: 128 * MIB, False: 256 * MIB}
_APPEND_SMALL = int(0.7 * 256 * MIB)
_FACTS_SMALL = {keyed: int(SMALL_SHARE * size) for keyed, size in _TARGET.items()}
_SMALLEST_COMMIT = 32 * 1024


@dataclass
class Run:
    """A sorted run: one file on level 0, all files of a level above; sizes in bytes."""

    level: int
    files: list[int]
    size: int


@dataclass
class Keyed:
    """One bucket of a table with a primary key; the newest run first."""

    runs: list[Run]

    def add(self, size: int) -> None:
        self.runs.insert(0, Run(0, [size], size))

    def compact(self) -> int:
        """What universal compaction does, if anything; the bytes rewritten."""
        count = self._picked()
        return self._merge(count) if count else 0

    def compact_full(self) -> int:
        """Merge all into the highest level."""
        return self._merge(len(self.runs)) if len(self.runs) > 1 else 0

    @property
    def file_count(self) -> int:
        return sum(len(run.files) for run in self.runs)

    def facts(self, bucket: int, partition: tuple[tuple[str, str | None], ...]) -> BucketFacts:
        level0 = [run for run in self.runs if run.level == 0]
        small = [f for run in self.runs for f in run.files if f < _FACTS_SMALL[True]]
        return BucketFacts(
            partition=partition,
            bucket=bucket,
            files=self.file_count,
            size_bytes=sum(run.size for run in self.runs),
            records=0,
            level0_files=len(level0),
            level0_bytes=sum(run.size for run in level0),
            small_files=len(small),
            small_bytes=sum(small),
            settled_bytes=self.runs[-1].size if self.runs and self.runs[-1].level else 0,
            levels=len({run.level for run in self.runs}),
        )

    def _picked(self) -> int:
        """How many of the newest runs are merged."""
        runs = self.runs
        if len(runs) < _TRIGGER:
            return 0
        newer = sum(run.size for run in runs[:-1])
        if newer > _MAX_AMPLIFICATION * runs[-1].size:
            return len(runs)
        count = self._of_like_size(1)
        if count <= 1 and len(runs) > _TRIGGER:
            count = self._of_like_size(len(runs) - _TRIGGER + 1)
        return count if count > 1 else 0

    def _of_like_size(self, count: int) -> int:
        size = sum(run.size for run in self.runs[:count])
        while count < len(self.runs):
            if size * (100 + _SIZE_RATIO_PERCENT) < self.runs[count].size * 100:
                break
            size += self.runs[count].size
            count += 1
        return count

    def _merge(self, count: int) -> int:
        level = self.runs[count].level - 1 if count < len(self.runs) else _MAX_LEVEL
        while level <= 0 and count < len(self.runs):
            level = self.runs[count].level  # nothing is merged into level 0
            count += 1
        if count == len(self.runs):
            level = _MAX_LEVEL
        merged = self.runs[:count]
        size = rewritten = sum(run.size for run in merged)
        if count == len(self.runs) and merged[-1].level == _MAX_LEVEL:
            bottom = merged[-1].size
            size = bottom + int(_NEW_SHARE * (size - bottom))
        self.runs[:count] = [Run(level, split(size, _TARGET[True]), size)]
        return rewritten


@dataclass
class Append:
    """One partition of a table without a key."""

    files: list[int]

    def add(self, size: int) -> None:
        self.files.append(size)

    def compact(self, fewest: int = _TRIGGER) -> int:
        """Merge the small files; the bytes rewritten."""
        small = [size for size in self.files if size < _APPEND_SMALL]
        if len(small) < fewest:
            return 0
        kept = [size for size in self.files if size >= _APPEND_SMALL]
        self.files = kept + split(sum(small), _TARGET[False])
        return sum(small)

    def compact_full(self) -> int:
        return self.compact(fewest=2)

    @property
    def file_count(self) -> int:
        return len(self.files)

    def facts(self, bucket: int, partition: tuple[tuple[str, str | None], ...]) -> BucketFacts:
        small = [size for size in self.files if size < _FACTS_SMALL[False]]
        return BucketFacts(
            partition=partition,
            bucket=bucket,
            files=len(self.files),
            size_bytes=sum(self.files),
            records=0,
            level0_files=len(self.files),
            level0_bytes=sum(self.files),
            small_files=len(small),
            small_bytes=sum(small),
            settled_bytes=sum(self.files),
            levels=1,
        )


@dataclass
class Table:
    """One table; ``parts`` by partition, each a list of buckets."""

    name: str
    keyed: bool
    write_only: bool
    daily: bool
    """Partitioned by day."""
    bytes_a_minute: float
    writers: int
    buckets: int
    parts: dict[str, list[Keyed | Append]] = field(default_factory=dict)
    written_by_writers: int = 0
    """Bytes that writers rewrote by compacting themselves."""
    _waiting: float = 0.0

    @property
    def kind(self) -> str:
        """As the results tell tables apart."""
        who = "write-only" if self.write_only else "compacted by its writer"
        return f"{'primary key' if self.keyed else 'append'}, {who}"

    @property
    def file_count(self) -> int:
        return sum(bucket.file_count for bucket in self.all_buckets())

    def all_buckets(self) -> Iterator[Keyed | Append]:
        for buckets in self.parts.values():
            yield from buckets

    def commit(self, incoming: float, day: int) -> None:
        """What came in a minute, if it is enough for a commit."""
        self._waiting += incoming
        if self._waiting < _SMALLEST_COMMIT:
            return
        partition = f"{day:02d}" if self.daily else ""
        buckets = self.parts.setdefault(partition, [Append([])])
        files = self.buckets if self.keyed else self.writers
        for number in range(files):
            buckets[number % len(buckets)].add(int(self._waiting / files))
        self._waiting = 0.0
        if not self.write_only:
            self.written_by_writers += sum(bucket.compact() for bucket in buckets)

    def facts(self) -> TableFacts:
        """As they would be read from its manifests."""
        return TableFacts(
            self.name,
            kind=TableKind.PRIMARY_KEY if self.keyed else TableKind.APPEND,
            snapshot_id=1,
            schema_id=0,
            buckets=tuple(
                bucket.facts(number, (("dt", name),) if self.daily else ())
                for name, buckets in self.parts.items()
                for number, bucket in enumerate(buckets)
            ),
            partition_keys=("dt",) if self.daily else (),
            snapshot_count=1,
        )


def split(size: int, target: int) -> list[int]:
    """Sizes of the files that so many bytes are written into."""
    whole, rest = divmod(size, target)
    return [target] * whole + ([rest] if rest or not whole else [])


def lakehouse(tables: int, bytes_a_day: float, seed: int) -> list[Table]:
    """Tables as a full compaction left them: half with a key; of these a fifth are write-only.

    Of the append tables half are write-only, and half partitioned by day. Those with a key hold 2
    to 30 days' traffic, the others 30 days of it.
    """
    chance = random.Random(seed)
    ranks = list(range(1, tables + 1))
    chance.shuffle(ranks)
    weights = [1 / rank**1.1 for rank in ranks]
    made = []
    for number, weight in enumerate(weights):
        day = bytes_a_day * weight / sum(weights)
        keyed = number % 2 == 0
        if keyed:
            table = _keyed(number, day, int(day * math.exp(chance.uniform(0.7, 3.4))))
        else:
            table = _append(number, day)
        made.append(table)
    return made


def _keyed(number: int, bytes_a_day: float, size: int) -> Table:
    buckets = min(16, max(1, math.ceil(size / GIB)))
    each = size // buckets
    parts: list[Keyed | Append] = [
        Keyed([Run(_MAX_LEVEL, split(each, _TARGET[True]), each)]) for _ in range(buckets)
    ]
    rate = bytes_a_day / MINUTES_A_DAY
    return Table(f"b.t{number:03d}", True, number % 10 == 0, False, rate, 1, buckets, {"": parts})


def _append(number: int, bytes_a_day: float) -> Table:
    daily = number % 8 in (1, 3)
    rate = bytes_a_day / MINUTES_A_DAY
    days = {f"{n:02d}": 1 for n in range(-29, 1)} if daily else {"": 30}
    parts: dict[str, list[Keyed | Append]] = {
        name: [Append(split(int(count * bytes_a_day), _TARGET[False]))]
        for name, count in days.items()
    }
    writers = min(4, 1 + int(rate / MIB))
    return Table(f"b.t{number:03d}", False, number % 4 == 1, daily, rate, writers, 1, parts)
