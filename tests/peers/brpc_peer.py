"""A baidu_std server with the habits of Apache brpc's C++ one under grps, and on request with worse.

Written from observations of the original's wire, and independent of the gateway. Its habits:

- what is not understood is answered with an error code; the connection is closed for a wrong magic, a body over
  64 MiB, a garbage meta and a request without its names; a meta larger than the body is waited on for ever
- grps' own errors are successes with a FAILURE inside; `PredictByHttp` is never answered
- the service's bare name will do; whatever is not gzip under gzip's number is an empty message
- `reorder=n` answers n requests at a time, the last first; a pause ends the waiting

    with serve(methods, reorder=3) as server:
        call(server.address)
"""

from __future__ import annotations

import select
import socket
import socketserver
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tests.peers import protobuf
from tests.peers.brpc_frames import (
    COMPRESS,
    CRC32C,
    DECOMPRESS,
    GZIP,
    HEADER,
    MAGIC,
    NONE,
    SNAPPY,
    STREAM_MAGIC,
    Broken,
    Frame,
    checksum,
    cut,
    pack,
    read_meta,
    write_frame,
)
from tests.peers.grps_json import load, read
from tests.peers.grps_messages import decode, encode
from tests.peers.protobuf import Document

SERVICE = "grps.protos.v1.GrpsBrpcService"
MESSAGE = "grps.protos.v1.GrpsMessage"
SILENT = "PredictByHttp"
ENOSERVICE, ENOMETHOD, EREQUEST = 1001, 1002, 1003
JSON_PAYLOAD = 1
PAUSE = 0.02
BOMB = 128 << 20
RESET_SIZE = 58

Methods = Mapping[str, Callable[[Document], Document]]


class Failed(Exception):  # noqa: N818 - it is the answer to a request
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class Habits:
    reorder: int = 1
    """So many requests are waited for, and answered in reverse."""
    compress: int = NONE
    """How replies are compressed; the original never does."""
    attachment: bytes = b""
    """Behind every reply."""
    returns_attachment: bool = False
    """A request's attachment is that of its reply."""
    with_checksum: bool = False
    minimal: bool = False
    """The smallest reply a real client accepts: a meta with the correlation id alone."""
    vendored: bool = False
    """brpc 1.6.0, which knows no content type and no checksum."""
    piece: int = 0
    """Replies are sent in pieces of so many bytes."""
    error: tuple[int, str] | None = None
    """The code and text of every reply: (2004, "Reached server's max_concurrency=1")."""
    hostile: str = ""
    """One of HOSTILE."""


class Service:
    def __init__(self, methods: Methods, habits: Habits, port: int) -> None:
        self._methods = methods
        self._habits = habits
        self._port = port

    def replies(self, frame: Frame) -> bytes:
        """What is sent for a request, often one frame. Raises Broken where the original closes."""
        try:
            meta = read_meta(frame.meta)
        except ValueError as error:
            raise Broken("Fail to parse RpcMeta") from error
        ahead = reset_frame(meta["stream_settings"]) if "stream_settings" in meta else b""
        try:
            return ahead + self._answer(meta, frame)
        except Failed as failed:
            return ahead + self._failure(meta, failed)

    def _answer(self, meta: Document, frame: Frame) -> bytes:
        name, method = self._find(meta.get("request", {"service_name": "", "method_name": ""}))
        message = message_of(meta, frame)
        if name == SILENT:
            return b""
        if self._habits.error:
            raise Failed(*self._habits.error)
        payload = COMPRESS[self._habits.compress](encode(method(message)))
        attachment = self._habits.attachment
        if self._habits.returns_attachment:
            attachment = frame.split(meta.get("attachment_size", 0))[1]
        return write_frame(self._meta(meta, payload, len(attachment)), payload, attachment)

    def _find(self, request: Document) -> tuple[str, Callable[[Document], Document]]:
        service, name = request["service_name"], request["method_name"]
        if "." not in service and service != SERVICE.rpartition(".")[2]:
            raise Failed(ENOSERVICE, f"Fail to find service={service}")
        if ("." in service and service != SERVICE) or name not in (*self._methods, SILENT):
            raise Failed(ENOMETHOD, f"Fail to find method={service}/{name}")
        return name, self._methods.get(name, lambda message: message)

    def _meta(self, asked: Document, payload: bytes, attached: int = 0) -> Document:
        habits, identity = self._habits, {"correlation_id": asked.get("correlation_id", 0)}
        sizes = {"attachment_size": attached} if attached else {}
        if habits.minimal:
            return identity | sizes | ({"compress_type": habits.compress} if habits.compress else {})
        meta = {"response": {"error_code": 0}, "compress_type": habits.compress, **identity, **sizes}
        if habits.vendored:
            return meta
        # A request's checksum comes back as it was, under type 0.
        sums: Document = {"checksum_type": 0, "checksum_value": asked.get("checksum_value", b"")}
        if habits.with_checksum:
            sums = {"checksum_type": CRC32C, "checksum_value": checksum(payload)}
        return meta | {"content_type": 0} | sums

    def _failure(self, asked: Document, failed: Failed) -> bytes:
        text = f"[127.0.0.1:{self._port}][E{failed.code}]{failed}"
        meta = self._meta(asked, b"") | {"response": {"error_code": failed.code, "error_text": text}}
        return write_frame(meta)


def message_of(meta: Document, frame: Frame) -> Document:
    try:
        payload, _ = frame.split(meta.get("attachment_size", 0))
    except ValueError as error:
        raise Failed(EREQUEST, str(error)) from error
    if meta.get("checksum_type") == CRC32C and meta.get("checksum_value") != checksum(payload):
        raise Failed(EREQUEST, f"Fail to verify checksum of request={MESSAGE}")
    try:
        plain = DECOMPRESS[meta.get("compress_type", NONE)](payload)
        return read(load(plain), camel=False) if meta.get("content_type") == JSON_PAYLOAD else decode(plain)
    except (KeyError, ValueError) as error:
        raise Failed(EREQUEST, f"Fail to parse request={MESSAGE}, request_size={len(payload)}") from error


