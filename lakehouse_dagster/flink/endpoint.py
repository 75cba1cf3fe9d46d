"""What the clients of the JobManager and of the SQL Gateway have in common."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from lakehouse_dagster.flink.cluster import FlinkCluster
from lakehouse_dagster.flink.rest_client import RestClient

if TYPE_CHECKING:
    import httpx


class Endpoint:
    """What speaks to one of a cluster's addresses; a context manager that closes its connections.

    Args:
        cluster: gives authentication, TLS and time-outs.
        base_url: which of the cluster's addresses.
        name: what the address is called in messages.
        transport: replaces the network; for tests.
    """

    def __init__(
        self,
        cluster: FlinkCluster,
        base_url: str,
        name: str,
        transport: httpx.BaseTransport | None,
    ) -> None:
        self.cluster = cluster
        self._rest = RestClient(cluster, base_url, name, transport)

    def __enter__(self: _Endpoint) -> _Endpoint:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; what runs on the cluster, sessions too, goes on."""
        self._rest.close()


_Endpoint = TypeVar("_Endpoint", bound=Endpoint)
