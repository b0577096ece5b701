"""The headers that a backend gets beside its protocol's own."""

import re

import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.forwarding import MOST_HOPS, add_forwarded_headers
from gateway.core.messages import Headers, Message, Metadata
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.record import ListenerRecords, Record, RecordDisclosure
from gateway.core.requests import Request
from gateway.core.spans import UNSAMPLED

TARGET = Target("lab", "host:1", forward_headers=("x-team", "x-key-bin"))


def forwarded(received: Headers, target: Target = TARGET) -> Headers:
    request = Request(Operation.INFER, "m", headers=received)
    message = Message(headers=Headers([(b"own", b"1")]))
    add_forwarded_headers(request, message, target)
    return message.headers


def test_metadata_stay_metadata_and_headers_headers() -> None:
    """Only so a transport can tell whether binary values are base64."""
    raw = [(b"x-key-bin", b"\0\xff")]
    assert isinstance(forwarded(Metadata(raw)), Metadata)
    assert forwarded(Metadata(raw)).get("x-key-bin") == "\0\xff"
    plain = forwarded(Headers([(b"x-key-bin", b"AP8=")]))
    assert not isinstance(plain, Metadata)
    assert plain.get("x-key-bin") == "AP8="


@pytest.mark.parametrize("text", [b"a\0b", b"a\r\nX: y", b"a\nb", b"\x7f", b"\x1b[0m", b"\xff", b"caf\xe9"])
@pytest.mark.parametrize("kind", [Headers, Metadata])
def test_a_value_that_is_no_text_is_refused_by_its_header(text: bytes, kind: type[Headers]) -> None:
    with pytest.raises(GatewayError) as refused:
        forwarded(kind([(b"x-team", text)]))
    assert refused.value.reason is Reason.INVALID_INPUT
    assert refused.value.message == (
        "header 'x-team' cannot be forwarded: its value is not UTF-8 text without control characters; change it"
    )


@pytest.mark.parametrize("text", [b"", b"red", b"a\tb", "café".encode()])
def test_text_is_forwarded_as_it_came(text: bytes) -> None:
    assert (b"x-team", text) in forwarded(Headers([(b"x-team", text)])).raw


def test_a_value_that_nobody_forwards_may_be_anything() -> None:
    assert forwarded(Headers([(b"x-other", b"\xff")])).get("own") == "1"


@pytest.mark.parametrize(
    ("received", "sent"), [(None, "1"), (b"1", "2"), (b"07", "8"), (b"%d" % (MOST_HOPS - 1), str(MOST_HOPS))]
)
def test_a_backend_is_told_how_many_gateways_sent_the_request_on(received: bytes | None, sent: str) -> None:
    headers = Headers() if received is None else Headers([(b"gateway-hops", received)])
    assert forwarded(headers).get("gateway-hops") == sent
    assert forwarded(headers, Target("lab", "host:1")).get("gateway-hops") == sent


def test_a_backend_gets_the_headers_that_are_listed_and_none_of_another_request() -> None:
    direct = Target("lab", "host:1")
    teams = [(b"x-team", b"red"), (b"x-team", b"blue")]
    team, passed = Headers([teams[0], (b"authorization", b"secret"), teams[1]]), Headers([(b"gateway-hops", b"1")])
    plain = [(b"own", b"1"), (b"gateway-hops", b"1")]
    for _ in range(2):
        assert list(forwarded(team, direct).raw) == plain
        assert list(forwarded(team).raw) == [*plain, *teams]
        assert list(forwarded(passed, direct).raw) == [(b"own", b"1"), (b"gateway-hops", b"2")]


@pytest.mark.parametrize("received", [b"%d" % MOST_HOPS, b"9", b"999999999999", b"", b"-1", b"x", b"\xb2"])
def test_a_request_that_goes_round_is_refused(received: bytes) -> None:
    with pytest.raises(GatewayError) as refused:
        forwarded(Headers([(b"gateway-hops", received)]))
    assert refused.value.reason is Reason.FAILED_PRECONDITION
    assert "backend 'lab' at host:1" in refused.value.message


def test_a_request_that_is_not_sampled_says_so_in_a_trace_of_its_own() -> None:
    of_listener = ListenerRecords(telling=RecordDisclosure(forwards=True), forwards=True)
    traces = set()
    for id in ("a", "b"):
        record = Record("in", id=id, context=UNSAMPLED, of_listener=of_listener)
        message = Message()
        add_forwarded_headers(Request(Operation.INFER, "m", record=record), message, TARGET)
        name, trace = message.further[1]
        assert message.further[0] == (b"x-request-id", id.encode())
        assert name == b"traceparent"
        found = re.fullmatch(rb"00-([0-9a-f]{32})-[0-9a-f]{16}-00", trace)
        assert found is not None
        traces.add(found[1])
    assert len(traces) == 2
