"""Which Host and Origin headers the status API accepts."""

import pytest

from gateway.admin.access import HostCheck
from gateway.admin.status import Reloaded, application
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
     "Host:\r\n", "", "Host: localhost\r\nHost: evil.example\r\n", "Host: localhost.evil:1\r\n",
     "Host: [::1]evil.test\r\n", "Host: localhost:evil\r\n", "Host: 127.0.0.1:1:2\r\n", "Host: ::1\r\n"],
)  # fmt: skip
async def test_requests_to_other_hosts_are_refused(hosts: str) -> None:
    reply = await status_of(hosts)
    assert reply.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))
    assert b"lab" not in reply


@pytest.mark.parametrize("host", ["localhost:9090", "127.0.0.1:1", "[::1]", "LOCALHOST:9090"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_this_port_may_call(host: str, method: str) -> None:
    for more in ("", "Sec-Fetch-Site: same-origin\r\n"):
        found = await status_of(f"Host: {host}\r\nOrigin: http://{host.lower()}\r\n{more}", method)
        assert found.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "origin", ["https://localhost:9090", "localhost:9090", "http://evil.example", "https://localhost.evil", "null", "", "http://localhost:3000",
               "http://127.0.0.1:9"]
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_pages_of_other_hosts_and_ports_may_not(origin: str, method: str) -> None:
    found = await status_of(f"Host: localhost:9090\r\nOrigin: {origin}\r\n", method)
    assert found.startswith(b"HTTP/1.1 403 ")
    assert b"lab" not in found


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_that_send_no_origin_are_known_by_fetch_metadata(site: str) -> None:
    """`same-site` is another port of localhost. A link to the status is no harm."""
    headers = f"Host: localhost:9090\r\nSec-Fetch-Site: {site}\r\n"
    assert (await status_of(headers, "POST")).startswith(b"HTTP/1.1 403 ")
    assert (await status_of(headers)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("more", ["", "Sec-Fetch-Site: none\r\n"])
async def test_programs_need_no_origin(more: str) -> None:
    assert (await status_of(f"Host: localhost:9090\r\n{more}", "POST")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("hosts", ["Host: localhost\r\n", "Host: evil.example\r\n"])
async def test_no_reply_is_the_content_of_a_page_of_another_host(hosts: str) -> None:
    assert (await status_of(hosts)).lower().count(b"cross-origin-resource-policy: same-origin\r\n") == 1


async def status_of(hosts: str, method: str = "GET") -> bytes:
    """The reply to a question for the status, or to a reload."""

    async def reload() -> Reloaded:
        return Reloaded(changes=[])

    path = "/status" if method == "GET" else "/reload"
    async with served(HostCheck(application(lambda: STATUS, reload))) as server:
        request = f"{method} {path} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n"
        return await ask(server.port, request.encode())
