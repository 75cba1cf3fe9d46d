"""The YAML face: Dagster components over the same objects as in Python."""

from lakehouse_dagster.components.lakehouse import LakehouseComponent

__all__ = ["LakehouseComponent"]
