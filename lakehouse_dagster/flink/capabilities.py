"""What the engine behind a cluster can do: asked once, and by name, never by version elsewhere."""

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
        job_id_chosen_beforehand: ``$internal.pipeline.job-id`` is honoured for a statement, and
            the same id again is refused (run on Flink 1.20.5 and 2.0.2).
        create_catalog_if_not_exists: CREATE CATALOG takes IF NOT EXISTS (FLIP-436, Flink 1.20).
        operator_uids_by_session_option: Paimon's operator uid suffixes can be set as
            ``paimon.<catalog>.<database>.<table>.…`` options of a session instead of in the
            statement (run with Paimon 1.3.1 on Flink 1.20.5 and with Paimon 2.0.0 on 2.0.2).
    """

    flink_version: str
    job_id_chosen_beforehand: bool
    create_catalog_if_not_exists: bool
    operator_uids_by_session_option: bool


_known: dict[FlinkCluster, EngineCapabilities] = {}
_lock = threading.Lock()


def capabilities_of(cluster: FlinkCluster, *, refresh: bool = False) -> EngineCapabilities:
    """The capabilities of a cluster's engine; one GET, remembered as long as this process lives.

    Args:
        cluster: whose JobManager is asked.
        refresh: ask again, for a cluster that may have been upgraded.

    Raises:
        ClusterUnreachableError, FlinkRequestError: it could not be asked; not remembered.
        UnsupportedByEngineError: its Flink is older than 1.20.
    """
    if not refresh and (known := _known.get(cluster)):
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
        job_id_chosen_beforehand=True,
        create_catalog_if_not_exists=True,
        operator_uids_by_session_option=True,
    )
