"""Free ports, and who has the others."""

from __future__ import annotations

import os
import re
import socket

import pytest

from lakehouse_dagster.errors import StackError
from lakehouse_dagster.local.ports import free_ports, is_free, require_free


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(is_free(port) and 20_000 <= port < 32_000 for port in ports)


def test_a_taken_port_is_named_with_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(StackError) as refused:
            require_free(port, use="the SQL Gateway")
    sentence = rf"Port {port} for the SQL Gateway is taken by \S+ \(pid {os.getpid()}\)\. Stop that"
    assert re.match(sentence, str(refused.value))


def test_a_port_is_free_again_as_soon_as_its_server_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            # The side that closes first keeps the address for a minute (TIME_WAIT).
            accepted.close()
            assert client.recv(1) == b""
    assert is_free(port)
