"""Free ports on the loopback address."""

from __future__ import annotations

import random
import socket
import time

from lakehouse_dagster.errors import StackError

HOST = "127.0.0.1"

# Below the range from which the system takes ports for outgoing connections (32768 and up on
# Linux, 49152 on macOS): a recorded port must still be free when a service is started again.
_FIRST_PORT = 20_000
_LAST_PORT = 32_000
_ATTEMPTS = 500


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java does: connections of a server that just ended must not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_ports(count: int) -> tuple[int, ...]:
    """Different ports that are free now, chosen at random so that two stacks rarely meet."""
    chosen: list[int] = []
    for port in random.sample(range(_FIRST_PORT, _LAST_PORT), _ATTEMPTS):
        if len(chosen) == count:
            break
        if is_free(port):
            chosen.append(port)
    if len(chosen) < count:
        raise StackError(f"No {count} free ports between {_FIRST_PORT} and {_LAST_PORT}.")
    return tuple(chosen)


def require_free(port: int, *, use: str, patience_seconds: float = 0.0) -> None:
    """Raise StackError, naming who listens where that can be seen, unless the port is free.

    Args:
        port: the port.
        use: what it is for.
        patience_seconds: how long to wait for a process that is ending to let go of it.
    """
    give_up = time.monotonic() + patience_seconds
    while not is_free(port):
        if time.monotonic() >= give_up:
            break
        time.sleep(0.05)
    else:
        return
    raise StackError(
        f"Port {port} for {use} is taken{_by_whom(port)}.",
        remedy="Stop that process or choose another port.",
    )


def _by_whom(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr:
                continue
            if connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return ""
