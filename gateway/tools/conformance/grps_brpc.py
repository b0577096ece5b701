"""Checks of grps servers over brpc: the checks for both RPC transports, and checks of baidu_std frames, whose section
names refer to brpc's document "baidu_std"."""

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import Any

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Suite, deviate, fail, require
from gateway.tools.conformance.grps_rpc import GrpsRpcServer, add_checks, decode, grps_message, outputs, succeeded
from gateway.tools.conformance.transports import GRPS, Bytes, SocketServer, message

SERVICE = "grps.protos.v1.GrpsBrpcService"
HEADER = struct.Struct(">4sII")
MAX_BODY = 64 << 20
ID = (7 << 32) + 2
"""A correlation id with more than 32 bits, like the ids of real clients."""
DECOMPRESS: dict[int, Callable[[bytes], bytes]] = {2: gzip.decompress, 3: zlib.decompress}
ENOSERVICE, ENOMETHOD, EREQUEST = 1001, 1002, 1003


@frozen
class ReplyFrame:
    """A received frame. `meta` is its RpcMeta."""

    meta: Any
    body: bytes


class GrpsBrpcServer(SocketServer, GrpsRpcServer):
    """A server under test. Each request uses its own connection, except in checks of connections."""

    schemes = ("tcp", "brpc")

    def exchange(self, frame: bytes) -> ReplyFrame:
        """Return the reply to a frame."""
        with self.connection() as connection:
            connection.send(frame)
            return read(connection)

    def call(self, method: str, **fields: Any) -> Any:
        reply = self.exchange(request(method, grps_message(**fields).SerializeToString()))
        return answered(reply, method)

    def predict(self, **meta: Any) -> bytes:
        """Return the frame of a prediction."""
        return request("Predict", grps_message(**self.fields()).SerializeToString(), **meta)


SUITE = Suite("grps-brpc", GrpsBrpcServer)
add_checks(SUITE)
check = SUITE.check


def request(method: str, payload: bytes, attachment: bytes = b"", service: str = SERVICE, **meta: Any) -> bytes:
    """Return a baidu_std frame with a request."""
    named: dict[str, Any] = {"request": {"service_name": service, "method_name": method}, "correlation_id": ID}
    if attachment:
        named["attachment_size"] = len(attachment)
    head: bytes = message(GRPS, "brpc.policy.RpcMeta")(**{**named, **meta}).SerializeToString()
    return HEADER.pack(b"PRPC", len(head) + len(payload) + len(attachment), len(head)) + head + payload + attachment


def read(connection: Bytes) -> ReplyFrame:
    """Return the next frame. The check fails if the connection closes."""
    header = connection.read(HEADER.size)
    require(len(header) == HEADER.size, "the connection was closed without a reply")
    magic, size, meta_size = HEADER.unpack(header)
    require(magic == b"PRPC", f"a frame begins with {magic!r}; expected b'PRPC'")
    require(meta_size <= size <= MAX_BODY, f"a frame has a body of {size} bytes and a meta of {meta_size}")
    body = connection.read(size)
    require(len(body) == size, f"a frame ends after {len(body)} of {size} bytes")
    meta = message(GRPS, "brpc.policy.RpcMeta")()
    meta.ParseFromString(body[:meta_size])
    return ReplyFrame(meta, body[meta_size:])


def answered(reply: ReplyFrame, method: str) -> Any:
    """Return the GrpsMessage in a reply, whose RPC itself must have succeeded."""
    error = reply.meta.response
    if error.error_code:
        fail(f"{method}: error_code {error.error_code}, {error.error_text[:120]!r}; expected 0")
    payload = reply.body[: len(reply.body) - reply.meta.attachment_size]
    decompress = DECOMPRESS.get(reply.meta.compress_type, bytes)
    try:
        payload = decompress(payload)
    except (OSError, EOFError, zlib.error) as error:
        fail(f"{method}: the payload of compress_type {reply.meta.compress_type} is malformed: {error}")
    return decode(payload, method)


@check("frame.correlation-id", "Response", "a reply has the correlation_id of its request")
def correlation_id(server: GrpsBrpcServer) -> None:
    for number in (1, ID, (1 << 63) - 1):
        found = server.exchange(request("CheckLiveness", b"", correlation_id=number)).meta.correlation_id
        require(found == number, f"correlation_id {found}; the request had {number}")


@check("frame.pieces", "Header", "12 bytes: PRPC, body_size and meta_size, also if they arrive in pieces")
def pieces(server: GrpsBrpcServer) -> None:
    with server.connection() as connection:
        connection.send_in_pieces(server.predict())
        found = answered(read(connection), "Predict")
    require(outputs(found) == outputs(server.answer), "the reply differs from the reply to the frame in one piece")


