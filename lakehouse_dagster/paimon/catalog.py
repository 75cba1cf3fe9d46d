"""Where a Paimon catalog is, and how Flink and pypaimon are told so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.paimon.masking import masked

if TYPE_CHECKING:
    from lakehouse_dagster.paimon.reader import CatalogReader

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_OUR_OPTIONS = frozenset({"type", "warehouse", "metastore"})


@dataclass(frozen=True, repr=False)
class PaimonCatalog:
    """A Paimon catalog, declared once for Flink and for reading.

    Args:
        warehouse: folder of the tables: a local path, or a URI such as ``s3://bucket/lake``. A
            local path is made absolute and becomes a ``file://`` URI, in which, as in Paimon's
            own ``Path``, nothing is percent-encoded.
        name: name of the catalog in Flink SQL.
        metastore: only ``filesystem`` for now.
        options: further options, passed to Flink and to pypaimon as they are.

    Raises:
        ConfigurationError: the warehouse is empty, the metastore is not supported, or an option
            repeats one of the arguments.
    """

    warehouse: str
    name: str = "lake"
    metastore: str = "filesystem"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "warehouse", _absolute(self.warehouse))
        object.__setattr__(self, "options", dict(self.options))
        if not self.name.strip():
            raise ConfigurationError("A Paimon catalog needs a name.", remedy="Write name: lake.")
        if self.metastore != "filesystem":
            raise ConfigurationError(
                f"The metastore {self.metastore!r} of the Paimon catalog {self.name} is not "
                "supported.",
                remedy="Write metastore: filesystem, or leave it out.",
            )
        repeated = sorted(_OUR_OPTIONS & set(self.options))
        if repeated:
            raise ConfigurationError(
                f"The options of the Paimon catalog {self.name} repeat {', '.join(repeated)}.",
                remedy="Take them out of the options: warehouse and metastore have places of "
                "their own, and the type is always paimon.",
            )

    def __repr__(self) -> str:
        return (
            f"PaimonCatalog(warehouse={self.warehouse!r}, name={self.name!r}, "
            f"metastore={self.metastore!r}, options={masked(self.options)!r})"
        )

    def flink_options(self) -> dict[str, str]:
        """The options of ``CREATE CATALOG``, secrets included."""
        return {
            "type": "paimon",
            "metastore": self.metastore,
            "warehouse": self.warehouse,
            **self.options,
        }

    def pypaimon_options(self) -> dict[str, str]:
        """The options of pypaimon's ``CatalogFactory.create``, secrets included."""
        # pypaimon percent-decodes file URIs and cuts them at `#` and `?`, which Paimon in Java
        # does not; a plain path it leaves alone.
        warehouse = self.warehouse.removeprefix("file://")
        return {"metastore": self.metastore, "warehouse": warehouse, **self.options}

    def masked_options(self) -> dict[str, str]:
        """The options of ``CREATE CATALOG`` as they may be shown."""
        return masked(self.flink_options())

    def open(self) -> CatalogReader:
        """A reader of the catalog's tables; nothing is read yet, and the reader needs no closing.

        Raises:
            CatalogError: the warehouse's kind of file system is not supported by pypaimon, or
                its options do not do.
        """
        from lakehouse_dagster.paimon.reader import CatalogReader

        return CatalogReader(self)


def _absolute(warehouse: str) -> str:
    if not warehouse.strip():
        raise ConfigurationError(
            "The warehouse of the Paimon catalog is empty.",
            remedy="Write the folder of the tables, such as /data/lake or s3://bucket/lake.",
        )
    if _SCHEME.match(warehouse) and not warehouse.startswith("file:"):
        return warehouse.rstrip("/")
    path = warehouse
    if warehouse.startswith("file:"):
        # `file:/a`, `file:///a` and `file://localhost/a` are the same folder.
        path = re.sub(r"^file:(//(localhost)?(?=/))?", "", warehouse)
        if not path.startswith("/") or path.startswith("//"):
            raise ConfigurationError(
                f"The warehouse {warehouse} is not an absolute local path.",
                remedy="Write file:///absolute/path.",
            )
    return f"file://{Path(path).expanduser().absolute()}"
