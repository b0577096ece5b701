"""The status API with credentials: who gets in, and which web pages do not."""

import asyncio
import logging
from base64 import b64encode
from typing import cast

import pytest

from gateway.admin import register
from gateway.admin.access import AccessCheck, HostCheck
from gateway.admin.operator_actions import add_clearing
from gateway.admin.playground.api import add_playground
from gateway.admin.state import GatewayState
from gateway.admin.status import Reloaded, application
from gateway.auth.authenticator import Authenticator, Credentials
from gateway.auth.keys import key_file, new_key
from gateway.auth.permissions import Principals
from gateway.servers.discovery.register import Leases, Registrations
from gateway.transports.http.address import parse_address
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


ROOT, ROOT_ENTRY = new_key("root")
USER, USER_ENTRY = new_key("user")


def check() -> AccessCheck:
    credentials = Credentials(Principals({}, {"root": ["all"], "user": ["use"]}))
    credentials.use_keys(key_file([ROOT_ENTRY, USER_ENTRY]))
    app = application(lambda: STATUS)
    register.add_routes(app, {})

    async def nothing(issuer: str) -> None:
        return

    return AccessCheck(app, (Authenticator(credentials), nothing))


async def reply(headers: str, path: str = "/status") -> bytes:
    async with served(check()) as server:
        request = f"GET {path} HTTP/1.1\r\nHost: gateway.example:9090\r\n{headers}Connection: close\r\n\r\n"
        return await ask(server.port, request.encode())


@pytest.mark.parametrize(
    "headers",
    [
        f"x-api-key: {ROOT}\r\n",
        f"Authorization: Bearer {ROOT}\r\n",
        f"Authorization: Basic {b64encode(f'me:{ROOT}'.encode()).decode()}\r\n",
        f"x-api-key: {ROOT}\r\nOrigin: https://gateway.example:9090\r\n",
    ],
    ids=["key", "bearer", "basic", "own page"],  # keys are random, and pytest-xdist compares the names of tests
)
async def test_who_has_the_permission_gets_in(headers: str) -> None:
    assert (await reply(headers)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/status", "/docs", "/openapi.json", "/docs/files/swagger-ui.css", "/nothing"])
async def test_nobody_else_sees_anything(path: str) -> None:
    for headers, status in (("", b"401"), ("x-api-key: wrong\r\n", b"401"), (f"x-api-key: {USER}\r\n", b"403")):
        found = await reply(headers, path)
        assert found.split(b" ")[1] == status
        assert (b"www-authenticate" in found.lower()) == (status == b"401")
        assert b"lab" not in found
        assert b"wrong" not in found


async def test_a_web_page_of_another_host_may_not_use_the_password_that_a_browser_keeps() -> None:
    for origin in ("https://evil.example", "null"):
        assert (await reply(f"x-api-key: {ROOT}\r\nOrigin: {origin}\r\n")).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("path", ["/register", "/register/lease", "/api/playground/send"])
async def test_a_request_that_breaks_off_is_no_gateway_error(path: str, caplog: pytest.LogCaptureFixture) -> None:
    app = application(lambda: STATUS)
    register.add_routes(app, {"backend": Registrations("token", Leases(60, parse_address))})
    add_playground(app, cast(GatewayState, None))
    method = "PUT" if path.endswith("lease") else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\nContent-Length: 99\r\n"
    async with served(app) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await server.get("/status"))[0] == 200
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_bodies_are_bounded() -> None:
    app = application(lambda: STATUS)

    async def clear(place: str) -> list[str]:
        return [place]

    add_clearing(app, clear)
    body = b'{"place": "%b"}' % (b"x" * 5000)
    head = b"POST /cache/clear HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    async with served(app) as server:
        sized = await ask(server.port, b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        chunked = b"%bTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(body), body)
        for reply in (sized, await ask(server.port, chunked)):
            assert reply.startswith(b"HTTP/1.1 413 ")
            assert b"the body has more than 4096 bytes" in reply


async def test_servers_register_with_their_own_token() -> None:
    assert b" 404 " in await reply("", "/register/lease") or b" 405 " in await reply("", "/register/lease")
