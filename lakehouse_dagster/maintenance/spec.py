"""What the user declares about maintenance: when a table is due for what, and within which limits.

Everything has a default that suits tables which Flink jobs write all the time. Times are text such
as ``1d`` or ``timedelta``, sizes text such as ``50 gb`` or bytes; both are checked on construction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import Enum
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from lakehouse_dagster.declared import check_fields
from lakehouse_dagster.durations import duration, in_words
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.maintenance.partition_times import check_format
from lakehouse_dagster.maintenance.window import Window

_GROUP = re.compile(r"[A-Za-z0-9_.-]+")
_WILDCARD = re.compile(r"[*?[]")
_YOUNGEST_ORPHAN = timedelta(days=1)
_SUCH_AS = "30m or 1d"
_MOST_ATTEMPTS = 10
_SLACK_AT_MOST = timedelta(hours=6)


class Compaction(str, Enum):
    """Who compacts a table."""

    BATCH = "batch"
    """The writer as it writes (unless the table is write-only), and batch runs when due."""
    DEDICATED = "dedicated"
    """One streaming compaction job beside write-only writers: never a conflict with them."""
    OFF = "off"
    """Nobody on our behalf."""


@dataclass(frozen=True)
class CompactSpec:
    """When files are merged.

    Args:
        level0_files: due when one bucket has more unmerged files than this (primary key).
        small_files: due when one partition and bucket has at least so many small files …
        small_share: … and they are at least this share of its files (append) …
        size_a_small_file: … and are this size on average at most, or fill a whole file together:
            what was merged before and is still small is not written again for a few files more.
        unsettled_share: full compaction is due when at least this share of a bucket's bytes lies
            outside its highest level …
        unsettled_size: … and is at least so much.
        deleted_share: full compaction is due when deletion vectors mark at least this share.
        attempts: how often a compaction that loses against a writer's commit is tried in all; at
            most ten times, as the pause before each is twice as long.
        partitions_a_run: at most so many partitions are compacted in one run.
        cron, lasts: the window in which it may begin (UTC), two hours by default; at any time
            without ``cron``.
    """

    cron: str | None = None
    lasts: timedelta | str | None = None
    level0_files: int = 20
    small_files: int = 10
    small_share: float = 0.5
    size_a_small_file: int | str = "512 kb"
    unsettled_share: float = 0.5
    unsettled_size: int | str = "64 mb"
    deleted_share: float = 0.2
    attempts: int = 3
    partitions_a_run: int = 50

    def __post_init__(self) -> None:
        _check(self)
        if self.attempts > _MOST_ATTEMPTS:
            raise ConfigurationError(
                f"CompactSpec.attempts is {self.attempts}.",
                remedy=f"Write at most {_MOST_ATTEMPTS}: the pause before each is twice as long.",
            )


@dataclass(frozen=True)
class ExpireSpec:
    """Which snapshots, or changelogs, are kept: the newest ones, and those younger than a span.

    So that tables which are written all the time are not due all the time, expiry is due only when
    the oldest is older than ``keep_for`` and a tenth of it (six hours more at most).
    """

    keep_at_least: int = 10
    keep_for: timedelta | str = "1d"
    cron: str | None = None
    lasts: timedelta | str | None = None

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class PartitionExpirySpec:
    """Which partitions go: those whose time, read from a column's value, is past.

    Where all whose time can be read are past, none goes: the setting is rather wrong, or the table
    is no longer written, and a person decides.

    Args:
        keep_for: how long after its time a partition is kept.
        format: the value's format as ``strptime`` takes it, such as ``%Y%m%d``; a day, month or
            year follows from it.
        column: the partition column; by default the first.
        partitions_a_run: at most so many go at once.
    """

    keep_for: timedelta | str
    format: str = "%Y-%m-%d"
    column: str | None = None
    partitions_a_run: int = 50
    cron: str | None = None
    lasts: timedelta | str | None = None

    def __post_init__(self) -> None:
        _check(self)
        check_format(self.format)


@dataclass(frozen=True)
class TagSpec:
    """Which tags go: those that match ``names`` and are older than ``keep_for``."""

    keep_for: timedelta | str
    names: str = "*"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class ManifestSpec:
    """Manifests are merged when the newest snapshot has more than ``files`` of them."""

    files: int = 200

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class OrphanSpec:
    """When files that no snapshot knows are looked for and removed.

    Args:
        every: how often.
        older_than: only files older than this, at least a day: younger ones may belong to a
            commit under way.
        most_files, most_size: if a dry run finds more, nothing is removed and a person is asked.
        cron, lasts: the window in which it may begin; at any time by default.
    """

    every: timedelta | str = "7d"
    older_than: timedelta | str = "3d"
    most_files: int = 10_000
    most_size: int | str = "10 gb"
    cron: str | None = None
    lasts: timedelta | str | None = None

    def __post_init__(self) -> None:
        _check(self)
        if span(self.older_than) < _YOUNGEST_ORPHAN:
            raise ConfigurationError(
                f"OrphanSpec.older_than is {in_words(span(self.older_than).total_seconds())}.",
                remedy="Write at least 1d: younger files may belong to a commit under way.",
            )


@dataclass(frozen=True)
class CheckBounds:
    """Beyond what a table's checks fail: maintenance does not keep up with it, or is kept from it.

    Args:
        small_files: the most small files …
        small_share: … as long as they are no more than this share of all files.
        expiry_lag: how much older than ``ExpireSpec.keep_for`` the oldest snapshot may be.
        level0_files: the most unmerged files in one bucket (primary key).
        postponed_files: the most files that no reader sees before a compaction (``bucket = -2``).
        orphan_files: the most files that the last search found and nothing has removed.
    """

    small_files: int = 100
    small_share: float = 0.8
    expiry_lag: timedelta | str = "1d"
    level0_files: int = 60
    postponed_files: int = 20
    orphan_files: int = 1_000

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class TablePolicy:
    """What maintenance one table gets; None for what it does not get at all.

    ``compaction_group``: with ``compaction: dedicated``, the tables of one group share a compaction
    job, named after it: for many small tables. By default each table has its own.
    """

    compaction: Compaction | str = Compaction.BATCH
    compact: CompactSpec | None = field(default_factory=CompactSpec)
    expire: ExpireSpec | None = field(default_factory=ExpireSpec)
    changelogs: ExpireSpec | None = field(default_factory=ExpireSpec)
    partitions: PartitionExpirySpec | None = None
    tags: TagSpec | None = None
    manifests: ManifestSpec | None = field(default_factory=ManifestSpec)
    orphans: OrphanSpec | None = None
    bounds: CheckBounds | None = field(default_factory=CheckBounds)
    """Of the asset checks; None for no checks."""
    compaction_group: str | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "compaction", Compaction(self.compaction))
        except ValueError:
            known = ", ".join(way.value for way in Compaction)
            raise ConfigurationError(
                f"compaction is {self.compaction!r}.", remedy=f"Write one of: {known}."
            ) from None
        _check_parts(self, PARTS)
        if self.compaction_group is not None:
            self._check_group(self.compaction_group)
        if self.compaction is Compaction.DEDICATED and self.compact is None:
            raise ConfigurationError(
                "compaction is dedicated, but there is no compact: that says both who compacts the "
                "table and that nobody does.",
                remedy="Write compaction: off, or leave compact as it is by default.",
            )

    def _check_group(self, group: str) -> None:
        if self.compaction is not Compaction.DEDICATED:
            raise ConfigurationError(
                f"compaction_group is {group!r}, but compaction is not dedicated.",
                remedy="Only tables with compaction: dedicated share a compaction job.",
            )
        if not isinstance(group, str) or not _GROUP.fullmatch(group):
            raise ConfigurationError(
                f"compaction_group is {group!r}.", remedy="Use letters, digits, '_', '-' and '.'."
            )


@dataclass(frozen=True)
class Limits:
    """What all tables together may take.

    Args:
        concurrent: actions at the same time on the cluster.
        size_a_run: bytes that one run may rewrite.
        actions_a_run: at most so many actions in one run.
        small_table: compactions that rewrite less than this share one Flink job.
    """

    concurrent: int = 2
    size_a_run: int | str = "100 gb"
    actions_a_run: int = 50
    small_table: int | str = "256 mb"
    tick_interval: timedelta | str = "1m"

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True)
class MaintenancePolicy:
    """Maintenance of all tables of a lakehouse.

    Args:
        default: for tables that no key of ``tables`` fits.
        tables: policies by table (``database.table``) or pattern (``ods.*``); the one whose
            pattern has the most letters outside of ``*`` and ``?`` counts, whole, without the
            default's parts.
        limits: over all tables.
    """

    default: TablePolicy = field(default_factory=TablePolicy)
    tables: Mapping[str, TablePolicy] = field(default_factory=dict, hash=False)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        _check_parts(self, {"default": TablePolicy, "limits": Limits})
        if not isinstance(self.tables, Mapping):
            raise ConfigurationError(
                f"MaintenancePolicy.tables is {self.tables!r}.",
                remedy='Give policies by table or pattern: {"ods.*": TablePolicy(...)}.',
            )
        for pattern, policy in self.tables.items():
            if not isinstance(pattern, str) or not isinstance(policy, TablePolicy):
                raise ConfigurationError(
                    f"MaintenancePolicy.tables has {pattern!r}: {policy!r}.",
                    remedy='Give policies by table or pattern: {"ods.*": TablePolicy(...)}.',
                )

    def for_table(self, table: str) -> TablePolicy:
        """The policy of ``database.table``."""
        fitting = [pattern for pattern in self._patterns if fnmatchcase(table, pattern)]
        if table in self.tables:
            fitting.append(table)
        if not fitting:
            return self.default
        return self.tables[max(fitting, key=_letters)]

    @cached_property
    def _patterns(self) -> tuple[str, ...]:
        """What can fit another name than its own: names, of which there may be many, cannot."""
        return tuple(filter(is_pattern, self.tables))


def is_pattern(name: str) -> bool:
    """Whether a key of ``tables`` can fit other tables than that of its own name."""
    return _WILDCARD.search(name) is not None


def without_windows(policy: MaintenancePolicy) -> MaintenancePolicy:
    """The same policy, for somebody who has chosen the time: everything may begin now."""
    return replace(
        policy,
        default=_at_any_time(policy.default),
        tables={pattern: _at_any_time(said) for pattern, said in policy.tables.items()},
    )


def _at_any_time(policy: TablePolicy) -> TablePolicy:
    parts = {item.name: getattr(policy, item.name) for item in fields(policy)}
    timed = {n: part for n, part in parts.items() if getattr(part, "cron", None) is not None}
    return replace(policy, **{n: replace(part, cron=None, lasts=None) for n, part in timed.items()})


def _letters(pattern: str) -> tuple[int, str]:
    return len(pattern.replace("*", "").replace("?", "")), pattern


def window_of(
    spec: CompactSpec | ExpireSpec | PartitionExpirySpec | OrphanSpec,
) -> Window | None:
    """The window that a spec's cron opens; None when it may begin at any time."""
    if spec.cron is None:
        return None
    return Window(spec.cron) if spec.lasts is None else Window(spec.cron, spec.lasts)