@check("frame.several", "Protocol", "one connection carries many requests, distinguished by correlation_id")
def several(server: GrpsBrpcServer) -> None:
    with server.connection() as connection:
        frames = [server.predict(correlation_id=number) for number in (11, 12, 13)]
        connection.send(b"".join(frames), requests=3)
        replies = [read(connection) for _ in frames]
    ids = sorted(each.meta.correlation_id for each in replies)
    require(ids == [11, 12, 13], f"the replies have the ids {ids}; the requests had 11, 12 and 13")
    for each in replies:
        require(
            outputs(answered(each, "Predict")) == outputs(server.answer),
            "its reply differs from the plain request's",
        )


@check("frame.attachment", "Attachment", "attachment_size: the bytes after the payload")
def attachment(server: GrpsBrpcServer) -> None:
    payload = grps_message(**server.fields()).SerializeToString()
    found = answered(server.exchange(request("Predict", payload, b"attached")), "Predict")
    if "attachment" in found.status.msg:
        return  # a server can report that it does not use the attachment
    require(
        outputs(succeeded(found, "with attachment")) == outputs(server.answer),
        "the reply differs from the plain request's",
    )


@check("frame.gzip", "Compression", "compress_type 2: the payload is gzip")
def compressed(server: GrpsBrpcServer) -> None:
    _same_compressed(server, gzip.compress, 2)


@check("frame.zlib", "Compression", "compress_type 3: the payload is zlib")
def deflated(server: GrpsBrpcServer) -> None:
    _same_compressed(server, zlib.compress, 3)


@check("frame.service-name", "Request", "service_name: the full name of the service")
def service_name(server: GrpsBrpcServer) -> None:
    frame = request("CheckLiveness", b"", service=SERVICE.rpartition(".")[2])
    error = server.exchange(frame).meta.response
    if error.error_code:
        deviate(f"the service name without its package: error_code {error.error_code}; brpc's own servers accept it")


@check("error.unknown-method", "Response", "error_code: 1002, ENOMETHOD")
def unknown_method(server: GrpsBrpcServer) -> None:
    _is_error(server.exchange(request("NoSuchMethod", b"")), "an unknown method", ENOMETHOD)


@check("error.unknown-service", "Response", "error_code: 1001, ENOSERVICE, or 1002, ENOMETHOD")
def unknown_service(server: GrpsBrpcServer) -> None:
    frame = request("Predict", b"", service="no.such.Service")
    _is_error(server.exchange(frame), "an unknown service", ENOSERVICE, ENOMETHOD)


@check("error.malformed", "Response", "error_code: 1003, EREQUEST")
def malformed(server: GrpsBrpcServer) -> None:
    frame = request("Predict", b"\x12\xff\xff\xff\xff\x0fx")
    _is_error(server.exchange(frame), "a payload that is not a GrpsMessage", EREQUEST)


@check("error.attachment-size", "Attachment", "the attachment is within the body; error_code 1003, EREQUEST")
def attachment_size(server: GrpsBrpcServer) -> None:
    frame = request("Predict", b"", attachment_size=1000)
    _is_error(server.exchange(frame), "an attachment_size larger than the body", EREQUEST)


@check("error.compress-type", "Compression", "an unknown compress_type is an error: error_code 1003, EREQUEST")
def compress_type(server: GrpsBrpcServer) -> None:
    frame = server.predict(compress_type=9)
    _is_error(server.exchange(frame), "the compress_type 9", EREQUEST)


@check(
    "error.magic",
    "Header",
    "a frame begins with PRPC; on other bytes, a server closes or reports an error, and serves on",
)
def magic(server: GrpsBrpcServer) -> None:
    with server.connection() as connection:
        connection.send(b"XXXX" + bytes(60))
        connection.finish()
        try:
            header = connection.read(HEADER.size)
            if header:
                _, size, meta_size = HEADER.unpack(header)
                meta = message(GRPS, "brpc.policy.RpcMeta").FromString(connection.read(size)[:meta_size])
                require(meta.response.error_code, "the reply to bytes that are not a frame has error_code 0")
        except ConnectionError:
            pass  # the server closed the connection with data unread
    succeeded(server.call("CheckLiveness"), "CheckLiveness after bytes that are not a frame")


def _same_compressed(server: GrpsBrpcServer, compress: Any, number: int) -> None:
    payload = compress(grps_message(**server.fields()).SerializeToString())
    found = answered(server.exchange(request("Predict", payload, compress_type=number)), "Predict")
    require(
        outputs(succeeded(found, "a compressed request")) == outputs(server.answer),
        "the reply differs from the plain request's",
    )


def _is_error(reply: ReplyFrame, what: str, *codes: int) -> None:
    found = reply.meta.response.error_code
    require(reply.meta.correlation_id == ID, f"{what}: the correlation_id of the error differs from the request's")
    require(found, f"{what}: accepted with error_code 0")
    require(reply.meta.response.error_text, f"{what}: error_code {found} without an error_text")
    if found not in codes:
        deviate(f"{what}: error_code {found}; expected {' or '.join(map(str, codes))}")
