"""Protocols of several transports at one address: each client is served as at an address of its own."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import grpc.aio
import pytest

from gateway.assembly.listening import exchanges, shared
from gateway.assembly.reference import reference_router
from gateway.assembly.registry import protocols
from gateway.core.address import Address
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.transport import ListenerCounts
from gateway.reference.loading import find
from gateway.runtime.app.replacing import ReloadError
from gateway.transports.grpc import Listener as GrpcListener
from gateway.transports.http import Listener as HttpListener
from gateway.transports.shared_listener import SharedListener
from gateway.transports.tcp import Listener as TcpListener
from gateway.transports.timeouts import Timeouts
from tests.core.http2 import by_hand as http2
from tests.limits import GENEROUS, settle, until
from tests.paused_server import ask, port_of
from tests.running_gateway import config_of, reference, running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.conftest import authority as authority
from tests.tls.conftest import files as files
from tests.tls.running import at, check_density, near, reply
from tests.transports.conftest import LOOPS as LOOPS
from tests.transports.http.server.toy_listener import send_byte_by_byte

MIP = bytes.fromhex("0009000000000000")
"""A kind of message that nobody has: the reply is an error, whatever the model's server does."""
GET = b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
HELLO = http2.PREFACE + http2.settings()
BRPC = b"PRPC" + struct.pack(">LL", 4, 4) + bytes.fromhex("0a021a00")
"""A frame whose RpcMeta names no service and no method."""

SHARED = """
listeners:
  - {name: all, bind: "127.0.0.1:0", protocols: [PROTOCOLS], model: m MORE}
backends: {lab: {protocol: v2-rest, endpoints: ["SERVER"]}}
routes: [{match: {model: "*"}, backend: lab, rewrite: {model: posterior}}]
"""
FORMS = [name for name in protocols() if name != "v1-rest"]
"""All wire forms but one: where clients name no model, it has the same root as GraphPipe."""


def shared_text(server: str = "127.0.0.1:1", more: str = "", names: str = ", ".join(FORMS)) -> str:
    return SHARED.replace("SERVER", server).replace("MORE", more).replace("PROTOCOLS", names)