def slack(spec: ExpireSpec) -> timedelta:
    """How much older than it need be the oldest has to be before an expiry is worth its while."""
    return min(span(spec.keep_for) / 10, _SLACK_AT_MOST)


def span(value: timedelta | str) -> timedelta:
    """A checked setting as what it is after construction."""
    return value if isinstance(value, timedelta) else duration(value)


def _check(spec: Any) -> None:
    """Check a spec's fields, and its window if it has one."""
    check_fields(spec, such_as=_SUCH_AS)
    if getattr(spec, "cron", None) is not None:
        window_of(spec)
    elif getattr(spec, "lasts", None) is not None:
        raise ConfigurationError(
            f"{type(spec).__name__}.lasts is {in_words(span(spec.lasts).total_seconds())}, but "
            "there is no cron to say when the window opens.",
            remedy='Write cron beside it, such as "0 3 * * *".',
        )


PARTS = {
    "compact": CompactSpec,
    "expire": ExpireSpec,
    "changelogs": ExpireSpec,
    "partitions": PartitionExpirySpec,
    "tags": TagSpec,
    "manifests": ManifestSpec,
    "orphans": OrphanSpec,
    "bounds": CheckBounds,
}
"""What the parts of a table's policy are."""


def _check_parts(declared: Any, kinds: Mapping[str, type]) -> None:
    """Refuse parts that are something else; those of a table may be None."""
    for name, kind in kinds.items():
        value, may_be_none = getattr(declared, name), isinstance(declared, TablePolicy)
        if not (isinstance(value, kind) or (value is None and may_be_none)):
            raise ConfigurationError(
                f"{type(declared).__name__}.{name} is {value!r}.",
                remedy=f"Give {kind.__name__}(...)"
                + (", or None for no such work." if may_be_none else "."),
            )
