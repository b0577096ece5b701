"""Handshakes of listeners: what clients may do wrong, what they are told, and what is logged."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial

import pytest

from gateway.core.address import Address
from gateway.core.certificates import TlsFiles
from gateway.core.messages import Message
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.tasks import spawn
from gateway.core.transport import EventualReply
from gateway.transports.certificates import server_context
from gateway.transports.http.server.listener import HttpListener
from gateway.transports.listener_connections import ConnectionLimit, Handshakes
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS, until
from tests.paused_server import port_of
from tests.running_gateway import running_gateway
from tests.tls.certificates import Authority, Files
from tests.tls.running import ask, at, connected, reply
from tests.transports.http.server.toy_listener import (
    HELLO,
    LAST,
    TOY,
    exchanges,
    say_back,
    send_byte_by_byte,
    text_reply,
)

SENT_PLAINTEXT = "the client sent plaintext to a TLS port; use https:// or a secure channel"
NO_TLS = "the client began a TLS handshake at a port without TLS"
PLAIN = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: mip, bind: "127.0.0.1:0", protocols: [mip], model: m}
  - {name: brpc, bind: "127.0.0.1:0", protocols: [grps-brpc]}
"""


@asynccontextmanager
async def listening(
    files: Files,
    client: str = "none",
    answer: Callable[..., EventualReply] = say_back,
    limits: Limits = Limits(),  # noqa: B008
    timeouts: Timeouts = Timeouts(),  # noqa: B008
    shared: ConnectionLimit | None = None,
) -> AsyncIterator[HttpListener]:
    """An HTTP listener with TLS."""
    named = TlsFiles(str(files.certificate), str(files.key), str(files.ca))
    context = server_context(named, client, ("http/1.1",))  # type: ignore[arg-type]
    settings = ListenerSettings("secure", limits, tls=lambda: context)
    listener = HttpListener(
        settings, [(TOY, "")], exchanges(answer), timeouts=timeouts, connection_limit=shared or ConnectionLimit(100)
    )
    await listener.start(Address("127.0.0.1", 0))
    try:
        async with asyncio.timeout(GENEROUS):
            yield listener
    finally:
        await listener.drain(0)


def port(listener: HttpListener) -> int:
    return port_of(listener.address)


async def raw(listener: HttpListener, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port(listener))
    writer.write(data)
    return reader, writer


def client_hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


async def test_a_client_that_says_nothing_counts_as_a_connection_and_is_closed(files: Files) -> None:
    brief = Timeouts(handshake=0.05)
    async with listening(files, timeouts=brief, limits=Limits(connections=1)) as listener:
        reader, writer = await raw(listener)
        other, second = await raw(listener)
        assert await other.read() == b""  # one too many: closed at once
        assert listener.refused_connections == 1
        assert await reader.read() == b""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):  # a busy machine's handshake can take 0.05 s too
                assert await ask(port(listener), files.trusting(), HELLO) == (200, b"GET /hello []")
                break
        writer.close()
        second.close()


