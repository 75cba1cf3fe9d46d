"""pypaimon's FileIO for a path, made to give up soon, or the reason why there is none.

By default pypaimon asks an S3 server that is down ten times, with pauses: one look takes 90 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakehouse_dagster.errors import CatalogError

if TYPE_CHECKING:
    from pypaimon.common.file_io import FileIO

CONNECT_SECONDS = 5
REQUEST_SECONDS = 20
ATTEMPTS = 2

_S3 = ("s3", "s3a", "s3n")
_HDFS = ("hdfs", "viewfs")
_READABLE = ("file", "gs", "oss", *_S3, *_HDFS)
_STILL_WORKS = (
    "Jobs are started and looked after all the same; progress, lag and freshness, which are read "
    "from the tables' files, are not told."
)


def open_file_io(path: str, options: Mapping[str, str]) -> FileIO:
    """The FileIO for files at and below a path; nothing is asked of a server yet.

    Raises:
        CatalogError: Python cannot read this kind of file system, or not here; says why.
    """
    scheme = "" if path.startswith("/") else urlsplit(path).scheme
    if scheme and scheme not in _READABLE:
        raise CatalogError(
            f"Files at {scheme}:// cannot be read from Python: pypaimon knows "
            f"{', '.join(f'{known}://' for known in _READABLE)}.",
            remedy=_STILL_WORKS,
        )
    from pypaimon.common.file_io import FileIO
    from pypaimon.common.options import Options

    handed_on = Options(dict(options))
    if scheme in _S3:
        return _s3(path, handed_on)
    try:
        return FileIO.get(path, handed_on)
    except (ImportError, RuntimeError, OSError) as error:
        if scheme in _HDFS:
            raise CatalogError(
                f"HDFS cannot be read here: {error}",
                remedy="Install pypaimon[hdfs], or set HADOOP_HOME and HADOOP_CONF_DIR. "
                + _STILL_WORKS,
            ) from None
        raise


def _s3(path: str, options: Any) -> FileIO:
    from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO

    class SoonGivesUp(PyArrowFileIO):  # type: ignore[misc]
        def _create_s3_retry_config(self, **_: int) -> dict[str, Any]:
            return dict(
                super()._create_s3_retry_config(
                    max_attempts=ATTEMPTS,
                    request_timeout=REQUEST_SECONDS,
                    connect_timeout=CONNECT_SECONDS,
                )
            )

    return SoonGivesUp(path, options)


_SIGNS = (
    "NETWORK_CONNECTION",  # pyarrow's S3 client
    "curlCode",
    "Connection refused",
    "Connection reset",
    "timed out",
    "Timeout",
    "Couldn't resolve host",
    "Name or service not known",
    "Max retries exceeded",  # urllib3
)


def nobody_answered(error: BaseException) -> bool:
    """Whether an error says that a server could not be reached, rather than what it answered."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ConnectionError | TimeoutError):
            return True
        if any(sign in f"{type(seen).__name__}: {seen}" for sign in _SIGNS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
