"""`cors` of a listener: what replies say to pages of other origins, by the Fetch standard of the WHATWG."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page

from gateway.auth.keys import new_key, write_keys
from gateway.config import ConfigError
from gateway.runtime.app import Gateway
from tests.admin.console.browser import CHROMIUM, chromium
from tests.cli.commands import started
from tests.in_thread import QuietHandler, in_thread
from tests.interop.processes import free_port
from tests.paused_server import http, listening
from tests.running_gateway import config_of, running_gateway

PAGE, OTHER = "https://app.example.com", "https://evil.example.com"
KEY, ENTRY = new_key("alice")
CONFIG = """
auth: {keys: {file: FILE}}
principals: {alice: {permissions: [all]}}
listeners:
  - {name: web, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, grps-rest], auth: {}, reply_headers: true, CORS}
  - name: public
    bind: "127.0.0.1:0"
    protocols: [v2-rest, umbridge]
    cors: {origins: ["*"]}
    limits: {headers: 2000}
  - {name: without, bind: "127.0.0.1:0", protocols: [v2-rest]}
reference: [{protocol: v2-rest, bind: "127.0.0.1:PORT", models: [double, count]}]
backends:
  lab: {protocol: v2-rest, endpoints: ["127.0.0.1:PORT"]}
  own: {protocol: grps-rest, endpoints: ["127.0.0.1:1"]}
routes:
  - {match: {path: /own, listener: web}, backend: own, passthrough: true}
  - {match: {model: "*"}, backend: lab}
