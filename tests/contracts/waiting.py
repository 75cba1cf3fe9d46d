"""A job that waits; what it sees when its run is told to stop is written to a file."""

import os
import time
from pathlib import Path

import dagster as dg


@dg.op
def wait():
    seen = Path(os.environ["SEEN"])
    seen.write_text("waiting")
    try:
        time.sleep(60)
    except BaseException as error:
        time.sleep(0.5)  # clean-up takes a while and is allowed to
        seen.write_text(type(error).__name__)
        raise


@dg.job(executor_def=dg.in_process_executor)
def waiting():
    wait()
