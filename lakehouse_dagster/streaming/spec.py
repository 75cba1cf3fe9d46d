"""What a user declares about streaming jobs: which there are, and how they are looked after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from functools import cached_property

from lakehouse_dagster.declared import check_fields
from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.paimon import PaimonCatalog
from lakehouse_dagster.sql.model import JobDefinition, Statement


class StartPolicy(str, Enum):
    """When a job that nobody has started yet is started."""

    ON_DEMAND = "on_demand"
    """Left UNMANAGED until someone starts, adopts or materialises it."""
    ON_LOAD = "on_load"
    """Started by the supervisor as soon as it sees the job."""


@dataclass(frozen=True)
class OtherCatalog:
    """A further Paimon catalog that scripts may name: its tables are read, never written.

    Another lakehouse owns the tables, as a rule one of the same Dagster project. Here they are
    upstream assets ``[*key_prefix, database, table]``, so ``key_prefix`` is that lakehouse's.
    """

    catalog: PaimonCatalog
    key_prefix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.key_prefix, str) or not all(self.key_prefix):
            raise ConfigurationError(
                f"The key_prefix of the other catalog {self.catalog.name} is {self.key_prefix!r}.",
                remedy='Give the parts of the prefix as a tuple, such as ("prod", "ods_lake").',
            )
        object.__setattr__(self, "key_prefix", tuple(self.key_prefix))


def check_catalog_names(catalog: PaimonCatalog, others: Sequence[OtherCatalog]) -> None:
    """Raise ``ConfigurationError`` when two catalogs of a lakehouse have one name in Flink SQL."""
    names = [catalog.name, *(other.catalog.name for other in others)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"Two catalogs of the lakehouse are named {', '.join(twice)}.",
            remedy="Give each the name that the scripts call it by.",
        )


@dataclass(frozen=True)
class DeclaringScript:
    """The statements of another script that declare ``tables`` (``database.table``)."""

    tables: tuple[str, ...]
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class StreamingJob:
    """One long-running Flink job of the project, and what must be there before it.

    ``declared_elsewhere`` are the scripts whose tables this job uses without declaring them.
    ``compacts`` are the tables that a compaction job compacts for their writers; it writes none.
    """

    definition: JobDefinition
    start: StartPolicy = StartPolicy.ON_DEMAND
    declared_elsewhere: tuple[DeclaringScript, ...] = ()
    compacts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.definition.name

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over what the job runs; computed once."""
        return self.definition.fingerprint

    @property
    def keeps_state(self) -> bool:
        """Whether a start must go on from what was left; a compaction job finds all in the files.

        So it is cancelled instead of stopped with a savepoint, and always starts from nothing.
        """
        return not self.compacts

    @property
    def sink_keys(self) -> tuple[str, ...]:
        """The tables that it writes, as ``database.table``."""
        return tuple(table.key for table in self.definition.sinks)