"""
CORS = f'cors: {{origins: ["{PAGE}", "http://localhost:3000"], headers: [authorization, content-type], max_age: 60}}'
BODY = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [1, 2, 3]}]}
ASKED = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}


def text(folder: Path, cors: str = CORS) -> str:
    file = folder / "keys.yaml"
    file.write_text(write_keys([ENTRY]))
    return CONFIG.replace("FILE", str(file)).replace("CORS", cors).replace("PORT", str(free_port()))


@asynccontextmanager
async def running(folder: Path, own: int = 1) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """A gateway, whose backend `own` is at this port, and a client."""
    written = text(folder).replace('endpoints: ["127.0.0.1:1"]', f'endpoints: ["127.0.0.1:{own}"]')
    async with running_gateway(written) as gateway, httpx.AsyncClient() as client:
        yield gateway, client


def url(gateway: Gateway, listener: str, path: str = "/v2/models/double/infer") -> str:
    return f"http://{gateway.state.listeners[listener].address}{path}"


def allowed(reply: httpx.Response) -> dict[str, str]:
    """What the reply says to pages, without the list of headers that they may read."""
    found = {name.removeprefix("access-control-"): each for name, each in reply.headers.items() if "access-c" in name}
    found.pop("expose-headers", None)
    return found


@pytest.mark.parametrize("path", ["/v2/models/double/infer", "/own", "/nowhere"])
async def test_a_preflight_is_answered_without_credentials(tmp_path: Path, path: str) -> None:
    async with running(tmp_path) as (gateway, client):
        # twice: heads that came lately are kept
        for _ in range(2):
            reply = await client.options(url(gateway, "web", path), headers={"origin": PAGE, **ASKED})
            assert (reply.status_code, reply.content, reply.headers["vary"]) == (204, b"", "Origin")
            assert allowed(reply) == {
                "allow-origin": PAGE,
                "allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
                "allow-headers": "authorization, content-type",
                "allow-credentials": "true",
                "max-age": "60",
            }
        assert "connection" not in reply.headers  # kept for the request itself


async def test_a_preflight_of_another_page_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        for origin in (OTHER, "null", PAGE + ".evil.com", PAGE.upper(), "http://app.example.com"):
            reply = await client.options(url(gateway, "web"), headers={"origin": origin, **ASKED})
            assert reply.status_code == 403
            assert allowed(reply) == {}
            assert f"requests of pages from {origin!r} are not allowed here (`cors` of the listener)" in reply.text


async def test_every_reply_tells_the_page_that_it_may_be_read(tmp_path: Path) -> None:
    key = {"origin": PAGE, "x-api-key": KEY}
    async with running(tmp_path) as (gateway, client):
        replies = [
            await client.post(url(gateway, "web"), json=BODY, headers=key),
            await client.post(url(gateway, "web"), json=BODY, headers={"origin": PAGE}),  # 401
            await client.get(url(gateway, "web", "/nowhere"), headers=key),
            await client.post(url(gateway, "web"), content=b"{", headers=key),
            await client.post(url(gateway, "web"), content=b"{}", headers={**key, "content-encoding": "br"}),
            await client.post(url(gateway, "web", "/v2/models/count/generate_stream"), json={"n": 2}, headers=key),
        ]
        assert [each.status_code for each in replies][:5] == [200, 401, 404, 400, 415]
        for each in replies:
            assert allowed(each) == {"allow-origin": PAGE, "allow-credentials": "true"}
            assert each.headers["vary"] == "Origin"
            shown = each.headers["access-control-expose-headers"].split(", ")
            assert {"inference-header-content-length", "gateway-route", "retry-after", "x-request-id"} <= set(shown)


async def test_replies_to_others_say_nothing_and_are_not_kept_for_pages(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        for headers in ({}, {"origin": OTHER}):
            reply = await client.post(url(gateway, "web"), json=BODY, headers={"x-api-key": KEY, **headers})
            assert (reply.status_code, allowed(reply), reply.headers["vary"]) == (200, {}, "Origin")


async def test_a_server_behind_a_path_that_passes_unchanged_has_no_say(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        start = b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nAccess-Control-Max-Age: 1\r\nX-Own: a"
        writer.write(http(start, b"{}"))
        writer.close()

    async with listening(answer) as port, running(tmp_path, own=port) as (gateway, client):
        reply = await client.get(url(gateway, "web", "/own"), headers={"origin": PAGE, "x-api-key": KEY})
        assert (reply.status_code, reply.headers["x-own"]) == (200, "a")
        assert allowed(reply) == {"allow-origin": PAGE, "allow-credentials": "true"}


async def test_a_star_lets_any_page_in_without_credentials(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        reply = await client.post(url(gateway, "public"), json=BODY, headers={"origin": "null"})
        assert (reply.status_code, allowed(reply), "vary" in reply.headers) == (200, {"allow-origin": "*"}, False)
        reply = await client.options(url(gateway, "public"), headers={"origin": OTHER, **ASKED})
        assert (reply.status_code, allowed(reply)["allow-origin"]) == (204, "*")
        assert "allow-credentials" not in allowed(reply)
        too_large = {"origin": OTHER, "x-large": "a" * 3000}
        assert (await client.get(url(gateway, "public"), headers=too_large)).status_code == 431
        assert allowed(await client.post(url(gateway, "public"), json=BODY)) == {}


async def test_without_the_key_nothing_is_said(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        reply = await client.post(url(gateway, "without"), json=BODY, headers={"origin": PAGE})
        assert (reply.status_code, allowed(reply), "vary" in reply.headers) == (200, {}, False)
        reply = await client.options(url(gateway, "without"), headers={"origin": PAGE, **ASKED})
        assert (reply.status_code, allowed(reply)) == (405, {})


async def test_an_options_request_that_is_no_preflight_is_one_like_any_other(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        reply = await client.options(url(gateway, "web"), headers={"origin": PAGE})
        assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


async def test_a_reload_changes_it_on_open_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as (gateway, client):
        changed = config_of(text(tmp_path, f'cors: {{origins: ["{OTHER}"]}}'))
        await client.options(url(gateway, "web"), headers={"origin": PAGE, **ASKED})
        await gateway.reload(changed.model_copy(update={"reference": gateway.state.config.reference}))
        reply = await client.options(url(gateway, "web"), headers={"origin": OTHER, **ASKED})
        assert (reply.status_code, allowed(reply)["max-age"]) == (204, "600")
        assert (await client.options(url(gateway, "web"), headers={"origin": PAGE, **ASKED})).status_code == 403


LISTENER = 'listeners: [{name: a, bind: "127.0.0.1:1", protocols: [%s], cors: {%s}%s}]\nauth: {keys: {file: /k}}'


FOR_HTTP = "`cors` is for HTTP, but no protocol of the listener uses HTTP; remove the key"
AN_ORIGIN = "expected an origin as browsers send it, such as https://app"


@pytest.mark.parametrize(
    ("protocols", "cors", "more", "error"),
    [
        ("v2-rest", "", "", "the key 'origins' is missing"),
        ("v2-rest", "origins: []", "", "must not be empty"),
        ("v2-rest", 'origins: ["https://a.com/"]', "", AN_ORIGIN),
        ("v2-rest", 'origins: ["*.example.com"]', "", AN_ORIGIN),
        ("v2-rest", 'origins: ["null"]', "", AN_ORIGIN),
        (
            "v2-rest",
            'origins: ["https://a.com:443"]',
            "",
            "browsers leave out the default port; expected https://a.com,",
        ),
        ("v2-rest", 'origins: ["https://a.com", "https://a.com"]', "", "'https://a.com' is listed twice"),
        ("v2-rest", 'origins: ["*"], headers: ["*"]', "", "expected the names of headers, such as authorization"),
        ("v2-rest", 'origins: ["*"], max_age: 1.5', "", "expected a whole number"),
        ("v2-rest", 'origins: ["*"]', ", auth: {}", "clients of this listener have credentials (`auth`, or `tls.clie"),
        ("v2-grpc", 'origins: ["*"]', "", FOR_HTTP),
        ("mip", 'origins: ["*"]', ", model: m", FOR_HTTP),
    ],
)
def test_what_cannot_be_is_refused(protocols: str, cors: str, more: str, error: str) -> None:
    with pytest.raises(ConfigError) as failed:
        config_of(LISTENER % (protocols, cors, more))
    assert error in str(failed.value)


# In a browser.

SCRIPT = """async ([url, key, credentials]) => {
    const body = JSON.stringify({inputs: [{name: "x", datatype: "FP64", shape: [1, 3], data: [1, 2, 3]}]});
    const headers = {"content-type": "application/json", ...(key ? {authorization: `Bearer ${key}`} : {})};
    try {
        const reply = await fetch(url, {method: "POST", body, headers, ...(credentials ? {credentials} : {})});
        const text = await reply.text();
        return [reply.status, text, reply.headers.get("gateway-route")];
    } catch (error) {
        return [0, String(error), null];
    }
}"""


@contextmanager
def page_server() -> Iterator[str]:
    """A web server with a page of its own origin; its address."""

    class Pages(QuietHandler):
        def do_GET(self) -> None:
            self.send_json({})

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Pages)) as address:
        yield f"http://{address}"


@pytest.mark.real(CHROMIUM)
def test_a_page_in_chromium_calls_a_model_and_others_cannot(tmp_path: Path) -> None:
    port, public = free_port(), free_port()
    with page_server() as page, page_server() as other, chromium() as browser:
        written = text(tmp_path, f'cors: {{origins: ["{page}"]}}')
        for each in (port, public):
            written = written.replace("127.0.0.1:0", f"127.0.0.1:{each}", 1)
        (tmp_path / "gateway.yaml").write_text(written)
        with started("serve", str(tmp_path / "gateway.yaml"), stderr=DEVNULL):
            model = f"http://127.0.0.1:{port}/v2/models/double/infer"

            def called(opened: Page, *arguments: Any) -> Any:
                return opened.evaluate(SCRIPT, list(arguments))

            mine, theirs = browser.new_page(), browser.new_page()
            mine.goto(page)
            theirs.goto(other)
            status, reply, route = called(mine, model, KEY, "")
            assert (status, '"data":[2.0,4.0,6.0]' in reply, route) == (200, True, "*")
            assert called(mine, model, KEY, "include")[0] == 200
            status, reply, _ = called(mine, model, "", "")  # the page reads why, too
            assert (status, "key" in reply) == (401, True)
            assert called(theirs, model, KEY, "")[:2] == [0, "TypeError: Failed to fetch"]
            public_model = model.replace(str(port), str(public))
            assert called(theirs, public_model, "", "")[0] == 200
            assert called(theirs, public_model, "", "include")[:2] == [0, "TypeError: Failed to fetch"]
