"""Operate Flink streaming jobs and Apache Paimon tables from Dagster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakehouse_dagster.components.lakehouse import LakehouseComponent
    from lakehouse_dagster.errors import LakehouseError
    from lakehouse_dagster.flink import BasicAuth, BearerAuth, FlinkCluster
    from lakehouse_dagster.lakehouse import Lakehouse, LoadedLakehouse
    from lakehouse_dagster.maintenance.spec import (
        CheckBounds,
        Compaction,
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
    from lakehouse_dagster.paimon import PaimonCatalog
    from lakehouse_dagster.streaming.checks import CheckPolicy
    from lakehouse_dagster.streaming.partitions import (
        DynamicPartitions,
        StaticPartitions,
        TablePartitions,
        TimePartitions,
    )
    from lakehouse_dagster.streaming.spec import (
        OtherCatalog,
        ProgressPolicy,
        StartPolicy,
        SupervisionPolicy,
    )
    from lakehouse_dagster.streaming.table_settings import TableSettings
    from lakehouse_dagster.streaming.translator import LakehouseTableData, LakehouseTranslator
    from lakehouse_dagster.system_db import SystemDatabase

_HOMES = {
    "BasicAuth": "flink",
    "BearerAuth": "flink",
    "CheckBounds": "maintenance.spec",
    "CheckPolicy": "streaming.checks",
    "CompactSpec": "maintenance.spec",
    "Compaction": "maintenance.spec",
    "DynamicPartitions": "streaming.partitions",
    "ExpireSpec": "maintenance.spec",
    "FlinkCluster": "flink",
    "Lakehouse": "lakehouse",
    "LakehouseComponent": "components.lakehouse",
    "LakehouseError": "errors",
    "LakehouseTableData": "streaming.translator",
    "LakehouseTranslator": "streaming.translator",
    "Limits": "maintenance.spec",
    "LoadedLakehouse": "lakehouse",
    "MaintenancePolicy": "maintenance.spec",
    "ManifestSpec": "maintenance.spec",
    "OrphanSpec": "maintenance.spec",
    "OtherCatalog": "streaming.spec",
    "PaimonCatalog": "paimon",
    "PartitionExpirySpec": "maintenance.spec",
    "ProgressPolicy": "streaming.spec",
    "StartPolicy": "streaming.spec",
    "StaticPartitions": "streaming.partitions",
    "SupervisionPolicy": "streaming.spec",
    "SystemDatabase": "system_db",
    "TablePartitions": "streaming.partitions",
    "TablePolicy": "maintenance.spec",
    "TableSettings": "streaming.table_settings",
    "TagSpec": "maintenance.spec",
    "TimePartitions": "streaming.partitions",
}

__all__ = [
    "BasicAuth",
    "BearerAuth",
    "CheckBounds",
    "CheckPolicy",
    "CompactSpec",
    "Compaction",
    "DynamicPartitions",
    "ExpireSpec",
    "FlinkCluster",
    "Lakehouse",
    "LakehouseComponent",
    "LakehouseError",
    "LakehouseTableData",
    "LakehouseTranslator",
    "Limits",
    "LoadedLakehouse",
    "MaintenancePolicy",
    "ManifestSpec",
    "OrphanSpec",
    "OtherCatalog",
    "PaimonCatalog",
    "PartitionExpirySpec",
    "ProgressPolicy",
    "StartPolicy",
    "StaticPartitions",
    "SupervisionPolicy",
    "SystemDatabase",
    "TablePartitions",
    "TablePolicy",
    "TableSettings",
    "TagSpec",
    "TimePartitions",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
