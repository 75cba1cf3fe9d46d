"""Scripts of tests are read by one process that outlives them: to start one takes 0.3 s."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

from lakehouse_dagster.sql import reader
from lakehouse_dagster.sql.cache import ScriptCache
from lakehouse_dagster.sql.worker_pool import WorkerPool

_pool = WorkerPool(most_workers=1)
_one_at_a_time = threading.Lock()
atexit.register(_pool.close)


@contextmanager
def read_by_the_same_process(kept_in: Path) -> Iterator[None]:
    """What is read in this block is kept in a folder of the test's, which other processes may read.

    In the folder of whoever runs the tests, what they read would stay and slow down its pruning.
    """
    with (
        _one_at_a_time,
        mock.patch.object(reader, "WorkerPool", partial(nullcontext, _pool)),
        mock.patch.object(reader, "ScriptCache", partial(ScriptCache, kept_in)),
    ):
        yield
