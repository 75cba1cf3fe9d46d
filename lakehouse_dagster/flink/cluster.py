"""Where a Flink cluster is and how to get in; the doors to its JobManager and SQL Gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakehouse_dagster.errors import ConfigurationError

if TYPE_CHECKING:
    from lakehouse_dagster.flink.job_manager import JobManager
    from lakehouse_dagster.flink.sql_gateway import SqlGateway


@dataclass(frozen=True)
class BasicAuth:
    """User name and password, as a reverse proxy in front of Flink usually asks for them."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class BearerAuth:
    """A token that is sent as ``Authorization: Bearer``."""

    token: str = field(repr=False)


@dataclass(frozen=True)
class FlinkCluster:
    """One Flink cluster: the JobManager's REST API and the SQL Gateway in front of it.

    Nothing is contacted until a method of ``job_manager()`` or ``sql_gateway()`` is called.

    Args:
        rest_url: the JobManager's REST address, such as ``http://jobmanager:8081``; a path prefix
            is kept.
        sql_gateway_url: the SQL Gateway's REST address without its version, such as
            ``http://gateway:8083``.
        name: what this cluster is called in messages and in the system database.
        auth: sent to both addresses with every request.
        verify: whether TLS certificates are checked; a string is the path of a CA bundle (a file,
            or a folder of certificates).
        connect_timeout_seconds: how long to wait for a connection.
        read_timeout_seconds: how long to wait for an answer once connected.

    Raises:
        ConfigurationError: an address is not an http(s) one or holds a password, or a time-out is
            not positive.
    """

    rest_url: str
    sql_gateway_url: str
    name: str = "flink"
    auth: BasicAuth | BearerAuth | None = None
    verify: bool | str = True
    connect_timeout_seconds: float = 5.0
    read_timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        for setting in ("rest_url", "sql_gateway_url"):
            object.__setattr__(self, setting, _checked_url(setting, getattr(self, setting)))
        for setting in ("connect_timeout_seconds", "read_timeout_seconds"):
            if getattr(self, setting) <= 0:
                raise ConfigurationError(
                    f"{setting} of cluster {self.name!r} is {getattr(self, setting)}.",
                    remedy="Give a positive number of seconds.",
                    field=(setting,),
                )

    def job_manager(self) -> JobManager:
        """The JobManager's REST API; use it in a ``with`` statement, which closes connections."""
        from lakehouse_dagster.flink.job_manager import JobManager

        return JobManager(self)

    def sql_gateway(self) -> SqlGateway:
        """The SQL Gateway; use it in a ``with`` statement, which closes connections."""
        from lakehouse_dagster.flink.sql_gateway import SqlGateway

        return SqlGateway(self)


def _checked_url(setting: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018  (reading it is what checks it)
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.username or parts.password:
        # Not repeated in the message: it holds a password.
        raise ConfigurationError(
            f"{setting} holds a user name or password.",
            remedy="Leave them out of the address and give auth=BasicAuth(username, password).",
            field=(setting,),
        )
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{setting} is {url!r}, which is not the address of a REST API.",
            remedy="Give one such as 'http://host:8081'.",
            field=(setting,),
        )
    return url.rstrip("/")
