"""Request ids and traces in the meta of a frame, byte by byte."""

import pytest

from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.record import Record, RecordDisclosure
from gateway.core.requests import Request
from gateway.core.spans import UNSAMPLED, Span, TraceContext, Unsampled
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc.frames import with_correlation_id
from gateway.protocols.grps.brpc.meta import read_headers
from tests import records
from tests.protocols.grps.brpc.recorded import arrived, joined, written

NAMES = bytes.fromhex(
    "0a1e 677270732e70726f746f732e76312e477270734272706353657276696365 120d 436865636b4c6976656e657373"
)
"""The names of GrpsBrpcService and CheckLiveness."""
TRACE = 0x4BF92F3577B34DA6_A3CE929D0E0E4736
OWN, TRY = 0x00F067AA0BA902B7, 0x0102030405060708

TRACE_ID = "20 b68eb9f0d0d3a4e7a301"  # a3ce929d0e0e4736
SPAN_ID = "28 888e98a8c0e0808101"  # 0102030405060708
PARENT_SPAN_ID = "30 b785a4dda0f59978"  # 00f067aa0ba902b7


def request_part(fields: str) -> bytes:
    part = NAMES + bytes.fromhex(fields)
    size = bytes([len(part)]) if len(part) < 128 else bytes([len(part) & 0x7F | 0x80, len(part) >> 7])
    return b"\x0a" + size + part


def told(fields: str) -> dict[str, str]:
    """The headers that these fields of a request part stand for."""
    found: Headers = read_headers(arrived(joined(request_part(fields) + b"\x20\x07")))
    return {name.decode(): text.decode() for name, text in found.raw}


def sent(record: Record, *, seconds: float | None = None, span: Span | None = None) -> bytes:
    """The frame that asks a backend for its liveness."""
    request = Request(Operation.LIVE, record=record, span=span)
    return written(with_correlation_id(GRPS_BRPC.encode_request(request, Target("grps")), 7, seconds))


def record(
    id: str, context: TraceContext | Unsampled | None = None, traceparent: bytes = b"", *, forwards: bool = True
) -> Record:
    made = records.made((), id, "brpc", "grps-brpc", "", 0, 0, RecordDisclosure(forwards=forwards), traceparent)
    made.context = context
    return made


def span_of_the_try() -> Span:
    span = Span("try", None, 0)
    span.id = TRY
    return span


def test_a_frame_without_ids_stands_for_no_headers() -> None:
    assert told("") == {}


@pytest.mark.parametrize(
    ("fields", "identifier"),
    [
        ("3a 05 6162632d31", "abc-1"),
        ("18 8080808010", "4294967296"),
        ("18 8080808010 3a 05 6162632d31", "abc-1"),
        ("18 ffffffffffffffffff01", "-1"),
    ],
    ids=["request_id", "log_id", "both", "a negative log_id"],
)
def test_the_request_id_of_a_brpc_client(fields: str, identifier: str) -> None:
    assert told(fields) == {"x-request-id": identifier}


def test_the_trace_of_a_brpc_client() -> None:
    """Its trace id is the lower half; the span id is that of its own span, the parent of ours."""
    assert told(TRACE_ID + SPAN_ID + PARENT_SPAN_ID) == {
        "traceparent": "00-0000000000000000a3ce929d0e0e4736-0102030405060708-01"
    }


def test_a_trace_without_a_span_is_none() -> None:
    assert told(TRACE_ID) == told(SPAN_ID) == {}


@pytest.mark.parametrize("data", [b"", b"PRPC", joined(b"\xff"), joined(b"\x0a\x05\x0a")])
def test_what_cannot_be_read_has_no_headers(data: bytes) -> None:
    assert read_headers(arrived(data)).raw == ()


def test_a_backend_gets_the_id_and_the_trace() -> None:
    """The trace id's lower half, the try's span, and the request's span above it."""
    context = TraceContext(TRACE, 1, OWN, is_sampled=True)
    part = request_part(TRACE_ID + SPAN_ID + PARENT_SPAN_ID + "3a 05 6162632d31")
    assert sent(record("abc-1", context), span=span_of_the_try()) == joined(part + b"\x18\x00\x20\x07")


def test_a_backend_gets_a_number_as_log_id_too() -> None:
    part = request_part("18 8080808010 3a 0a 34323934393637323936")
    assert sent(record("4294967296")) == joined(part + b"\x18\x00\x20\x07")


@pytest.mark.parametrize("identifier", ["007", "9223372036854775808", "1e3", "-1"])
def test_a_text_that_is_no_plain_int64_is_no_log_id(identifier: str) -> None:
    text = identifier.encode()
    part = request_part(f"3a {len(text):02x} {text.hex()}")
    assert sent(record(identifier)) == joined(part + b"\x18\x00\x20\x07")


def test_the_longest_id_and_the_time_left_fit_behind_each_other() -> None:
    part = request_part("3a 8001" + "61" * 128 + "40 f403")
    assert sent(record("a" * 128), seconds=0.5) == joined(part + b"\x18\x00\x20\x07")


@pytest.mark.parametrize(
    "context",
    [UNSAMPLED, TraceContext(TRACE, 1, OWN, is_sampled=False), TraceContext(1 << 64, 1, OWN, is_sampled=True)],
    ids=["begun here", "of the client", "no lower half"],
)
def test_a_backend_gets_no_trace_that_is_not_sampled(context: TraceContext | Unsampled) -> None:
    """A brpc server records what has a trace id."""
    assert sent(record("", context, forwards=False)) == joined(request_part("") + b"\x18\x00\x20\x07")


@pytest.mark.parametrize(("flags", "fields"), [(b"01", TRACE_ID + SPAN_ID), (b"00", "")])
def test_without_tracing_the_trace_of_the_client_is_passed_on(flags: bytes, fields: str) -> None:
    parent = b"00-%032x-%016x-%b" % (TRACE, TRY, flags)
    part = request_part(fields + "3a 01 61")
    assert sent(record("a", traceparent=parent)) == joined(part + b"\x18\x00\x20\x07")


def test_nothing_is_sent_where_ids_are_not_forwarded() -> None:
    parent = b"00-%032x-%016x-01" % (TRACE, TRY)
    quiet = record("a", traceparent=parent, forwards=False)
    assert sent(quiet) == joined(request_part("") + b"\x18\x00\x20\x07")
