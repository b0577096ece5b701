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
from tests.protocols.grps.brpc.recorded import joined
from tests.protocols.grps.brpc.wire import arrived, written

NAMES = bytes.fromhex(
    "0a1e 677270732e70726f746f732e76312e477270734272706353657276696365 120d 436865636b4c6976656e657373"
)
"""The names of GrpsBrpcService and CheckLiveness."""
TRACE = 0x4BF92F3577B34DA6_A3CE929D0E0E4736
OWN, TRY = 0x00F067AA0BA902B7, 0x0102030405060708
PARENT = b"00-%032x-%016x-0%%d" % (TRACE, TRY)

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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("", {}),
        ("3a 05 6162632d31", {"x-request-id": "abc-1"}),
        ("18 8080808010", {"x-request-id": "4294967296"}),
        ("18 8080808010 3a 05 6162632d31", {"x-request-id": "abc-1"}),
        ("18 ffffffffffffffffff01", {"x-request-id": "-1"}),
        # its trace id is the lower half; the span id is that of its own span, the parent of ours
        (
            TRACE_ID + SPAN_ID + PARENT_SPAN_ID,
            {"traceparent": "00-0000000000000000a3ce929d0e0e4736-0102030405060708-01"},
        ),
        (TRACE_ID, {}),
        (SPAN_ID, {}),
    ],
    ids=["nothing", "request_id", "log_id", "both", "a negative log_id", "trace", "no span", "no trace"],
)
def test_the_ids_and_the_trace_of_a_brpc_client_are_headers(fields: str, expected: dict[str, str]) -> None:
    assert told(fields) == expected


@pytest.mark.parametrize("data", [b"", b"PRPC", joined(b"\xff"), joined(b"\x0a\x05\x0a")])
def test_what_cannot_be_read_has_no_headers(data: bytes) -> None:
    assert read_headers(arrived(data)).raw == ()


def test_a_backend_gets_the_id_and_the_trace() -> None:
    """The trace id's lower half, the try's span, and the request's span above it."""
    span = Span("try", None, 0)
    span.id = TRY
    noted = record("abc-1", TraceContext(TRACE, 1, OWN, is_sampled=True))
    part = request_part(TRACE_ID + SPAN_ID + PARENT_SPAN_ID + "3a 05 6162632d31")
    assert sent(noted, span=span) == joined(part + b"\x18\x00\x20\x07")


def traced(context: TraceContext | Unsampled) -> Record:
    return record("", context, forwards=False)


SENT = {
    "a number as log_id, too": (record("4294967296"), "18 8080808010 3a 0a 34323934393637323936"),
    # a brpc server records what has a trace id
    "no trace that is not sampled: begun here": (traced(UNSAMPLED), ""),
    "no trace that is not sampled: of the client": (traced(TraceContext(TRACE, 1, OWN, is_sampled=False)), ""),
    "no trace without a lower half": (traced(TraceContext(1 << 64, 1, OWN, is_sampled=True)), ""),
    "the client's trace, without tracing": (record("a", traceparent=PARENT % 1), TRACE_ID + SPAN_ID + "3a 01 61"),
    "the client's trace without an id": (record("", traceparent=PARENT % 1), TRACE_ID + SPAN_ID),
    "not the client's trace if it is no trace": (record("a", traceparent=b"nonsense"), "3a 01 61"),
    "not the client's trace if it is not sampled": (record("a", traceparent=PARENT % 0), "3a 01 61"),
    "nothing where ids are not forwarded": (record("a", traceparent=PARENT % 1, forwards=False), ""),
    **{
        f"no log_id of {text}, which is no plain int64": (record(text), f"3a {len(text):02x} {text.encode().hex()}")
        for text in ("007", "9223372036854775808", "1e3", "-1")
    },
}


@pytest.mark.parametrize(("noted", "fields"), SENT.values(), ids=SENT)
def test_what_a_backend_gets(noted: Record, fields: str) -> None:
    assert sent(noted) == joined(request_part(fields) + b"\x18\x00\x20\x07")


def test_the_longest_id_and_the_time_left_fit_behind_each_other() -> None:
    part = request_part("3a 8001" + "61" * 128 + "40 f403")
    assert sent(record("a" * 128), seconds=0.5) == joined(part + b"\x18\x00\x20\x07")
