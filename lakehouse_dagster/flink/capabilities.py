"""What the engine behind a cluster can do: asked once, and by name, never by version elsewhere.

Only what differs between engines has a name here. Run alike on Flink 1.20.5 with Paimon 1.3.1 and
on 2.0.2 with 2.0.0: a job id chosen beforehand, operator uid suffixes and commit user prefix as
session options, ``pipeline.global-job-parameters``, restart strategy, checkpoint and restore
options by their new names, EXPLAIN JSON_EXECUTION_PLAN, a stop under a trigger id of ours.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.flink.cluster import FlinkCluster

OLDEST_FLINK = (1, 20)


@dataclass(frozen=True)
class EngineCapabilities:
    """What differs between engines.

    Args:
        flink_version: as the JobManager gives it, such as ``2.0.2``.
        warehouse_path_as_written: Paimon uses the path of a warehouse as it stands. Paimon 1.3
            percent-encodes some characters and so makes a folder of another name, in which nobody
            else looks (run on Paimon 1.3.1 with Flink 1.20.5; 2.0.0 with Flink 2.0.2 does not).
    """

    flink_version: str
    warehouse_path_as_written: bool


_known: dict[FlinkCluster, EngineCapabilities] = {}
_lock = threading.Lock()


def capabilities_of(cluster: FlinkCluster) -> EngineCapabilities:
    """The capabilities of a cluster's engine; one GET, remembered as long as this process lives.

    Raises:
        ClusterUnreachableError, FlinkRequestError: it could not be asked; not remembered.
        UnsupportedByEngineError: its Flink is older than 1.20.
    """
    if known := _known.get(cluster):
        return known
    with cluster.job_manager() as job_manager:
        version = job_manager.overview().flink_version
    capabilities = capabilities_of_version(version)
    with _lock:
        _known[cluster] = capabilities
    return capabilities


def capabilities_of_version(flink_version: str) -> EngineCapabilities:
    """The capabilities of a Flink version.

    Raises:
        UnsupportedByEngineError: it is older than 1.20, or not a version.
    """
    numbers = re.match(r"(\d+)\.(\d+)", flink_version)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if version < OLDEST_FLINK:
        raise UnsupportedByEngineError(
            f"The cluster runs Flink {flink_version}.",
            remedy=f"Use Flink {OLDEST_FLINK[0]}.{OLDEST_FLINK[1]} or newer.",
        )
    return EngineCapabilities(
        flink_version=flink_version,
        warehouse_path_as_written=version >= (2, 0),
    )
