"""Files of a warehouse, through pypaimon's FileIO, with errors of ours.

Paimon's metadata files are read here directly, after the specification (Paimon's pages "Concepts /
Spec"): asking pypaimon for a table loads its schema first, which costs more than everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import CatalogError, LakehouseError, TableNotFoundError
from lakehouse_dagster.paimon.masking import scrubbed

if TYPE_CHECKING:
    from pypaimon.common.file_io import FileIO


@contextmanager
def translated_errors(doing: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn whatever pypaimon, pyarrow or the file system raises into a :class:`CatalogError`.

    Args:
        doing: what is being done, such as ``read the schema of dwd.orders``.
        options: of the catalog; secrets among them are taken out of the message.
    """
    try:
        yield
    except LakehouseError:
        raise
    # pypaimon raises ValueError, RuntimeError and others where Java has exceptions of its own.
    except Exception as error:
        from pypaimon.catalog.catalog_exception import (
            DatabaseNotExistException,
            TableNotExistException,
        )

        if isinstance(error, (DatabaseNotExistException, TableNotExistException)):
            raise TableNotFoundError(f"{error}.", remedy="Look at its name.") from error
        reason = scrubbed(f"{type(error).__name__}: {error}", options)
        # Without the cause: its text may hold the secrets that were just taken out.
        raise CatalogError(f"Could not {doing}: {reason}") from None


class WarehouseFiles:
    """Reads files of a warehouse, local or remote; safe to use from several threads.

    Args:
        options: of the catalog, as pypaimon takes them.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = options
        self.root = options["warehouse"].rstrip("/")
        # pypaimon's way to a local file takes several times as long as looking at it. Where ours
        # fails, its way follows, and says what is wrong.
        self._local = self.root.startswith("/")
        with translated_errors(f"open the warehouse {self.root}", options):
            from pypaimon.common.file_io import FileIO
            from pypaimon.common.options import Options

            self.file_io: FileIO = FileIO.get(self.root, Options(dict(options)))

    def read(self, path: str) -> bytes | None:
        """The content of a file; ``None`` when there is none."""
        if self._local:
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None
            except OSError:
                pass
        with translated_errors(f"read {path}", self.options):
            try:
                with self.file_io.new_input_stream(path) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def read_avro(self, path: str) -> list[dict[str, Any]] | None:
        """The records of an Avro file; ``None`` when there is none."""
        from io import BytesIO

        content = self.read(path)
        if content is None:
            return None
        with translated_errors(f"read {path}", self.options):
            import fastavro

            return [dict(record) for record in fastavro.reader(BytesIO(content))]  # type: ignore[arg-type]

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        if self._local:
            try:
                os.stat(path)
                return True
            except (FileNotFoundError, NotADirectoryError):
                return False
            except OSError:
                pass
        with translated_errors(f"look for {path}", self.options):
            return bool(self.file_io.exists(path))

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the files and folders in a folder; none when it does not exist."""
        if self._local:
            try:
                return tuple(sorted(os.listdir(folder)))
            except FileNotFoundError:
                return ()
            except OSError:
                pass
        with translated_errors(f"list {folder}", self.options):
            try:
                statuses = self.file_io.list_status(folder)
            except FileNotFoundError:
                return ()
            return tuple(sorted(status.path.rstrip("/").rsplit("/", 1)[-1] for status in statuses))