@asynccontextmanager
async def connected(
    port: int, data: bytes = b"", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    writer.write(data)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def first(reader: asyncio.StreamReader) -> str:
    """What the gateway speaks, by what it sends."""
    data = await reader.readexactly(8)
    if data.startswith(b"HTTP/1.1"):
        return "http"
    if data.startswith(b"PRPC"):
        return "brpc"
    if data[3] == 4:
        return "grpc"  # SETTINGS
    assert data.startswith(b"\0\0"), data
    return "mip"  # an error


async def answered(port: int, data: bytes) -> str:
    async with connected(port, data) as (reader, _):
        return await first(reader)


async def until_open(listener: ListenerCounts, count: int) -> None:
    """Wait until so many connections are open: the gateway notices that a client has gone a little later."""
    await until(lambda: listener.open_connections == count, 0)


SPOKEN = {GET: "http", MIP: "mip", HELLO: "grpc", BRPC: "brpc"}


async def test_every_wire_form_is_served_at_one_port() -> None:
    async with (
        reference("v2-rest", "posterior") as server,
        running_gateway(shared_text(server)) as far,
        running_gateway(near(dict.fromkeys(FORMS, at(far, "all")))) as gateway,
    ):
        for name in FORMS:
            for _ in range(2):  # the second call may use the connection of the first one
                await check_density(gateway, name)
        listener = far.state.listeners["all"]
        assert listener.refused_connections == listener.unrecognised_connections == 0


async def test_every_wire_form_over_tls_with_certificates_of_clients(authority: Authority, files: Files) -> None:
    """Connectors over HTTP and gRPC announce theirs (ALPN), those of byte streams nothing. All are one principal."""
    own = authority.issue(files.key.parent, "gateway.lab", stem="own")
    listener = f", tls: {files.asking('required')}, auth: {{accept: [certificates]}}"
    access = """
auth: {certificates: [{identity: "*.lab", principal: "certified:*"}]}
principals: {"certified:gateway.lab": {permissions: [use]}}
"""
    async with (
        reference("v2-rest", "posterior") as server,
        running_gateway(shared_text(server, listener) + access) as far,
        running_gateway(near(dict.fromkeys(FORMS, at(far, "all")), own.shown_to(files))) as gateway,
    ):
        for name in FORMS:
            await check_density(gateway, name)


@pytest.mark.parametrize("begun", SPOKEN)
async def test_first_bytes_one_at_a_time(begun: bytes) -> None:
    async with running_gateway(shared_text()) as gateway, connected(at(gateway, "all")) as (reader, writer):
        await send_byte_by_byte(writer, begun)
        assert await first(reader) == SPOKEN[begun]


@pytest.mark.parametrize("begun", SPOKEN)
async def test_first_bytes_over_tls_without_alpn(begun: bytes, files: Files) -> None:
    async with (
        running_gateway(shared_text(more=f", tls: {files.server}")) as gateway,
        connected(at(gateway, "all"), begun, files.trusting()) as (reader, _),
    ):
        assert await first(reader) == SPOKEN[begun]


@pytest.mark.parametrize(
    ("offered", "agreed", "spoken"),
    [
        (["h2"], "h2", "grpc"),
        (["http/1.1"], "http/1.1", "http"),
        (["h2", "http/1.1"], "http/1.1", "http"),
        (["spdy/3"], None, "mip"),
    ],
)
async def test_alpn_tells_before_any_byte(offered: list[str], agreed: str | None, spoken: str, files: Files) -> None:
    context = files.trusting()
    context.set_alpn_protocols(offered)
    async with (
        running_gateway(shared_text(more=f", tls: {files.server}")) as gateway,
        connected(at(gateway, "all"), tls=context) as (reader, writer),
    ):
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == agreed
        # HTTP/2's server speaks though its client has not
        writer.write({"mip": MIP, "http": GET, "grpc": b""}[spoken])
        assert await first(reader) == spoken


async def test_what_is_no_protocol_is_refused_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running_gateway(shared_text(names="v2-grpc, mip")) as gateway:
        port = at(gateway, "all")
        text = await ask(port, b"GET / HTTP/1.1\r\n\r\n")
        assert text.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert text.endswith(b"\r\n\r\nthis port speaks v2-grpc, mip\n")
        assert await ask(port, http2.PREFACE[:20] + b"XXXX") != b""
        assert await ask(port, b"\x05\x01\x00") == b""
        assert await ask(port, b"\x16\x03\x01\x02\x00\x01\x00") == b""
        assert gateway.state.listeners["all"].unrecognised_connections == 4
        await until_open(gateway.state.listeners["all"], 0)
        assert await answered(port, MIP) == "mip"
    lines = [each.getMessage() for each in caplog.records if each.name.endswith("listener_connections")]
    refused, handshake = [line.partition("127.0.0.1:") for line in lines]
    assert (refused[0], handshake[0]) == ("listener 'all' refuses a connection of ", "listener 'all': TLS with ")
    assert refused[2].endswith(
        ": its first bytes are b'GET / HTTP/1.1\\r\\n\\r\\n', unknown to the protocols of this port"
    )


async def test_a_client_of_no_protocol_that_goes_on_sending_is_not_reset() -> None:
    async with (
        running_gateway(shared_text()) as gateway,
        connected(at(gateway, "all"), b"\xff" * 8) as (reader, writer),
    ):
        assert await reader.read() == b""
        for _ in range(3):
            writer.write(bytes(1000))
            await writer.drain()
            await settle()
        writer.write_eof()
        await until_open(gateway.state.listeners["all"], 0)
        assert reader.exception() is None


async def test_a_request_behind_the_first_bytes_may_be_large() -> None:
    """More than is received at a time, on every transport."""
    many = b"\0\2\0\0" + struct.pack(">LBBH", 300_012, 1, 0, 1) + struct.pack(">LL", 1, 300_000) + b"x" * 300_000
    async with running_gateway(shared_text()) as gateway:
        port = at(gateway, "all")
        body = b"x" * 300_000
        refused = await ask(port, b"POST /v2/models/m/infer HTTP/1.1\r\nContent-Length: 300000\r\n\r\n" + body)
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert await answered(port, many) == "mip"
        async with connected(port, HELLO + http2.frame(http2.PING, 0, 0, b"abcdefgh") * 2) as (reader, _):
            assert await first(reader) == "grpc"


async def test_one_too_many_is_told_so_by_what_it_speaks() -> None:
    async with running_gateway(shared_text(more=", limits: {connections: 1}")) as gateway:
        port = at(gateway, "all")
        async with connected(port) as (held, _):
            assert (await ask(port, GET)).startswith(b"HTTP/1.1 503 ")
            assert b"too many connections open" in await ask(port, MIP)
            assert b"too many connections open" in await ask(port, HELLO)
            assert gateway.state.listeners["all"].refused_connections == 3
            assert gateway.state.listeners["all"].open_connections == 1
            assert held.at_eof() is False


async def test_one_too_many_that_stops_after_a_byte_is_closed_as_soon_as_a_silent_one() -> None:
    timeouts = Timeouts(head=1e6, idle=1e6, grace=0.05)
    async with listening(timeouts, Limits(connections=1)) as listener:
        port = port_of(listener.address)
        async with connected(port), connected(port, b"P") as (refused, _):
            assert b" 408 " in await refused.read()


async def test_a_drain_closes_silent_connections_and_answers_the_others() -> None:
    async with running_gateway(shared_text()) as gateway:
        port = at(gateway, "all")
        async with connected(port) as (silent, _), connected(port) as (late, writer):
            await answered(port, GET)  # the others are accepted, too
            draining = asyncio.ensure_future(gateway.drain(GENEROUS))
            await asyncio.sleep(0)
            writer.write(MIP)
            assert await first(late) == "mip"
            assert await silent.read() == b""
            await draining


async def test_a_reload_changes_the_protocols_of_each_transport_on_open_connections() -> None:
    before = shared_text(names="v2-rest, v2-grpc, mip")
    async with running_gateway(before) as gateway:
        port = at(gateway, "all")
        listener = gateway.state.listeners["all"]
        async with connected(port) as (silent, writer), connected(port) as (http, asking):
            asking.write(GET.replace(b"Connection: close\r\n", b""))
            assert (await reply(http))[0] == 200
            asking.write(b"GET /v1/models/m HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reply(http))[0] == 404
            await gateway.reload(config_of(before.replace("[v2-rest,", "[v2-rest, v1-rest,")))
            assert gateway.state.listeners["all"] is listener
            asking.write(b"GET /v1/models/m HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await reply(http))[0] != 404
            writer.write(MIP)
            assert await first(silent) == "mip"
            more = "v2-rest, v2-grpc, mip, grps-brpc"
            for other in ("v2-rest, v2-grpc", "v2-rest, v2-grpc, grps-brpc", more, "v2-rest"):
                with pytest.raises(ReloadError, match="at the same address while the gateway runs"):
                    await gateway.reload(config_of(before.replace("[v2-rest, v2-grpc, mip", f"[{other}")))


async def test_a_port_of_one_byte_stream_does_not_become_a_shared_one_by_a_reload() -> None:
    async with running_gateway(shared_text(names="mip")) as gateway:
        told = "its protocol cannot change from mip to mip, grps-brpc at the same address"
        with pytest.raises(ReloadError, match=told):
            await gateway.reload(config_of(shared_text(names="mip, grps-brpc")))


async def test_a_port_of_one_transport_looks_at_no_first_bytes() -> None:
    """Its listener is the transport's own, and so is each connection from the beginning."""
    kinds = {"v2-rest, umbridge": HttpListener, "v2-grpc, grps-grpc": GrpcListener, "mip": TcpListener}
    for names, kind in kinds.items():
        async with running_gateway(shared_text(names=names)) as gateway:
            assert type(gateway.state.listeners["all"]) is kind


async def test_health_and_reflection_of_grpc() -> None:
    async with (
        running_gateway(shared_text()) as gateway,
        grpc.aio.insecure_channel(f"127.0.0.1:{at(gateway, 'all')}") as channel,
    ):
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await health(b"") == b"\x08\x02"  # NOT_SERVING: the backend does not answer
        reflection = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        answer = await reflection(iter([b"\x3a\x00"])).read()
        assert b"inference.GRPCInferenceService" in answer
        assert b"grps.protos.v1.GrpsService" in answer


# The listener by itself, with times of its own.

ROWS = [(protocols()[name], "") for name in ("v2-rest", "v2-grpc", "mip")]


@asynccontextmanager
async def listening(timeouts: Timeouts, limits: Limits = Limits()) -> AsyncIterator[SharedListener]:  # noqa: B008
    settings = ListenerSettings("all", limits, "m")
    router = reference_router([find("double")], protocols()["v2-rest"], asyncio.get_running_loop().time)
    listener = shared(settings, ROWS, exchanges(settings, router.select), timeouts)
    await listener.start(Address("127.0.0.1", 0))
    try:
        async with asyncio.timeout(GENEROUS):
            yield listener
    finally:
        await listener.drain(0)


async def test_a_client_that_says_nothing_is_closed() -> None:
    async with listening(Timeouts(idle=0.05)) as listener, connected(port_of(listener.address)) as (reader, _):
        assert await reader.read() == b""
        await until_open(listener, 0)
        assert listener.unrecognised_connections == 0


@pytest.mark.parametrize("begun", [b"P", b"PR", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"])
async def test_first_bytes_that_do_not_go_on_are_refused(begun: bytes) -> None:
    async with listening(Timeouts(head=0.05)) as listener, connected(port_of(listener.address), begun) as (reader, _):
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert said.endswith(b"\r\n\r\nthe first bytes did not arrive within 0.05 s\n")


THOUSAND = 1000


@pytest.mark.long
async def test_a_thousand_silent_connections_are_bounded() -> None:
    """They count as connections; within the limit others are served, and beyond it told so."""
    limits = Limits(connections=THOUSAND + 1)
    async with listening(Timeouts(idle=GENEROUS), limits) as listener, AsyncExitStack() as held:
        port = port_of(listener.address)
        for _ in range(THOUSAND):
            await held.enter_async_context(connected(port))
        assert await answered(port, MIP) == "mip"
        await until_open(listener, THOUSAND)
        await held.enter_async_context(connected(port))
        assert (await ask(port, GET)).startswith(b"HTTP/1.1 503 ")


@pytest.mark.long
async def test_a_thousand_silent_connections_are_closed() -> None:
    async with AsyncExitStack() as held, listening(Timeouts(idle=0.5)) as listener:
        port = port_of(listener.address)
        readers = [(await held.enter_async_context(connected(port)))[0] for _ in range(THOUSAND)]
        assert [await each.read() for each in readers] == [b""] * THOUSAND
        await until_open(listener, 0)
        assert await answered(port, MIP) == "mip"


@pytest.mark.parametrize(("names", "kind"), [("v2-rest, v2-grpc", http2.RST_STREAM), ("mip, v2-grpc", http2.HEADERS)])
async def test_a_request_over_http_2_that_is_no_grpc_is_sent_to_http_1_1_if_that_is_served(
    names: str, kind: int
) -> None:
    """RFC 9113 section 7: HTTP_1_1_REQUIRED, 13. Without HTTP at the address the reply is 405."""
    fields = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/v2"), (b":authority", b"a"))
    sent = HELLO + http2.head(*fields, end=True)
    async with running_gateway(shared_text(names=names)) as app, connected(at(app, "all"), sent) as (reader, writer):
        frame = await http2.Peer(reader, writer).next(http2.RST_STREAM, http2.HEADERS)
    assert frame[0] == kind
    assert kind == http2.HEADERS or frame == (http2.RST_STREAM, 0, 1, (13).to_bytes(4))
