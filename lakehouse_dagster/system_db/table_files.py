"""Remembers the sums over each table's live files; the store of ``paimon/table_files.py``."""

from __future__ import annotations

import json
import zlib

from sqlalchemy import delete, select

from lakehouse_dagster.paimon.bucket_facts import BucketSums
from lakehouse_dagster.paimon.file_facts import StoredSums
from lakehouse_dagster.system_db import schema
from lakehouse_dagster.system_db.clock import Clock, utc_now
from lakehouse_dagster.system_db.engine import Database

_files = schema.table_files


class TableFiles:
    """The sums of a lakehouse's tables; what was read once stays at hand in this process.

    Args:
        db: the open system database.
        lakehouse: identity of the lakehouse.
        clock: what time it is.
    """

    def __init__(self, db: Database, lakehouse: str, clock: Clock = utc_now) -> None:
        self._db = db
        self._lakehouse = lakehouse
        self._clock = clock
        self._at_hand: dict[str, StoredSums] = {}

    def load(self, table: str) -> StoredSums | None:
        """What is at hand, else what any process saved last; None if nothing that can be read.

        What is at hand may be older than what another process saved. It is as good: sums are
        brought forward from whatever snapshot they are of, and asking costs more than that.
        """
        if table in self._at_hand:
            return self._at_hand[table]
        query = select(
            _files.c.snapshot_id, _files.c.fingerprint, _files.c.small_below_bytes, _files.c.sums
        )
        this = (_files.c.lakehouse == self._lakehouse) & (_files.c.table_name == table)
        with self._db.read() as connection:
            row = connection.execute(query.where(this)).one_or_none()
        if row is None:
            return None
        snapshot_id, fingerprint, small_below_bytes, content = row
        try:
            sums = {
                (partition, bucket): BucketSums.from_list(rest)
                for partition, bucket, rest in json.loads(zlib.decompress(content))
            }
        except (zlib.error, ValueError, TypeError):
            return None
        stored = StoredSums(snapshot_id, fingerprint, small_below_bytes, sums)
        self._at_hand[table] = stored
        return stored

    def save(self, table: str, sums: StoredSums) -> None:
        """Remember the sums in place of earlier ones."""
        rows = [[key[0], key[1], of_bucket.as_list()] for key, of_bucket in sums.sums.items()]
        content = zlib.compress(json.dumps(rows, separators=(",", ":")).encode(), level=1)
        this = (_files.c.lakehouse == self._lakehouse) & (_files.c.table_name == table)
        with self._db.write() as connection:
            connection.execute(delete(_files).where(this))
            connection.execute(
                _files.insert().values(
                    lakehouse=self._lakehouse,
                    table_name=table,
                    snapshot_id=sums.snapshot_id,
                    fingerprint=sums.fingerprint,
                    small_below_bytes=sums.small_below_bytes,
                    sums=content,
                    updated_at=self._clock(),
                )
            )
        self._at_hand[table] = sums
