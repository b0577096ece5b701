"""A baidu_std client that keeps many calls in flight on one connection, and takes replies in any order.

Written from observations of the original's wire, and independent of the gateway. Its correlation ids are the
original's: a slot in the upper half, a version in the lower. Every part of a request may be set, also wrongly.

    with Client(address) as client:
        replies = client.exchange([Call(message={"str_data": str(n)}) for n in range(100)])
        assert client.order != sorted(client.order)

    python -m tests.peers.brpc_client 127.0.0.1:9200 '{"str_data": "x"}' --compress 2 --calls 10
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.peers.brpc_frames import COMPRESS, CRC32C, DECOMPRESS, NONE, checksum, cut, read_meta, write_frame
from tests.peers.brpc_peer import SERVICE
from tests.peers.grps_json import python_float, read, tree
from tests.peers.grps_messages import decode, encode
from tests.peers.protobuf import Document

TIMEOUT = 10.0
FIRST_ID = 4294967298


@dataclass(frozen=True)
class Call:
    message: Document | None = None
    method: str = "Predict"
    service: str = SERVICE
    compress: int = NONE
    attachment: bytes = b""
    with_checksum: bool = False
    auth: bytes = b""
    vendored: bool = False
    """As brpc 1.6.0 writes it, without content type and checksum."""
    payload: bytes | None = None
    """Instead of the message's own bytes."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Members of RpcMeta, instead of or beside what the rest says; None leaves one out."""

    def frame(self, number: int) -> bytes:
        payload = self.payload
        if payload is None:
            payload = COMPRESS[self.compress](encode(self.message or {}))
        sums: Document = {"checksum_type": 0, "checksum_value": b""}
        if self.with_checksum:
            sums = {"checksum_type": CRC32C, "checksum_value": checksum(payload)}
        meta: Document = {
            "request": {"service_name": self.service, "method_name": self.method},
            "compress_type": self.compress,
            "correlation_id": number,
            **({"attachment_size": len(self.attachment)} if self.attachment else {}),
            **({"authentication_data": self.auth} if self.auth else {}),
            **({} if self.vendored else {"content_type": 0, **sums}),
            **self.meta,
        }
        return write_frame({name: value for name, value in meta.items() if value is not None}, payload, self.attachment)


@dataclass(frozen=True)
class Reply:
    number: int
    """The correlation id."""
    code: int
    text: str
    message: Document
    """Empty where `code` is not 0."""
    attachment: bytes
    meta: Document


class Client:
    """`order` is that in which the replies came, by correlation id; `strays` those whose id nobody waits for."""

    def __init__(self, address: str, timeout: float = TIMEOUT) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = count(FIRST_ID, 1 << 32)
        self._data = bytearray()
        self.order: list[int] = []
        self.strays: list[Reply] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, method: str, message: Document | None = None, **options: Any) -> Reply:
        (reply,) = self.exchange([Call(message, method, **options)])
        return reply

    def exchange(self, calls: Iterable[Call], piece: int = 0) -> list[Reply]:
        """All calls at once, in pieces of so many bytes; their replies in the order of the calls.

        Raises EOFError if the server closes, TimeoutError if it does not answer.
        """
        frames = {number: call.frame(number) for number, call in zip(self._numbers, calls, strict=False)}
        self.send(b"".join(frames.values()), piece)
        replies: dict[int, Reply] = {}
        while replies.keys() != frames.keys():
            reply = self.receive()
            if reply.number in frames and reply.number not in replies:
                replies[reply.number] = reply
            else:
                self.strays.append(reply)
        return [replies[number] for number in frames]

    def send(self, data: bytes, piece: int = 0) -> None:
        for at in range(0, len(data), piece or max(1, len(data))):
            self._socket.sendall(data[at : at + (piece or len(data))])

    def finish(self) -> None:
        """Nothing more will be sent; what is still owed arrives."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive(self) -> Reply:
        while (frame := cut(self._data)) is None:
            received = self._socket.recv(1 << 16)
            if not received:
                raise EOFError("the server closed the connection")
            self._data += received
        meta = read_meta(frame.meta)
        reply = reply_of(meta, *frame.split(meta.get("attachment_size", 0)))
        self.order.append(reply.number)
        return reply


def reply_of(meta: Document, payload: bytes, attachment: bytes) -> Reply:
    """Raises ValueError for a payload that does not match its checksum or is no message."""
    response = meta.get("response", {})
    code, text = response.get("error_code", 0), response.get("error_text", "")
    message: Document = {}
    if not code:
        if meta.get("checksum_type") == CRC32C and meta.get("checksum_value") != checksum(payload):
            raise ValueError("the reply does not match its checksum")
        message = decode(DECOMPRESS[meta.get("compress_type", NONE)](payload))
    return Reply(meta.get("correlation_id", 0), code, text, message, attachment, meta)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print each reply as a line of JSON, in the order they come.")
    parser.add_argument("address")
    parser.add_argument("message", help="a GrpsMessage as JSON, or - for stdin")
    parser.add_argument("--method", default="Predict")
    parser.add_argument("--service", default=SERVICE)
    parser.add_argument("--compress", type=int, default=NONE, help="1 snappy, 2 gzip, 3 zlib")
    parser.add_argument("--checksum", action="store_true")
    parser.add_argument("--calls", type=int, default=1)
    parser.add_argument("--piece", type=int, default=0, help="bytes sent at a time")
    given = parser.parse_args()
    text = sys.stdin.read() if given.message == "-" else given.message
    message = read(json.loads(text), camel=True)
    call = Call(message, given.method, given.service, given.compress, with_checksum=given.checksum)
    with Client(given.address) as client:
        for reply in client.exchange([call] * given.calls, given.piece):
            told = {"id": reply.number, "code": reply.code, "text": reply.text}
            print(json.dumps(told | {"message": tree(reply.message, python_float)}))


if __name__ == "__main__":
    main()
