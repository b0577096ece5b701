"""The carrier of the admin applications."""

import signal
import socket

import pytest

from gateway.admin.health import application
from gateway.admin.server import AdminServer
from gateway.core.address import Address
from tests.admin.test_health import always
from tests.held import ask, get, port_of


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_it_serves_from_start_to_stop(host: str) -> None:
    server = AdminServer(application(always))
    await server.start(Address(host, 0))
    port = port_of(server.address)
    assert server.address == str(Address(host, port))
    if host == "127.0.0.1":
        assert (await ask(port, get("/readyz"))).endswith(b"\r\n\r\nready")
    await server.stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port)):
        pass


async def test_it_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    server = AdminServer(application(always))
    await server.start(Address("127.0.0.1", 0))
    assert signal.getsignal(signal.SIGTERM) is before
    await server.stop()


async def test_a_taken_address_is_the_systems_error_and_no_end_of_the_process() -> None:
    server = AdminServer(application(always))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await server.start(Address("127.0.0.1", taken.getsockname()[1]))
    await server.stop()
