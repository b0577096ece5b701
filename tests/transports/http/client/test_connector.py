import asyncio
import gc
import gzip
import re
import socket
import ssl
import weakref
import zlib
from pathlib import Path
from typing import Any

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.transports.http.client import connector as client_connector
from gateway.transports.http.client.connector import HttpConnector
from gateway.transports.http.client.reply import ReplyReader
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.timeouts import HttpEndpointTimeouts
from gateway.transports.tls import ClientTls
from tests.interop.processes import free_port
from tests.transports.http.client.endpoint import GET, OK, Endpoint, answering, connecting, connector_to, post, serving

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
"""Self-signed, for localhost and 127.0.0.1, with its key."""
TRUSTING = ClientTls(lambda: ssl.create_default_context(cafile=CERTIFICATE))


async def failure(address: str, connect_timeout: float = 5.0) -> TransportError:
    async with connecting(address, timeouts=HttpEndpointTimeouts(connect_timeout)) as connector:
        with pytest.raises(TransportError) as caught:
            await connector.exchange(GET)
    return caught.value


def assert_unreachable(error: TransportError, text: str) -> None:
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)
    assert re.fullmatch(text, error.message)


def test_a_bad_address_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="bad address 'nowhere': it has no port"):
        HttpConnector("nowhere", connection_per_call=False, limits=Limits())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_nothing_listens_at_the_address(host: str) -> None:
    assert_unreachable(await failure(f"{host}:{free_port()}"), "connection refused")


async def test_the_port_is_named_where_the_address_may_have_none() -> None:
    assert_unreachable(await failure("http://127.9.8.7"), "connection refused at port 80")


async def test_an_unknown_host() -> None:
    error = await failure("host.invalid:80")  # RFC 6761: never resolves
    assert_unreachable(error, "host name 'host.invalid' not resolved: .*")