def reset_frame(settings: Document) -> bytes:
    """Ahead of the reply to whoever offers a stream: of the original's 58 bytes only the first 4 are known."""
    meta = protobuf.encode({"stream_id": settings.get("stream_id", 0), "frame_type": 1}, RESET)
    rest = RESET_SIZE - HEADER.size - len(meta)
    return pack(meta + b"\x7a" + protobuf.varint(rest - 2) + bytes(rest - 2), b"", STREAM_MAGIC)


RESET = {
    1: protobuf.Field("stream_id", "int64", explicit=True),
    3: protobuf.Field("frame_type", "int32", explicit=True),
}


# --- What no real server does: a reply to the bytes that are sent instead ---


def wrong_id(reply: bytes) -> bytes:
    frame = cut(bytearray(reply))
    assert frame is not None
    return with_meta(reply, correlation_id=read_meta(frame.meta)["correlation_id"] + (1 << 32))


@cache
def compressed_zeros() -> bytes:
    """128 MiB in 130 KiB: one compressed block, again and again."""
    block, packer, crc = bytes(1 << 20), zlib.compressobj(wbits=-15), 0
    for _ in range(BOMB // len(block)):
        crc = zlib.crc32(block, crc)
    zeros = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    ending = b"\x03\0" + struct.pack("<II", crc, BOMB)
    return b"\x1f\x8b\x08" + bytes(7) + zeros * (BOMB // len(block)) + ending


def with_meta(reply: bytes, body: bytes | None = None, **members: object) -> bytes:
    """The reply with these members in its meta, and another body."""
    frame = cut(bytearray(reply))
    assert frame is not None
    return write_frame(read_meta(frame.meta) | members, frame.body if body is None else body)


HOSTILE: Mapping[str, Callable[[bytes], bytes]] = {
    "": lambda reply: reply,
    "silent": lambda reply: b"",
    "wrong-id": wrong_id,
    "stray": lambda reply: wrong_id(reply) + reply,
    "twice": lambda reply: reply + reply,
    "wrong-magic": lambda reply: b"HULU" + reply[4:],
    "meta-larger": lambda reply: HEADER.pack(MAGIC, 8, 16) + reply[HEADER.size :][:8],
    "body-larger": lambda reply: HEADER.pack(MAGIC, 0xFFFFFFFF, 16) + reply[HEADER.size :],
    "garbage-meta": lambda reply: pack(b"\xff" * 8, b""),
    "attachment-larger": lambda reply: with_meta(reply, attachment_size=1 << 30),
    "bad-checksum": lambda reply: with_meta(reply, checksum_type=CRC32C, checksum_value=bytes(4)),
    "unknown-compression": lambda reply: with_meta(reply, compress_type=9),
    "bomb": lambda reply: with_meta(reply, compressed_zeros(), compress_type=GZIP),
    # 4 GiB are announced, and nothing follows.
    "snappy-bomb": lambda reply: with_meta(reply, b"\xff\xff\xff\xff\x0f", compress_type=SNAPPY),
    "cut": lambda reply: reply[:-1],
}
CLOSES = ("cut", "close")
"""After what they send, or nothing, the connection is closed."""


# --- Sockets ---


class Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        data, held = bytearray(), list[bytes]()
        self.server.opened(self.request)
        with suppress(Broken, OSError):
            while self.receive(data, held):
                for reply in reversed(held):
                    self.send(reply)
                if held and self.server.habits.hostile in CLOSES:
                    return
                held.clear()

    def receive(self, data: bytearray, held: list[bytes]) -> bool:
        """Until as many replies are held as are to be sent at once, or there is a pause; False at the end."""
        while len(held) < self.server.habits.reorder:
            frame = cut(data)
            if frame is not None:
                held.append(self.server.reply_to(frame))
            elif held and not select.select([self.request], [], [], PAUSE)[0]:
                return True
            elif received := self.request.recv(1 << 16):
                data += received
            else:
                return bool(held)
        return True

    def send(self, reply: bytes) -> None:
        piece = self.server.habits.piece or max(1, len(reply))
        for at in range(0, len(reply), piece):
            self.request.sendall(reply[at : at + piece])


class Server(socketserver.ThreadingTCPServer):
    """`address`, and what came: `requests`, as (meta, body), and `connections`. `habits` may be changed meanwhile."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, methods: Methods, port: int = 0, habits: Habits | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.port = int(self.server_address[1])
        self.address = f"127.0.0.1:{self.port}"
        self.habits = habits or Habits()
        self.requests: list[tuple[Document, bytes]] = []
        self.connections = 0
        self._methods = methods
        self._guard = threading.Lock()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def opened(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._guard:
            self.connections += 1
            self._open.append(connection)

    def reply_to(self, frame: Frame) -> bytes:
        reply = Service(self._methods, self.habits, self.port).replies(frame)
        self.requests.append((read_meta(frame.meta), frame.body))
        hostile = self.habits.hostile
        return b"" if hostile == "close" or not reply else HOSTILE[hostile](reply)

    def change(self, **habits: Any) -> None:
        self.habits = replace(self.habits, **habits)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client went away."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


@contextmanager
def serve(methods: Methods, *, port: int = 0, **habits: Any) -> Iterator[Server]:
    """Serve on loopback, at a free port unless one is given; `habits` are the fields of Habits."""
    server = Server(methods, port, Habits(**habits))
    try:
        yield server
    finally:
        server.stop()
