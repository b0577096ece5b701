"""What a Record says of a request that has just arrived."""

from time import monotonic

import pytest

from gateway.assembly import registry
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Protocol
from gateway.core.record import TIMED, Record, RecordDisclosure
from gateway.core.spans import Span
from gateway.observing import recording
from gateway.observing.recording import Recording, accepted_id, new_id
from gateway.observing.tracing import Tracing

PROTOCOL = registry.protocols()["v2-rest"]
TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = b"00-" + TRACE + b"-00f067aa0ba902b7-01"


def started(made_by: Recording, *raw: tuple[bytes, bytes]) -> Record:
    return made_by.start(Message("POST", "/", Headers(raw), (b"12345",), peer="h:1", received=1.0), PROTOCOL, 5)


def test_a_record_says_how_its_request_came() -> None:
    before = monotonic()
    record = started(Recording("in", (), RecordDisclosure()))
    assert (record.listener, record.in_protocol, record.client, record.bytes_in) == ("in", "v2-rest", "h:1", 5)
    # Not the time of the message: the event loop's clock has milliseconds.
    assert before <= record.received <= monotonic()


def test_requests_that_share_their_headers_share_the_ids_in_them_only() -> None:
    plain, own = Headers([(b"host", b"h")]), Headers([(b"x-request-id", b"one"), (b"traceparent", PARENT)])
    made_by, deaf = Recording("in", (), RecordDisclosure()), Recording("in", (), RecordDisclosure(), accepts_ids=False)
    found = [made_by.start(Message(headers=each), PROTOCOL, 0) for each in (plain, plain, plain, own, own)]
    assert len({each.id for each in found[:3]}) == 3
    assert [(each.id, each.traceparent) for each in found[3:]] == [("one", PARENT)] * 2
    assert {each.traceparent for each in found[:3]} == {b""}
    refused = deaf.start(Message(headers=own), PROTOCOL, 0)
    assert len(refused.id) == 24
    assert refused.traceparent == PARENT


def test_one_request_in_a_few_is_timed() -> None:
    made_by = Recording("in", (), RecordDisclosure())
    timed = sum(started(made_by).is_timed for _ in range(200 * TIMED))
    assert 100 < timed < 300


def test_a_request_whose_spans_are_noted_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "next_is_timed", lambda: False)

    def note_spans(record: Record, message: Message, protocol: Protocol) -> None:
        record.events = [Span("request", None, record.received)]

    assert started(Recording("in", (), RecordDisclosure(), starts=[note_spans])).is_timed
    assert not started(
        Recording("in", (), RecordDisclosure(), starts=[lambda record, message, protocol: None])
    ).is_timed


def test_traces_that_begin_here_are_sampled_by_their_share() -> None:
    made_by = Recording(
        "in", (), RecordDisclosure(), traces=Tracing(lambda records: "", 0.5, 1.0).of_listener(has_tls=False)
    )
    found = [started(made_by) for _ in range(1000)]
    assert 400 < sum(each.events is not None for each in found) < 600
    assert all(each.context is not None and each.forwarded_fields() and each.of_listener.forwards for each in found)
    assert started(made_by, (b"traceparent", PARENT)).events  # as the client decided
    assert not started(made_by, (b"traceparent", PARENT[:-1] + b"0")).events


def accepted(*headers: tuple[bytes, bytes]) -> tuple[str, bytes]:
    return accepted_id(Headers(headers).first)


@pytest.mark.parametrize("sane", [b"a", b"7f3e1c2a-98aa-4a53-9ee7-8f6b1a0f7e11", b"a" * 128, b"Root=1-67:x/y+z@h.i_j"])
def test_a_sane_id_is_accepted(sane: bytes) -> None:
    assert accepted((b"x-request-id", sane)) == (sane.decode(), b"")


@pytest.mark.parametrize("odd", [b"", b"a b", b"a\tb", b'"', b"\xc3\xa9", b"\x1b[0m", b"a" * 129, b"a\n"])
def test_an_odd_id_is_not(odd: bytes) -> None:
    assert accepted((b"x-request-id", odd)) == ("", b"")
    assert accepted((b"x-request-id", odd), (b"traceparent", PARENT)) == (TRACE.decode(), PARENT)


def test_the_first_sane_id_counts_before_the_trace() -> None:
    ids = (b"x-request-id", b"one"), (b"x-request-id", b"two")
    assert accepted((b"traceparent", PARENT), *ids) == ("one", PARENT)


@pytest.mark.parametrize(
    "wrong",
    [
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE + b"-0000000000000000-01",
        b"ff-" + TRACE + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE.upper() + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE + b"-00f067aa0ba902b7",
        b"00-" + TRACE + b"-00f067aa0ba902b7-01x",
        b"00-" + TRACE + b"-00f067aa0ba902b7-01-more",
    ],
)
def test_a_trace_that_w3c_calls_invalid_is_none(wrong: bytes) -> None:
    assert accepted((b"traceparent", wrong)) == ("", b"")


def test_a_later_version_of_the_trace_may_have_more_fields() -> None:
    later = b"01-" + TRACE + b"-00f067aa0ba902b7-01-more"
    assert accepted((b"traceparent", later)) == (TRACE.decode(), later)


def test_made_ids_differ_and_are_accepted_by_the_next_gateway() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(accepted((b"x-request-id", each.encode()))[0] == each for each in ids)
