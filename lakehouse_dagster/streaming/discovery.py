"""Tables that the catalog has, kept in a file: found by a command, loaded without a network."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lakehouse_dagster.errors import CatalogError, ConfigurationError, TableNotFoundError
from lakehouse_dagster.paimon import ColumnSchema, PaimonCatalog, TableSchema
from lakehouse_dagster.sql.sources import mask_secrets

FORMAT = 1
_THREADS = 8


@dataclass(frozen=True)
class Discovered:
    """The tables that a catalog had at some time; secrets in their options are masked.

    Args:
        found_at: when they were looked for, in UTC.
        tables: by ``database.table``.
        problems: why a table could not be read, by its name; such a table is in ``tables`` only
            if an earlier discovery had it.
    """

    found_at: datetime
    tables: Mapping[str, TableSchema] = field(hash=False)
    problems: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Discovery:
    """Where a project keeps what was found in its catalog.

    Args:
        file: the file; None where another has to say it (``elsewhere``) and there is none yet.
        elsewhere: finds and keeps the tables in a way of its own.
    """

    file: Path | None = None
    elsewhere: Callable[[], Discovered] | None = None

    def known(self) -> Discovered | None:
        """What was found last; None if nobody has looked yet."""
        return None if self.file is None else read(self.file)

    def refresh(self, catalog: PaimonCatalog, patterns: Sequence[str]) -> Discovered:
        """Find the tables and keep them. Raises as :func:`discover` does; then nothing changes."""
        if self.elsewhere is not None:
            return self.elsewhere()
        if self.file is None:
            raise ConfigurationError("There is no place to keep the catalog's tables in.")
        found = discover(catalog, patterns, self.known())
        write(self.file, found)
        return found


def wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a table is one of those that a project wants to be found."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def discover(
    catalog: PaimonCatalog, patterns: Sequence[str], known: Discovered | None = None
) -> Discovered:
    """Read the schemas of the catalog's tables.

    Args:
        catalog: where to look.
        patterns: names ``database.table``, or patterns such as ``dwd.*``, of those wanted.
        known: an earlier discovery, from which tables that cannot be read now are kept.

    Raises:
        CatalogError: the catalog cannot be reached; nothing is to be believed about its tables.
    """
    before = known.tables if known is not None else {}
    if not patterns:
        return Discovered(datetime.now(timezone.utc), {})
    reader = catalog.open()
    names = [name for name in reader.tables() if wanted(name, patterns)]

    def look(name: str) -> TableSchema | str | None:
        try:
            schema = reader.table(name).schema()
            return replace(schema, options=mask_secrets(schema.options))
        except TableNotFoundError:
            return None  # dropped meanwhile
        except CatalogError as error:
            return error.message

    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        looks = dict(zip(names, pool.map(look, names), strict=True))
    problems = {name: found for name, found in looks.items() if isinstance(found, str)}
    tables = {name: found for name, found in looks.items() if isinstance(found, TableSchema)}
    tables |= {name: before[name] for name in problems if name in before}
    return Discovered(datetime.now(timezone.utc), dict(sorted(tables.items())), problems)


def write(path: Path, found: Discovered) -> None:
    """Keep a discovery in a file; the old file stays whole until the new one is."""
    document = {
        "format": FORMAT,
        "found_at": found.found_at.isoformat(),
        "tables": {name: asdict(schema) for name, schema in found.tables.items()},
        "problems": dict(found.problems),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=False)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(path: Path) -> Discovered | None:
    """The discovery kept in a file; None if there is no such file.

    Raises:
        ConfigurationError: the file holds something else, or was written by another version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _unusable(path, "it is of another format")
    try:
        return Discovered(
            datetime.fromisoformat(document["found_at"]),
            {name: _schema(schema) for name, schema in document["tables"].items()},
            document["problems"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(path, f"{type(error).__name__}: {error}") from error


def _schema(data: Mapping[str, Any]) -> TableSchema:
    return TableSchema(
        columns=tuple(ColumnSchema(**column) for column in data["columns"]),
        primary_key=tuple(data["primary_key"]),
        partition_keys=tuple(data["partition_keys"]),
        options=dict(data["options"]),
        comment=data["comment"],
    )


def _unusable(path: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The tables found in the catalog cannot be read from {path}: {why}.",
        remedy="Find them anew: lakehouse discover.",
    )
