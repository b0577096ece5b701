"""Which Host and Origin headers the status API accepts."""

import pytest

from gateway.admin.host_check import HostCheck
from gateway.admin.status import application
from tests.admin.served import served
from tests.admin.test_status import STATUS
from tests.paused_server import ask


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:9090", "127.0.0.1:1", "127.9.9.9", "[::1]:9090", "localhost."]
)
async def test_requests_to_loopback_are_answered(host: str) -> None:
    assert (await status_of(f"Host: {host}\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "hosts",
    ["Host: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n", "Host: 10.0.0.1:9090\r\n", "Host: [::2]\r\n",
     "Host:\r\n", "", "Host: localhost\r\nHost: evil.example\r\n", "Host: localhost.evil:1\r\n"],
)  # fmt: skip
async def test_requests_to_other_hosts_are_refused(hosts: str) -> None:
    reply = await status_of(hosts)
    assert reply.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))
    assert b"lab" not in reply


@pytest.mark.parametrize("origin", ["http://localhost:9090", "http://127.0.0.1:1", "http://[::1]"])
async def test_pages_of_this_host_may_call(origin: str) -> None:
    assert (await status_of(f"Host: localhost\r\nOrigin: {origin}\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("origin", ["http://evil.example", "https://localhost.evil", "null", ""])
async def test_pages_of_other_hosts_may_not(origin: str) -> None:
    assert (await status_of(f"Host: localhost\r\nOrigin: {origin}\r\n")).startswith(b"HTTP/1.1 421 ")


async def status_of(hosts: str) -> bytes:
    async with served(HostCheck(application(lambda: STATUS))) as server:
        return await ask(server.port, f"GET /status HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
