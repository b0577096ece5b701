"""Heads of requests, and the blocks of replies to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import Status
from gateway.core.http2 import hpack
from gateway.core.http2.heads import HeadReader
from gateway.core.messages import Headers, Message
from gateway.transports.grpc.client import heads
from gateway.transports.grpc.server import replies
from gateway.transports.grpc.server.heads import CallHead, request_heads
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import ECHO, LIMIT, fields


def read_fields(*own: tuple[bytes, bytes]) -> CallHead:
    return HeadReader(request_heads(LIMIT)).read(b"\x20" + http2.block(*own))  # without a dynamic table


def read(*more: tuple[bytes, bytes]) -> CallHead:
    return read_fields(*fields(ECHO, *more))


# Requests that HTTP/2 allows and gRPC refuses: the status of HTTP, and of gRPC where that is 200.
FAULTS = {
    "not POST": (((b":method", b"GET"), *fields()[1:]), 405, Status.OK),
    "another content-type": ((*fields()[:5], (b"content-type", b"application/grpc-web")), 415, Status.OK),
    "without te": ((*fields()[:4], http2.CONTENT_TYPE), 200, Status.INVALID_ARGUMENT),
    "an unknown encoding": (fields(ECHO, (b"grpc-encoding", b"snappy")), 200, Status.UNIMPLEMENTED),
    "a timeout of nine digits": (fields(ECHO, (b"grpc-timeout", b"123456789S")), 200, Status.INVALID_ARGUMENT),
    "metadata that are not base64": (fields(ECHO, (b"x-bin", b"!")), 200, Status.INVALID_ARGUMENT),
    "metadata that are not ASCII": (fields(ECHO, (b"x", b"\xe9")), 200, Status.INVALID_ARGUMENT),
    "more metadata than the limit": (fields(ECHO, *([(b"x", bytes(200))] * 60)), 200, Status.RESOURCE_EXHAUSTED),
}


@pytest.mark.parametrize(("own", "http_status", "status"), FAULTS.values(), ids=FAULTS)
def test_a_request_that_grpc_does_not_allow_is_refused_by_its_head(
    own: tuple[tuple[bytes, bytes], ...], http_status: int, status: Status
) -> None:
    fault = read_fields(*own).fault
    assert fault is not None
    assert (fault.http_status, fault.status) == (http_status, status)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"4m", 0.004), (b"5u", 5e-6), (b"6n", 6e-9), (b"99999999S", 99_999_999)],
)
def test_a_timeout_is_in_its_unit(text: bytes, seconds: float) -> None:
    assert read((b"grpc-timeout", text)).timeout == pytest.approx(seconds)


def test_metadata_are_without_what_carries_the_call() -> None:
    carried = ((b"grpc-encoding", b"gzip"), (b"grpc-accept-encoding", b"identity"), (b"grpc-timeout", b"1S"))
    own = ((b"user-agent", b"x"), (b"a", b"1"), (b"a", b"2"))
    head = read(*carried, *own)
    assert (head.path, head.encoding, tuple(head.metadata.raw)) == (ECHO, b"gzip", own)


def test_binary_metadata_come_padded_or_not_and_in_lists() -> None:
    head = read((b"x-bin", b"AP8=,AP8 , YQ"), (b"y-bin", b""))
    assert head.metadata.raw == [(b"x-bin", b"\0\xff"), (b"x-bin", b"\0\xff"), (b"x-bin", b"a"), (b"y-bin", b"")]


@given(st.text(), st.sampled_from([status for status in Status if status]))
def test_the_text_of_a_status_comes_back_as_it_was(text: str, status: Status) -> None:
    reply = Message(status=status, parts=(text.encode("utf-8", "replace"),), headers=Headers([(b"x-bin", b"\0")]))
    block = replies.trailers(reply)
    assert all(field.isascii() for pair in hpack.read(block, 100_000) for field in pair)
    head = heads.read_response(block, 100_000)
    assert (head.status, head.text, head.metadata.raw) == (status, reply.body, [(b"x-bin", b"\0")])


def test_who_does_not_speak_grpc_is_told_so_by_http() -> None:
    head = read_fields((b":method", b"GET"), *fields()[1:])
    assert head.fault is not None
    told = dict(hpack.read(replies.fault_block(head.fault), LIMIT))
    assert (told[b":status"], told[b"allow"]) == (b"405", b"POST")
