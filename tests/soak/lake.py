"""The lakehouse of the soak test: four kinds of tables, their writers, a reader, a policy.

All writers copy the same source. The reader follows the append table into another one; it is
stopped for a while, so that it lags behind. The table with deletion vectors gets every row a second
time, long after the first: rows of files that were merged meanwhile are marked as deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from lakehouse_dagster import FlinkCluster, Lakehouse, PaimonCatalog, SystemDatabase
from lakehouse_dagster.maintenance.held import Keeper
from lakehouse_dagster.maintenance.spec import (
    CompactSpec,
    ExpireSpec,
    Limits,
    MaintenancePolicy,
    ManifestSpec,
    OrphanSpec,
    PartitionExpirySpec,
    TablePolicy,
    TagSpec,
)
from lakehouse_dagster.streaming.runtime import Runtime
from tests.support.laboratory import QUICK
from tests.support.rows import SourceFolder

APPEND, LOOKUP, VECTORS, DEDICATED, FOLLOWED = (
    f"soak.{name}" for name in ("plain", "lookup", "vectors", "dedicated", "followed")
)
WRITERS = {
    APPEND: "soak-plain",
    LOOKUP: "soak-lookup",
    VECTORS: "soak-vectors",
    DEDICATED: "soak-dedicated",
}
READER = "soak-reader"
COMPACTOR = f"compact-{DEDICATED}"
JOBS = (*WRITERS.values(), COMPACTOR, READER)

KEEP_SECONDS = 10
KEEP_AT_LEAST = 5
CHANGELOGS_AT_LEAST = 20
LOOKUP_AT_MOST = 12
"""Snapshots of the table whose changelogs outlive them: its writer lets them go when it commits."""
SMALL_FILES = 12
SUPERVISION = replace(
    QUICK, late_submission_grace="4s", submission_timeout="30s", start_timeout="90s",
    max_attempts=50,
)  # fmt: skip

_EXPIRE = ExpireSpec(keep_at_least=KEEP_AT_LEAST, keep_for=f"{KEEP_SECONDS}s")
_TIDY = TablePolicy(
    compact=CompactSpec(
        level0_files=6, small_files=SMALL_FILES, unsettled_share=0.3, unsettled_size="1 kb"
    ),
    expire=_EXPIRE,
    changelogs=ExpireSpec(keep_at_least=CHANGELOGS_AT_LEAST, keep_for="20s"),
    tags=TagSpec(keep_for="20s"),
    manifests=ManifestSpec(files=10),
    # More is found than may be removed: it is searched again and again, until a person allows it.
    orphans=OrphanSpec(every="45s", older_than="1d", most_files=1),
)
POLICY = MaintenancePolicy(
    default=_TIDY,
    tables={
        APPEND: replace(_TIDY, partitions=PartitionExpirySpec(keep_for="30d", column="dt")),
        DEDICATED: replace(_TIDY, compaction="dedicated"),
    },
    limits=Limits(concurrent=2),
)

_NUMBERS = {
    "KEEP_SECONDS": KEEP_SECONDS,
    "KEEP_AT_LEAST": KEEP_AT_LEAST,
    "LOOKUP_AT_MOST": LOOKUP_AT_MOST,
}
_SCRIPT = """\
SET 'execution.checkpointing.interval' = '1s';
SET 'execution.checkpointing.dir' = 'file://{folder}/checkpoints';
SET 'execution.checkpointing.savepoint-dir' = 'file://{folder}/savepoints';
CREATE DATABASE IF NOT EXISTS soak;
CREATE TABLE IF NOT EXISTS soak.plain (id BIGINT, text STRING, amount INT, dt STRING)
PARTITIONED BY (dt) WITH ('bucket' = '-1');
CREATE TABLE IF NOT EXISTS soak.lookup
(id BIGINT, text STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED)
WITH (
  'bucket' = '2', 'changelog-producer' = 'lookup', 'changelog.time-retained' = '2 h',
  'snapshot.time-retained' = '{KEEP_SECONDS} s', 'snapshot.num-retained.min' = '{KEEP_AT_LEAST}',
  'snapshot.num-retained.max' = '{LOOKUP_AT_MOST}', 'changelog.num-retained.max' = '100000'
);
CREATE TABLE IF NOT EXISTS soak.vectors
(id BIGINT, text STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('bucket' = '2', 'deletion-vectors.enabled' = 'true');
CREATE TABLE IF NOT EXISTS soak.dedicated
(id BIGINT, text STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('bucket' = '2', 'write-only' = 'true');
CREATE TABLE IF NOT EXISTS soak.followed (id BIGINT, text STRING, amount INT)
WITH ('bucket' = '-1', 'write-only' = 'true');
CREATE TEMPORARY TABLE incoming (id BIGINT, text STRING, amount INT) WITH (
  'connector' = 'filesystem', 'path' = '{folder}/incoming', 'format' = 'json',
  'source.monitor-interval' = '500ms'
);
SET 'pipeline.name' = 'soak-plain';
INSERT INTO soak.plain SELECT id, text, amount, '2099-01-01' FROM incoming;
SET 'pipeline.name' = 'soak-lookup';
INSERT INTO soak.lookup SELECT id, text, amount FROM incoming;
SET 'pipeline.name' = 'soak-vectors';
INSERT INTO soak.vectors SELECT id, text, amount FROM incoming
UNION ALL SELECT id - 100, SUBSTRING(SHA256(CAST(id - 100 AS STRING)), 1, 12),
  CAST(MOD((id - 100) * 7, 101) AS INT) FROM incoming WHERE id > 100;
SET 'pipeline.name' = 'soak-dedicated';
INSERT INTO soak.dedicated SELECT id, text, amount FROM incoming;
SET 'pipeline.name' = 'soak-reader';
INSERT INTO soak.followed SELECT id, text, amount FROM soak.plain WHERE id > 0;
"""


@dataclass(frozen=True)
class Place:
    """What every process of the soak test makes its own runtime of."""

    folder: str
    rest_url: str
    sql_gateway_url: str

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @cached_property
    def source(self) -> SourceFolder:
        return SourceFolder(self.path / "incoming")

    @cached_property
    def catalog(self) -> PaimonCatalog:
        return PaimonCatalog(str(self.path / "warehouse"))

    def table_path(self, table: str) -> Path:
        database, name = table.split(".")
        return self.path / "warehouse" / f"{database}.db" / name

    def runtime(self, environ: Mapping[str, str] | None = None) -> Runtime:
        """A runtime of its own, with its own open database."""
        script = self.path / "soak.sql"
        if not script.exists():
            script.write_text(_SCRIPT.format(folder=self.folder, **_NUMBERS))
        lake = Lakehouse(
            catalog=self.catalog,
            flink=FlinkCluster(self.rest_url, self.sql_gateway_url),
            name="soak",
            system_database=SystemDatabase(f"sqlite:///{self.folder}/lakehouse.db"),
            supervision=SUPERVISION,
            maintenance=POLICY,
        )
        return lake.load(script, start="on_demand", base_folder=self.path).runtime

    @cached_property
    def keeper(self) -> Keeper:
        """For looking, opened once in this process."""
        return Keeper(self.runtime())