async def test_connecting_times_out() -> None:
    """The backlog is full, so the system answers no further SYN."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        error = await failure(f"127.0.0.1:{server.getsockname()[1]}", connect_timeout=0.05)
        for filler in fillers:
            filler.close()
    assert_unreachable(error, "no connection within 0.05 s")


async def test_back_after_down() -> None:
    endpoint = Endpoint([OK])
    async with serving(endpoint.handle) as port:
        connector = HttpConnector(f"127.0.0.1:{port}", connection_per_call=False, limits=Limits())
        assert (await connector.exchange(GET)).body == b"ok"
    assert_unreachable(await failure(f"127.0.0.1:{port}"), "connection refused")
    with pytest.raises(TransportError, match="connection refused"):
        await connector.exchange(GET)
    async with serving(endpoint.handle, port=port):
        assert (await connector.exchange(GET)).body == b"ok"
        await connector.close()


async def test_a_prefix_goes_before_the_path() -> None:
    endpoint = Endpoint([OK])
    async with serving(endpoint.handle) as port, connecting(f"http://127.0.0.1:{port}/base/") as connector:
        await connector.exchange(GET)
    assert endpoint.requests[0][0].startswith(b"GET /base/v2 HTTP/1.1\r\n")


async def test_the_deadline_goes_with_the_request_and_after_it_nothing_is_sent() -> None:
    now = asyncio.get_running_loop().time()
    async with answering(OK) as (endpoint, connector):
        await connector.exchange(post(b"", deadline=now + 1000))
        with pytest.raises(TransportError, match="deadline passed") as caught:
            await connector.exchange(post(b"", deadline=now))
    (seconds,) = re.findall(rb"Request-Timeout: (\d+\.\d+)\r\n", endpoint.requests[0][0])
    assert 900 < float(seconds) <= 1000
    assert (caught.value.status, caught.value.sent) == (Status.DEADLINE_EXCEEDED, False)
    assert len(endpoint.requests) == 1


def coded(coding: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (coding, len(body), body)


LONG = b"0123456789" * 100_000
CODED = [
    (coded(b"gzip", gzip.compress(b"ok", mtime=0)), b"ok"),
    (coded(b"GZIP", gzip.compress(b"ok", mtime=0)), b"ok"),
    (coded(b"deflate", zlib.compress(b"ok")), b"ok"),
    (coded(b"gzip", gzip.compress(LONG, mtime=0)), LONG),
    (coded(b"identity", b"ok"), b"ok"),
    (coded(b"gzip", b""), b""),
]
BADLY_CODED = [
    (coded(b"gzip", b"not gzip"), "not gzip data"),
    (coded(b"gzip", gzip.compress(b"ok", mtime=0)[:-3]), "ends before"),
    (coded(b"br", b"x"), "Content-Encoding 'br', expected one of gzip"),
    (coded(b"gzip, gzip", b"x"), "Content-Encoding 'gzip, gzip', expected one of"),
    (coded(b"gzip", gzip.compress(bytes(2**21 + 1), mtime=0)), r"inflates to more than"),
]


@pytest.mark.parametrize(("reply", "body"), CODED)
async def test_a_compressed_reply_is_inflated(reply: bytes, body: bytes) -> None:
    async with answering(reply) as (_, connector):
        assert (await connector.exchange(GET)).body == body


@pytest.mark.parametrize(("reply", "why"), BADLY_CODED)
async def test_a_reply_that_does_not_inflate_within_the_limit_is_refused(reply: bytes, why: str) -> None:
    async with answering(reply, limits=Limits(message=2**21)) as (_, connector):
        with pytest.raises(TransportError, match=why) as caught:
            await connector.exchange(GET)
    error = caught.value
    assert (error.status, error.reason, error.sent) == (Status.INTERNAL, Reason.INVALID_OUTPUT, True)


NO_LENGTH = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n", NO_LENGTH])
async def test_a_reply_for_which_there_is_no_memory_is_refused(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_MEMORY, "limit", 0)
    async with answering(head + bytes(3_000_000), close_after_reply=True) as (_, connector):
        with pytest.raises(TransportError, match=r"^reply refused: .*limits\.memory") as caught:
            await connector.exchange(GET)
    assert (caught.value.status, caught.value.reason) == (Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
    assert (caught.value.sent, caught.value.answered) == (True, True)


async def test_an_inflated_reply_no_longer_claims_to_be_compressed() -> None:
    async with answering(CODED[0][0]) as (_, connector):
        assert list((await connector.exchange(GET)).headers) == []


def certified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


async def test_https_verifies_the_certificate() -> None:
    endpoint = Endpoint([OK])
    async with serving(endpoint.handle, ssl=certified()) as port:
        async with connecting(f"https://localhost:{port}", tls=TRUSTING) as connector:
            for _ in range(3):
                assert (await connector.exchange(GET)).body == b"ok"
        assert endpoint.connections == 1
        error = await failure(f"https://localhost:{port}")
        assert_unreachable(error, "TLS: its certificate is self-signed; check `ca`")


async def test_https_to_a_server_without_tls() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with serving(handle) as port:
        assert_unreachable(await failure(f"https://127.0.0.1:{port}"), "TLS: it does not speak TLS")


async def test_with_an_ip_the_name_stays_in_the_host_header() -> None:
    endpoint = Endpoint([OK])
    async with (
        serving(endpoint.handle) as port,
        connecting(f"http://models.invalid:{port}/prefix", ip="127.0.0.1") as connector,
    ):
        assert (await connector.exchange(GET)).body == b"ok"
    assert endpoint.requests[0][0].startswith(b"GET /prefix/")
    assert f"Host: models.invalid:{port}\r\n".encode() in endpoint.requests[0][0]


async def test_with_an_ip_the_name_is_what_tls_asks_for() -> None:
    asked: list[str | None] = []
    context = certified()
    context.sni_callback = lambda _, name, __: asked.append(name)
    async with serving(Endpoint([OK]).handle, ssl=context) as port:
        async with connecting(f"https://localhost:{port}", tls=TRUSTING, ip="127.0.0.1") as connector:
            assert (await connector.exchange(GET)).body == b"ok"
        async with connecting(f"https://models.invalid:{port}", tls=TRUSTING, ip="127.0.0.1") as connector:
            with pytest.raises(TransportError, match="certificate"):
                await connector.exchange(GET)
    assert asked == ["localhost", "models.invalid"]


_HEAD, _CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n%b\r\n" % (b"x" * 2**16)


@pytest.mark.parametrize(
    ("reply", "deadline"),
    [(_HEAD + _CHUNK * 5, None), (_HEAD + _CHUNK + b"no chunk", None), (_HEAD + _CHUNK * 3, 0.2)],
    ids=["too large", "malformed", "endless"],
)
async def test_a_reply_that_is_given_up_is_forgotten_at_once(reply: bytes, deadline: float | None) -> None:
    """And not with the next collection of garbage: a server could fill the memory until then."""
    answers, kept = asyncio.Event(), []

    class Kept(ReplyReader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            kept.append(weakref.ref(self))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await answers.wait()

    gc.collect()
    before = PROCESS_MEMORY.used
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_connector, "ReplyReader", Kept)
            async with connector_to(handle, Limits(message=2**18)) as connector:
                with pytest.raises((TransportError, TimeoutError)):
                    async with asyncio.timeout(deadline):
                        await connector.exchange(GET)
                await asyncio.sleep(0)  # callbacks that were scheduled have ended
                assert [each() for each in kept] == [None]
                assert PROCESS_MEMORY.used == before
                answers.set()
    finally:
        gc.enable()
