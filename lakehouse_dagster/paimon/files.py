"""Files of a warehouse, through pypaimon's FileIO, with errors of ours.

Paimon's metadata files are read here directly, after the specification (Paimon's pages "Concepts /
Spec"): asking pypaimon for a table loads its schema first, which costs more than everything else.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lakehouse_dagster.errors import (
    CatalogError,
    CatalogUnreachableError,
    LakehouseError,
    TableNotFoundError,
)
from lakehouse_dagster.paimon.file_systems import nobody_answered, open_file_io
from lakehouse_dagster.paimon.masking import scrubbed

if TYPE_CHECKING:
    from pypaimon.common.file_io import FileIO

SILENT_SECONDS = 10.0
"""How long a server that gave no answer is not asked again."""


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
        from pypaimon.api.rest_exception import RESTException
        from pypaimon.catalog.catalog_exception import (
            DatabaseNotExistException,
            TableNotExistException,
        )

        if isinstance(error, (DatabaseNotExistException, TableNotExistException)):
            raise TableNotFoundError(f"{error}.", remedy="Look at its name.") from error
        remedy = None
        reason = scrubbed(f"{type(error).__name__}: {error}", options)
        kind = CatalogUnreachableError if nobody_answered(error) else CatalogError
        if isinstance(error, RESTException) and error.__cause__ is not None:
            # It says of itself that it is a "rest exception", and no more.
            reason = scrubbed(_of_server(error, options), options)
            remedy = "Look whether it runs, and whether this machine reaches it."
        # Without the cause: its text may hold the secrets that were just taken out.
        raise kind(f"Could not {doing}: {reason}", remedy=remedy) from None


def _of_server(error: BaseException, options: Mapping[str, str]) -> str:
    """Which server gave no usable answer, and the innermost reason."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    reason = f"{type(error).__name__}: {error}"
    return f"the catalog's server {options.get('uri', '')} gives no answer ({reason})."


class Server:
    """What is asked of one server; once it gives no answer, it is not asked again for a while.

    Waiting for it a thousand times, once a table, would be a hang.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._silent_until = 0.0
        self._reason = ""
        self._remedy: str | None = None

    @contextmanager
    def asked(self, doing: str, options: Mapping[str, str]) -> Iterator[None]:
        """Ask in the block; raises as ``translated_errors`` does, at once as long as silent."""
        if self._monotonic() < self._silent_until:
            raise CatalogUnreachableError(f"Could not {doing}: {self._reason}", remedy=self._remedy)
        try:
            with translated_errors(doing, options):
                yield
        except CatalogUnreachableError as error:
            self._reason = error.message.removeprefix(f"Could not {doing}: ")
            self._remedy = error.remedy
            self._silent_until = self._monotonic() + SILENT_SECONDS
            raise


class WarehouseFiles:
    """Reads files of a warehouse, local or remote; safe to use from several threads.

    Args:
        root: folder or URI at and below which the files are.
        options: of the catalog, as pypaimon takes them.
        server: where they are; by default one that nobody else asks.
    """

    def __init__(self, root: str, options: Mapping[str, str], server: Server | None = None) -> None:
        self.options = options
        self.root = root.rstrip("/")
        # pypaimon's way to a local file takes several times as long as looking at it. Where ours
        # fails, its way follows, and says what is wrong.
        self._local = self.root.startswith("/")
        self._server = server or Server()
        self._opening = threading.Lock()
        self._file_io: FileIO | None = None

    def asked(self, doing: str) -> AbstractContextManager[None]:
        """Read something in the block; raises ``CatalogError`` in place of everything else."""
        return self._server.asked(doing, self.options)

    @property
    def file_io(self) -> FileIO:
        """pypaimon's way to the files; made when it is first needed."""
        with self._opening:
            if self._file_io is None:
                with translated_errors(f"open the warehouse {self.root}", self.options):
                    self._file_io = open_file_io(self.root, self.options)
            return self._file_io

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
        with self.asked(f"read {path}"):
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
        with self.asked(f"look for {path}"):
            return bool(self.file_io.exists(path))

    def modified_at(self, path: str) -> datetime | None:
        """When a file was last written (UTC); ``None`` when there is none, or nobody knows."""
        if self._local:
            try:
                return datetime.fromtimestamp(os.stat(path).st_mtime, timezone.utc)
            except FileNotFoundError:
                return None
            except OSError:
                pass
        with self.asked(f"look for {path}"):
            try:
                written = self.file_io.get_file_status(path).mtime
            except FileNotFoundError:
                return None
            return written.astimezone(timezone.utc) if isinstance(written, datetime) else None

    def names(self, folder: str) -> tuple[str, ...]:
        """The names of the files and folders in a folder; none when it does not exist."""
        if self._local:
            try:
                return tuple(sorted(os.listdir(folder)))
            except FileNotFoundError:
                return ()
            except OSError:
                pass
        with self.asked(f"list {folder}"):
            try:
                statuses = self.file_io.list_status(folder)
            except FileNotFoundError:
                return ()
            return tuple(sorted(status.path.rstrip("/").rsplit("/", 1)[-1] for status in statuses))


class NoFiles(WarehouseFiles):
    """The files of a table that does not exist."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__("", options)

    def read(self, path: str) -> bytes | None:
        return None

    def exists(self, path: str) -> bool:
        return False

    def modified_at(self, path: str) -> datetime | None:
        return None

    def names(self, folder: str) -> tuple[str, ...]:
        return ()
