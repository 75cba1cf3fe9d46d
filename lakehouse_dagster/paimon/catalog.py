"""Where a Paimon catalog is, and how Flink and pypaimon are told so."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse_dagster.errors import ConfigurationError
from lakehouse_dagster.paimon.masking import masked
from lakehouse_dagster.paimon.metastores import Metastore, check_metastore, metastore_named

if TYPE_CHECKING:
    from lakehouse_dagster.paimon.reader import CatalogReader

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_URI_WITH_PASSWORD = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/@]*:[^/@]*@")
_OUR_OPTIONS = frozenset({"type", "warehouse", "metastore", "uri"})
_CONNECT_SECONDS = "10"


@dataclass(frozen=True, repr=False)
class PaimonCatalog:
    """A Paimon catalog, declared once for Flink and for reading.

    Args:
        warehouse: folder of the tables: a local path, or a URI such as ``s3://bucket/lake``. A
            local path is made absolute and becomes a ``file://`` URI, in which, as in Paimon's
            own ``Path``, nothing is percent-encoded. With the metastore ``rest``, the name that
            the server calls the warehouse by.
        name: name of the catalog in Flink SQL.
        metastore: ``filesystem``, ``jdbc``, ``rest`` or ``hive``.
        options: further options, passed to Flink and to pypaimon as they are.
        uri: address of the metastore: ``jdbc:postgresql://…``, ``https://…``, ``thrift://…``.

    Raises:
        ConfigurationError: the warehouse is empty, the metastore is not known, its address or
            options do not fit it, or an option repeats one of the arguments.
    """

    warehouse: str
    name: str = "lake"
    metastore: str = "filesystem"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    uri: str | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ConfigurationError(
                "A Paimon catalog needs a name.", remedy="Write name: lake.", field=("name",)
            )
        metastore = metastore_named(self.metastore, self.name)
        object.__setattr__(self, "metastore", metastore.value)
        object.__setattr__(self, "options", dict(self.options))
        object.__setattr__(self, "warehouse", _warehouse(self.warehouse, metastore))
        repeated = sorted(_OUR_OPTIONS & set(self.options))
        if repeated:
            raise ConfigurationError(
                f"The options of the Paimon catalog {self.name} repeat {', '.join(repeated)}.",
                remedy="Take them out of the options: warehouse, metastore and uri have places of "
                "their own, and the type is always paimon.",
                field=("options", repeated[0]),
            )
        check_metastore(metastore, self.name, self.uri, self.options)

    def __repr__(self) -> str:
        uri = "" if self.uri is None else f", uri={self.uri!r}"
        return (
            f"PaimonCatalog(warehouse={self.warehouse!r}, name={self.name!r}, "
            f"metastore={self.metastore!r}{uri}, options={masked(self.options)!r})"
        )

    def flink_options(self) -> dict[str, str]:
        """The options of ``CREATE CATALOG``, secrets included."""
        return {
            "type": "paimon",
            "metastore": self.metastore,
            **({} if self.uri is None else {"uri": self.uri}),
            "warehouse": self.warehouse,
            **self.options,
        }

    def pypaimon_options(self) -> dict[str, str]:
        """The options of pypaimon's ``CatalogFactory.create``, secrets included.

        pypaimon knows no Hive metastore: it gets the warehouse, in whose folders the tables are.
        """
        # pypaimon percent-decodes file URIs and cuts them at `#` and `?`, which Paimon in Java
        # does not; a plain path it leaves alone.
        warehouse = self.warehouse.removeprefix("file://")
        if self.metastore == Metastore.HIVE or self.uri is None:
            return {"metastore": "filesystem", "warehouse": warehouse, **self.options}
        options = {"metastore": self.metastore, "uri": self.uri, "warehouse": warehouse}
        if self.uri.startswith("jdbc:postgresql:"):
            options["jdbc.connect_timeout"] = _CONNECT_SECONDS
        return {**options, **self.options}

    def open(self) -> CatalogReader:
        """The reader of the catalog's tables; nothing is read yet, and it needs no closing.

        Equal catalogs share one. What cannot be read is told where it is read, so that one
        unreachable server does not take the rest with it.
        """
        return _reader(self)


@lru_cache(maxsize=64)
def _reader(catalog: PaimonCatalog) -> CatalogReader:
    from lakehouse_dagster.paimon.reader import CatalogReader

    return CatalogReader(catalog)


def _warehouse(written: str, metastore: Metastore) -> str:
    if not written.strip():
        raise ConfigurationError(
            "The warehouse of the Paimon catalog is empty.",
            remedy="Write the folder of the tables, such as /data/lake or s3://bucket/lake.",
            field=("warehouse",),
        )
    if _URI_WITH_PASSWORD.match(written):
        raise ConfigurationError(
            "The warehouse of the Paimon catalog holds a password, which would be shown.",
            remedy="Take it out, and give the keys as options, such as s3.secret-key.",
            field=("warehouse",),
        )
    if metastore is Metastore.REST:
        return written
    return _absolute(written)


def _absolute(warehouse: str) -> str:
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
                field=("warehouse",),
            )
    return f"file://{Path(path).expanduser().absolute()}"
