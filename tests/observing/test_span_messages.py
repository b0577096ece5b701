"""Messages of spans, as OpenTelemetry's own classes read them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.core.errors import Reason, refusal
from gateway.core.spans import Span as Part
from gateway.core.spans import TraceContext
from gateway.observing.otlp import CLIENT, INTERNAL, SERVER, OtlpExporter, Value, attribute, request, span
from tests import records
from tests.observing.collector import attributes

TEXTS = st.text(max_size=300)
VALUES: st.SearchStrategy[Value] = st.one_of(
    TEXTS, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
)
ATTRIBUTES = st.dictionaries(TEXTS, VALUES, max_size=5)
TIMES = st.floats(0, 4e9)


def test_the_bytes_of_a_request() -> None:
    attributes: dict[str, Value] = {"a": "b", "c": True, "d": 300, "e": 0.5}
    made = span(0x0102, 0x03, 0x04, "n", CLIENT, 1.0, 2.0, attributes, is_parent_remote=True, error="no")
    whole = bytes.fromhex(
        "0a10" "00000000000000000000000000000102" "1208" "0000000000000003" "2208" "0000000000000004"
        "2a01" "6e" "3003" "39" "00ca9a3b00000000" "41" "0094357700000000"
        "4a08" "0a0161" "1203" "0a0162" "4a07" "0a0163" "1202" "1001" "4a08" "0a0164" "1203" "18ac02"
        "4a0e" "0a0165" "1209" "21000000000000e03f" "7a06" "1202" "6e6f" "1802" "8501" "00030000"
    )  # fmt: skip
    assert made == whole
    outside = bytes.fromhex(
        "0a9201" "0a0b" "0a09" "0a0172" "1204" "0a027373" "128201" "0a06" "0a0178" "120179" "1278"
    )  # fmt: skip
    found = request({"r": "ss"}, "x", "y", [made])
    assert found == outside + whole


def test_true_is_not_one() -> None:
    assert [attribute("a", value)[-2:].hex() for value in (1, True, 1)] == ["1801", "1001", "1801"]


@given(
    st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 2**64 - 1), TEXTS,
    st.sampled_from([INTERNAL, SERVER, CLIENT]), TIMES, TIMES, ATTRIBUTES, st.booleans(), st.none() | TEXTS,
)  # fmt: skip
def test_opentelemetry_reads_what_a_span_says(
    trace: int, id: int, parent: int, name: str, kind: int, began: float, ended: float,
    told: dict[str, Value], is_remote: bool, error: str | None,
) -> None:  # fmt: skip
    found = Span.FromString(
        span(trace, id, parent, name, kind, began, ended, told, is_parent_remote=is_remote, error=error)
    )
    assert (int.from_bytes(found.trace_id), len(found.trace_id)) == (trace, 16)
    assert (int.from_bytes(found.span_id), len(found.span_id)) == (id, 8)
    assert int.from_bytes(found.parent_span_id) == parent
    assert len(found.parent_span_id) == (8 if parent else 0)
    assert (found.name, found.kind) == (name, kind)
    assert (found.start_time_unix_nano, found.end_time_unix_nano) == (round(began * 1e9), round(ended * 1e9))
    assert attributes(found.attributes) == told
    assert {key: type(value) for key, value in attributes(found.attributes).items()} == {
        key: type(value) for key, value in told.items()
    }
    assert found.flags == (0x300 if is_remote else 0x100)
    if error is None:
        assert not found.HasField("status")
    else:
        assert (found.status.code, found.status.message) == (Status.STATUS_CODE_ERROR, error)


@given(ATTRIBUTES, TEXTS, TEXTS, st.integers(0, 5))
def test_opentelemetry_reads_a_request(resource: dict[str, Value], scope: str, version: str, number: int) -> None:
    spans = [span(1, at + 1, 0, str(at) * 100, SERVER, 0, 0, {}) for at in range(number)]
    [found] = ExportTraceServiceRequest.FromString(request(resource, scope, version, spans)).resource_spans
    assert attributes(found.resource.attributes) == resource
    [of_scope] = found.scope_spans
    assert (of_scope.scope.name, of_scope.scope.version) == (scope, version)
    assert [each.name for each in of_scope.spans] == [str(at) * 100 for at in range(number)]


def test_what_is_no_text_is_sent_as_far_as_it_is() -> None:
    found = Span.FromString(span(1, 1, 0, "\ud800x", SERVER, 0, 0, {"a": "\udfff"}, error="\ud800"))
    assert (found.name, attributes(found.attributes), found.status.message) == ("?x", {"a": "?"}, "?")
    assert attributes(Span.FromString(attribute("a", "\ud800" * 10_000)).attributes) == {"a": "?" * 10_000}


def exported(client: str, root: dict[str, object], code: int, *tries: Part) -> list[Span]:
    """The spans of a request with these facts."""
    record = records.made((), "id-1", "in", "v2-rest", client)
    record.context, record.losses, record.operation = (
        TraceContext(1, 0, 2, True),
        ("cast rounded", "n dropped"),
        "infer",
    )
    record.events = [Part("request", None, 1.0), *tries]
    record.events[0].facts.update({"method": "", "pattern": "", **root})
    record.end(code, 5)
    sent: list[bytes] = []

    def send(message: bytes) -> str:
        sent.append(message)
        return ""

    assert OtlpExporter(send, "service", "1")([record]) == ""
    [found] = ExportTraceServiceRequest.FromString(sent[0]).resource_spans
    return list(found.scope_spans[0].spans)


GATEWAY = {
    "gateway.listener": "in", "gateway.in_protocol": "v2-rest", "gateway.request_id": "id-1",
    "gateway.operation": "infer", "gateway.status": "OK", "gateway.tries": 0, "gateway.request.size": 0,
    "gateway.response.size": 5, "gateway.losses": "cast rounded, n dropped",
}  # fmt: skip
HTTP = {"http.request.method": "POST", "url.path": "/x", "url.scheme": "https"}


@pytest.mark.parametrize(
    ("client", "root", "code", "name", "told"),
    [
        ("", {"transport": "tcp"}, 0, "infer v2-rest", {}),
        ("[::1]:80", {"transport": "tcp"}, 0, "infer v2-rest", {"client.address": "::1", "client.port": 80}),
        ("10.0.0.1:unknown", {"transport": "tcp"}, 0, "infer v2-rest", {"client.address": "10.0.0.1"}),
        ("", {"transport": "http", "method": "POST", "path": "/x", "tls": True}, 0, "POST", HTTP),
        (
            "", {"transport": "http", "method": "POST", "path": "/x", "tls": True, "pattern": "POST /{x}"}, 503,
            "POST /{x}", {**HTTP, "http.route": "/{x}", "http.response.status_code": 503},
        ),
    ],
)  # fmt: skip
def test_the_span_of_a_request_tells_what_is_known(
    client: str, root: dict[str, object], code: int, name: str, told: dict[str, object]
) -> None:
    [found] = exported(client, root, code)
    assert (found.name, attributes(found.attributes)) == (name, GATEWAY | told)


TO_LAB = {"gateway.backend": "lab", "gateway.endpoint": "lab:1", "gateway.out_protocol": "v2-rest",
          "server.address": "lab", "server.port": 1}  # fmt: skip
FAILURE = refusal(Reason.UNREACHABLE, "no connection")


@pytest.mark.parametrize(
    ("facts", "error", "told"),
    [
        ({"transport": "http", "number": 3}, None, {"http.request.resend_count": 2}),
        ({"transport": "http", "number": 1, "status": 200}, None, {"http.response.status_code": 200}),
        (
            {"transport": "grpc", "path": "/a.B/C"}, FAILURE,
            {"rpc.system.name": "grpc", "rpc.method": "a.B/C", "rpc.response.status_code": "UNAVAILABLE",
             "error.type": "unreachable"},
        ),
        (
            {"transport": "grpc", "path": "/a.B/C"}, asyncio.CancelledError(),
            {"rpc.system.name": "grpc", "rpc.method": "a.B/C", "error.type": "_OTHER"},
        ),
    ],
)  # fmt: skip
def test_the_span_of_a_try_tells_what_is_known(
    facts: dict[str, object], error: BaseException | None, told: dict[str, object]
) -> None:
    attempt = Part("try", None, 1.0)
    attempt.facts.update({"backend": "lab", "endpoint": "lab:1", "protocol": "v2-rest", **facts})
    if error is not None:
        attempt.failed(error)
    _, found = exported("", {"transport": "tcp"}, 0, attempt)
    assert attributes(found.attributes) == TO_LAB | told