@dataclass(frozen=True)
class SupervisionPolicy:
    """Every bound and interval of starting, stopping and watching jobs.

    Times are ``timedelta`` or text such as ``30s``; they are checked on construction and always
    kept as ``timedelta``.
    """

    tick_interval: timedelta | str = "9s"
    """How often the supervisor looks at the cluster. With ``details_per_tick`` it says how soon
    every job has been asked: 1,000 jobs within half of ``no_checkpoint_after``."""
    submission_timeout: timedelta | str = "2m"
    """How long the gateway may take to compile and submit an INSERT."""
    start_timeout: timedelta | str = "3m"
    """How long a submitted job may take until all its tasks run."""
    stop_timeout: timedelta | str = "10m"
    """How long a stop with savepoint may take."""
    late_submission_grace: timedelta | str = "6s"
    """How long an undecided submission is looked for after its session was deleted: a late one
    shows up within about 1 s of that (facts: 18 trials on a warm gateway)."""
    lost_after: timedelta | str = "5s"
    """The shortest time between the two looks that make a vanished job LOST."""
    no_checkpoint_after: timedelta | str = "15m"
    """A running job without a completed checkpoint for longer than this is DEGRADED."""
    no_progress_after: timedelta | str = "15m"
    """A running job that reads nothing for longer than this, while its sources have more, is
    DEGRADED."""
    first_checkpoint_timeout: timedelta | str = "5m"
    """How long an upgraded job may take to its first checkpoint before the old one comes back."""
    restarts_are_many: int = 5
    """More restarts than this within ``restart_window`` make a job DEGRADED."""
    restart_window: timedelta | str = "10m"
    backoff_initial: timedelta | str = "20s"
    backoff_max: timedelta | str = "10m"
    max_attempts: int = 6
    """After so many failed attempts in a row the job waits for a person."""
    lease: timedelta | str = "60s"
    """How long a run that died keeps others from acting on its job."""
    details_per_tick: int = 20
    """For how many jobs a tick asks checkpoints and exceptions, in rotation."""
    concurrency: int = 4
    """How many jobs one run starts or stops at the same time."""
    flink_restart_attempts: int = 20
    """How often Flink itself restarts a job (exponential back-off) before it is FAILED."""
    restart_degraded: bool = False
    """Whether a DEGRADED job is cancelled and started again from its newest checkpoint."""
    respect_cancellation: bool = False
    """Whether a job that somebody else cancelled or stopped on the cluster stays so. By default
    the desired state wins, and it is started again."""
    restore_point_grace: timedelta | str = "1d"
    """How long a savepoint or checkpoint that a newer one has superseded is kept."""

    def __post_init__(self) -> None:
        check_fields(self, such_as="30s or 10m")

    @cached_property
    def spans(self) -> dict[str, timedelta]:
        """All intervals by name: asked for every job at every look, worked out once."""
        return _intervals(self)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return {name: span.total_seconds() for name, span in self.spans.items()}

    def seconds(self, name: str) -> float:
        """The interval of that name, in seconds."""
        return self._seconds[name]

    def backoff_seconds(self, attempt: int) -> float:
        """How long to wait after the ``attempt``-th failed attempt (1-based) before the next."""
        first, most = self.seconds("backoff_initial"), self.seconds("backoff_max")
        return min(first * 2.0 ** min(attempt - 1, 60), most)


@dataclass(frozen=True)
class ProgressPolicy:
    """How often the progress of tables is reported to Dagster's event log."""

    tick_interval: timedelta | str = "10s"
    progress_interval: timedelta | str | None = None
    """At most one event a table in this time. By default 1.5 s for each table, but at least 30 s
    and at most 5 min: Dagster's event log takes some tens of events a second."""
    events_per_tick: int = 40
    """At most so many events a tick; what is left over comes with the next."""
    threads: int = 8
    """How many tables are looked at side by side."""
    partition_grace: timedelta | str = "10m"
    """How long after the end of its window a time partition is told of."""
    partition_quiet: timedelta | str = "30m"
    """A partition without a window, or with late data, is told of once nothing changed it for so
    long; one that never comes to rest, at the latest after twelve times as long."""
    partition_events_per_tick: int = 40
    """At most so many partitions are told of in a tick, beside ``events_per_tick``."""

    def __post_init__(self) -> None:
        check_fields(self, such_as="30s or 10m")

    @cached_property
    def spans(self) -> dict[str, timedelta]:
        """All intervals by name: asked for every job at every look, worked out once."""
        return _intervals(self)

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return {name: span.total_seconds() for name, span in self.spans.items()}

    def interval_seconds(self, tables: int) -> float:
        """The progress interval of a lakehouse with so many tables, in seconds."""
        if self.progress_interval is None:
            return min(max(30.0, 1.5 * tables), 300.0)
        return self.seconds("progress_interval")

    def seconds(self, name: str) -> float:
        """The interval of that name, in seconds."""
        return self._seconds[name]


def _intervals(policy: SupervisionPolicy | ProgressPolicy) -> dict[str, timedelta]:
    values = {item.name: getattr(policy, item.name) for item in fields(policy)}
    return {name: value for name, value in values.items() if isinstance(value, timedelta)}