async def test_a_handshake_that_does_not_go_on_is_closed(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(files, timeouts=Timeouts(handshake=0.05)) as listener:
        for begun in (client_hello(files.trusting())[:20], client_hello(files.trusting())):
            reader, writer = await raw(listener, begun)
            await reader.read()
            writer.close()
    assert "TLS with 127.0.0.1:" in caplog.text
    assert "failed: the handshake did not end within 0.05 s" in caplog.text
    assert len(caplog.records) == 1  # one line a minute


async def test_a_client_may_send_one_byte_at_a_time(files: Files) -> None:
    """Its request comes in one piece with the end of its handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = files.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with listening(files) as listener:
        reader, writer = await raw(listener)
        done = False
        while not done:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
                done = bool(side.write(HELLO))
            await send_byte_by_byte(writer, outgoing.read())
            if not done:
                incoming.write(await reader.read(2**16))
        received = b""
        while not received.endswith(b"[]"):
            try:
                received += side.read(2**16)
            except ssl.SSLWantReadError:
                incoming.write(await reader.read(2**16))
        writer.close()


@pytest.mark.parametrize(
    ("sent", "answer", "why"),
    [
        (HELLO, b"HTTP/1.1 400 Bad Request\r\n", SENT_PLAINTEXT),
        (b"\x00\x01\x02", b"", SENT_PLAINTEXT),
        (b"\x16\x03\x01\x00\x05hello", b"", ""),
    ],
    ids=["http", "bytes", "no hello"],
)
async def test_what_is_no_handshake_is_closed_and_logged(
    files: Files, caplog: pytest.LogCaptureFixture, sent: bytes, answer: bytes, why: str
) -> None:
    async with listening(files) as listener:
        reader, writer = await raw(listener, sent)
        assert (await reader.read()).startswith(answer)
        writer.close()
    assert "listener 'secure': TLS with 127.0.0.1:" in caplog.text
    assert why in caplog.text


@pytest.mark.parametrize("name", ["http", "grpc", "mip", "brpc"])
async def test_a_handshake_at_a_port_without_tls_is_logged_and_told(
    files: Files, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async with running_gateway(PLAIN) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", at(gateway, name))
        writer.write(client_hello(files.trusting()))
        answer = await reader.read()
        writer.close()
    assert f"listener {name!r}: TLS with 127.0.0.1:" in caplog.text
    assert f"{NO_TLS}; use http:// or a plaintext channel" in caplog.text
    assert NO_TLS.encode() in answer


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"])
async def test_versions(files: Files, caplog: pytest.LogCaptureFixture, version: str) -> None:
    context = files.trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns() if version < "TLSv1_2" else nullcontext():
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    async with listening(files) as listener:
        if version >= "TLSv1_2":
            assert (await ask(port(listener), context, HELLO))[0] == 200
            return
        with pytest.raises(OSError):  # noqa: PT011 - its text is the system's
            await ask(port(listener), context, HELLO)
    assert "it does not support TLS 1.2 or newer" in caplog.text


async def test_ciphers_beyond_the_profile_are_refused(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    context = files.trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA")
    async with listening(files) as listener:
        with pytest.raises(OSError):  # noqa: PT011 - its text is the system's
            await ask(port(listener), context, HELLO)
    assert "it does not support any of the ciphers" in caplog.text


@pytest.mark.real("openssl")
async def test_renegotiation_is_refused(files: Files) -> None:
    async with listening(files) as listener:
        command = ["openssl", "s_client", "-connect", listener.address, "-tls1_2", "-legacy_renegotiation"]
        client = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert client.stdin is not None
        client.stdin.write(b"R\n")  # s_client's command to renegotiate
        await client.stdin.drain()
        said, _ = await client.communicate()
        assert b"no renegotiation" in said or b"closed" in said or b"alert" in said
        assert (await ask(port(listener), files.trusting(), HELLO))[0] == 200


@pytest.mark.parametrize("client", ["none", "optional", "required"])
@pytest.mark.parametrize("own", ["none", "good", "of another CA"])
async def test_client_certificates(
    authority: Authority, files: Files, caplog: pytest.LogCaptureFixture, client: str, own: str
) -> None:
    """The identity reaches the request; a client whose certificate is not accepted gets nothing."""
    issuer = Authority() if own == "of another CA" else authority
    certificate = None if own == "none" else issuer.issue(files.key.parent, "worker.lab", stem="own")
    is_refused = (own, client) in {("none", "required"), ("of another CA", "required"), ("of another CA", "optional")}

    def answer(message: Message, _: object) -> Message:
        return text_reply(f"<{message.identity}>")

    async with listening(files, client, answer) as listener:
        if is_refused:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await ask(port(listener), files.trusting(certificate), HELLO)
            why = "it sent no certificate" if own == "none" else "its certificate is signed by an unknown CA"
            assert why in caplog.text
        else:
            expected = b"<worker.lab>" if own == "good" and client != "none" else b"<>"
            assert await ask(port(listener), files.trusting(certificate), HELLO) == (200, expected)


async def test_a_drain_does_not_wait_for_clients_that_say_nothing(files: Files) -> None:
    async with listening(files, timeouts=Timeouts(grace=0.01)) as listener:
        reader, writer = await raw(listener)
        async with connected(port(listener), files.trusting()) as (idle, _):
            assert await listener.drain(GENEROUS) == 0
            assert await idle.read() == b""
        assert await reader.read() == b""
        writer.close()


async def test_a_stop_at_once_closes_clients_that_say_nothing(files: Files) -> None:
    async with listening(files) as listener:
        reader, writer = await raw(listener)
        await until(lambda: listener.open_connections == 1, 0)
        assert await listener.drain(0) == 0
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert listener.open_connections == 0
        writer.close()


async def test_a_last_reply_is_whole_though_tls_cannot_be_half_closed(files: Files) -> None:
    body = b"x" * 2**20
    async with (
        listening(files, answer=lambda *_: text_reply(body.decode())) as listener,
        connected(port(listener), files.trusting()) as (reader, writer),
    ):
        writer.write(LAST)
        assert await reply(reader) == (200, body)
        assert await reader.read() == b""


async def test_many_requests_at_once_are_answered_in_order(files: Files) -> None:
    """They are more than the connection reads ahead."""
    async with listening(files) as listener, connected(port(listener), files.trusting()) as (reader, writer):
        writer.write(b"".join(HELLO.replace(b"/hello", b"/hello?%d" % at) for at in range(5000)))
        for number in range(5000):
            assert await reply(reader) == (200, b"GET /hello?%d []" % number)


async def test_health_and_admin_ports_have_tls(files: Files) -> None:
    text = f"""
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
health: {{bind: "127.0.0.1:0", tls: {files.server}}}
admin: {{bind: "127.0.0.1:0", tls: {files.asking("required")}}}
"""
    async with running_gateway(text) as gateway:
        health, admin = (port_of(gateway.ports.all[name].address) for name in ("health", "admin"))
        request = partial(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n".__mod__)
        assert (await ask(health, files.trusting(), request((b"/readyz", health))))[0] == 200
        status, body = await ask(admin, files.trusting(files), request((b"/status", admin)))
        assert status == 200
        assert str(files.certificate).encode() in body
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(admin, files.trusting(), request((b"/status", admin)))
        _, silent = await asyncio.open_connection("127.0.0.1", admin)
    silent.close()


def test_handshakes_beyond_the_limit_wait_for_their_turn() -> None:
    handshakes, begun = Handshakes(2), list[str]()
    begins = {name: partial(begun.append, name) for name in "abcde"}
    for begin in begins.values():
        handshakes.enter(begin)
    assert begun == ["a", "b"]
    handshakes.leave(begins["c"])
    handshakes.end()
    assert begun == ["a", "b", "d"]
    handshakes.limit = 4
    handshakes.end()
    assert begun == ["a", "b", "d", "e"]


async def test_a_handshake_waits_until_one_that_stalls_is_over(files: Files) -> None:
    context = ssl.create_default_context(cafile=str(files.ca))
    shared = ConnectionLimit(100)
    shared.handshakes.limit = 1
    async with listening(files, shared=shared) as listener:
        _, stalled = await raw(listener, client_hello(context))
        await until(lambda: shared.handshakes.under_way)
        secured = asyncio.open_connection("127.0.0.1", port(listener), ssl=context, server_hostname="localhost")
        waiting = spawn(secured)
        await until(lambda: listener.open_connections >= 2)
        assert (shared.handshakes.under_way, waiting.done()) == (1, False)
        stalled.transport.abort()
        reader, writer = await waiting
        writer.write(HELLO)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert not shared.handshakes.under_way


async def test_clients_whose_time_ends_while_they_wait_for_their_turn_take_no_place(files: Files) -> None:
    """Many clients time out in the same turn of the loop in which the handshake of the first client ends."""
    shared = ConnectionLimit(100)
    shared.handshakes.limit = 1
    async with listening(files, timeouts=Timeouts(handshake=0.05), shared=shared) as listener:
        hello = client_hello(files.trusting())
        clients = [await raw(listener, hello) for _ in range(30)]
        for reader, writer in clients:
            with suppress(ConnectionResetError):
                await reader.read()
            writer.close()
        await until(lambda: not shared.handshakes.under_way)
