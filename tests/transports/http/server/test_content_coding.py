"""Content codings, both ways, through a listener."""

import gzip
import zlib
from collections.abc import Callable

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import Exchange
from tests.transports.http.server.toy_listener import TOO_LARGE, client, echo, get, ok, post, read_reply, send_whole

MIB = 2**20
LIMITS = Limits(message=2 * MIB, inflation=2000)
BAD, ZIPPED = "400 Bad Request", gzip.compress(b"a", mtime=0)
UNDO: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


async def echo_later(message: Message, protocol: Protocol) -> Message:
    return echo(message, protocol)


# Also where the exchange is waited for. 300 KiB and more are inflated and deflated in a thread.
at_once_and_later = pytest.mark.parametrize("exchange", [echo, echo_later])


@at_once_and_later
@pytest.mark.parametrize("size", [0, 1, 1023, 300 * 2**10, 2 * MIB])
@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("identity", bytes),
        ("gzip", lambda size: gzip.compress(bytes(size), mtime=0)),
        ("x-gzip", lambda size: gzip.compress(bytes(size), mtime=0)),
        ("GZip", lambda size: gzip.compress(bytes(size), mtime=0)),
        ("deflate", lambda size: zlib.compress(bytes(size))),
    ],
)
async def test_compressed_requests_are_inflated(
    coding: str, body: Callable[[int], bytes], size: int, exchange: Exchange
) -> None:
    async with client(exchange, limits=LIMITS) as (reader, writer):
        await send_whole(writer, post(body(size), f"Content-Encoding: {coding}"))
        assert (await read_reply(reader)).endswith(b"\r\n\r\n" + bytes(size))


@pytest.mark.parametrize(
    ("body", "coding", "status", "text"),
    [
        (gzip.compress(bytes(2 * MIB + 1), mtime=0), "gzip", TOO_LARGE, "the body of "),
        (b"{}", "gzip", BAD, "the body is not gzip data"),
        (b"", "gzip", BAD, "the body ends before its gzip data does"),
        (ZIPPED + b"b", "gzip", BAD, "bytes behind the end of the body's gzip data"),
        (zlib.compress(b"abc")[2:-4], "deflate", BAD, "the body is not deflate data"),
        (bytes(300 * 2**10), "deflate", BAD, "the body is not deflate data"),
        (ZIPPED, "gzip, gzip", "415 Unsupported Media Type", "Content-Encoding 'gzip, gzip' is not "),
    ],
)
async def test_a_body_that_cannot_be_inflated_is_refused_and_the_connection_kept(
    body: bytes, coding: str, status: str, text: str
) -> None:
    async with client(limits=LIMITS) as (reader, writer):
        await send_whole(writer, post(body, f"Content-Encoding: {coding}"))
        said = await read_reply(reader)
        assert said.startswith(f"HTTP/1.1 {status}\r\n".encode())
        assert f"\r\n\r\ntoy: {text}".encode() in said
        assert b"Connection: close" not in said
        await send_whole(writer, post(b"on"))
        assert await read_reply(reader) == ok("POST /echo [on]")


@at_once_and_later
@pytest.mark.parametrize("size", [1024, 300 * 2**10])
@pytest.mark.parametrize(("accepted", "coding"), [("gzip", "gzip"), ("X-GZIP", "gzip"), ("deflate", "deflate")])
async def test_replies_are_deflated_for_clients_that_ask_for_exactly_one_coding(
    accepted: str, coding: str, size: int, exchange: Exchange
) -> None:
    async with client(exchange, limits=LIMITS) as (reader, writer):
        for _ in range(2):
            await send_whole(writer, post(bytes(size), f"Accept-Encoding: {accepted}"))
            head, _, body = (await read_reply(reader)).partition(b"\r\n\r\n")
            assert f"Content-Encoding: {coding}".encode() in head.split(b"\r\n")
            assert UNDO[coding](body) == bytes(size)


@pytest.mark.parametrize(
    ("accepted", "size"),
    [
        (["gzip"], 1023),
        (["gzip, deflate"], 5000),  # the default of requests, and of tritonclient with ", br"
        (["gzip, deflate, br"], 5000),
        (["gzip", "deflate"], 5000),
        (["gzip;q=0"], 5000),
        (["identity"], 5000),
        (["br"], 5000),
        (["*"], 5000),
        ([""], 5000),
        ([], 5000),
    ],
)
async def test_all_other_replies_go_as_they_are(accepted: list[str], size: int) -> None:
    async with client(echo, limits=LIMITS) as (reader, writer):
        await send_whole(writer, post(bytes(size), *[f"Accept-Encoding: {names}" for names in accepted]))
        assert await read_reply(reader) == b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


async def test_head_tells_the_length_that_get_has() -> None:
    def long(message: Message, protocol: Protocol) -> Message:
        return Message(status=200, parts=(bytes(5000),))

    async with client(long) as (reader, writer):
        asked = get("/hello", "Accept-Encoding: gzip")
        await send_whole(writer, asked)
        head, _, body = (await read_reply(reader)).partition(b"\r\n\r\n")
        assert f"\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}".encode() in head
        await send_whole(writer, b"HEAD" + asked[3:])
        assert await reader.readuntil(b"\r\n\r\n") == head + b"\r\n\r\n"
