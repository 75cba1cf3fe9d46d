"""Whether an engine can run our jobs, decided before anything is done on its cluster."""

from __future__ import annotations

import re

from lakehouse_dagster.errors import UnsupportedByEngineError
from lakehouse_dagster.flink import EngineCapabilities, FlinkCluster, capabilities_of

# Found by trying every ASCII punctuation mark on Paimon 1.3.1.
_ENCODED_BY_PAIMON_1 = re.compile(r'["#%<>?\[\\\]^`{|} ]')


def refuse_unfit_engine(cluster: FlinkCluster, warehouse: str) -> None:
    """Return when the cluster's engine can keep jobs over this warehouse.

    Raises ``UnsupportedByEngineError`` when it cannot, ``ClusterUnreachableError`` when it could
    not be asked.
    """
    _refuse_renamed_warehouse(capabilities_of(cluster), warehouse)


def _refuse_renamed_warehouse(engine: EngineCapabilities, warehouse: str) -> None:
    path = warehouse.removeprefix("file://")
    if engine.warehouse_path_as_written or path == warehouse:
        return
    encoded = sorted(set(_ENCODED_BY_PAIMON_1.findall(path)))
    if encoded:
        characters = " and ".join(repr(character) for character in encoded)
        raise UnsupportedByEngineError(
            f"The path of the warehouse {warehouse} has {characters} in it, and the Paimon of "
            f"Flink {engine.flink_version} would write the tables into a folder of another name.",
            remedy="Give the warehouse a path without, or use Flink 2.0 with Paimon 2.0.",
        )
