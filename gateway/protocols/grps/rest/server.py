"""Converts grps messages over HTTP to canonical Requests, and Answers to responses (client side)."""

from html import escape
from importlib.resources import files

from gateway.core import json
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.json import missing
from gateway.core.messages import JSON_HEADERS, Buffer, Headers, Message, reply
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, Request, Translate
from gateway.core.statistics import Measurements, Metric
from gateway.protocols.grps import server
from gateway.protocols.grps.json.message import read_message, write_message
from gateway.protocols.grps.rest.bodies import (
    JSON_TYPE,
    NAN,
    OCTETS,
    OCTETS_TYPE,
    begins_object,
    bin_data_body,
    bin_data_message,
    media_type,
    stream_headers,
    stream_type,
)
from gateway.protocols.grps.rest.streams import StreamControl
from gateway.protocols.grps.rest.urls import METRICS_SERIES, OPERATIONS, Query, is_inference, read_query
from gateway.protocols.grps.schema import FAILURE, GrpsMessage, Payload

DEFAULT_CONTROL = StreamControl()


def wants_stream(message: Message, control: StreamControl = DEFAULT_CONTROL) -> bool:
    """Return whether the client requests a stream in the query or in a header."""
    if not control.may_be_asked(message) or not is_inference(message):
        return False
    try:
        return control.asks(message, read_query(message.query, control.key))
    except DecodeError:
        return False  # `decode_request` reports the error


def body_wants_stream(message: Message, control: StreamControl) -> bool:
    """Return whether the client requests a stream in the body."""
    return is_inference(message) and control.asks_in_body(message)


def decode_request(message: Message, listener: ListenerSettings, control: StreamControl = DEFAULT_CONTROL) -> Request:
    """Return the Request in a client's message.

    Raises:
        DecodeError: the query or the body is invalid.
        GatewayError: RESOURCE_EXHAUSTED if the tensors exceed the limit.
    """
    query = read_query(message.query, control.key)
    if is_inference(message):
        return _decode_inference(message, query, listener, control)
    operation = OPERATIONS.get(message.pattern, Operation.STATISTICS)
    grps = GrpsMessage()
    if operation is Operation.METADATA and len(message.body):
        grps = read_message(message.body, "input", listener.limits)
    return server.decode_request(grps, operation, message, query.model or listener.model)


def _decode_inference(message: Message, query: Query, listener: ListenerSettings, control: StreamControl) -> Request:
    is_stream = control.asks(message, query)
    if is_stream and query.returns_ndarray:
        # both servers send this message
        raise DecodeError("Bad Request, err: Streaming and ret ndarray are not supported at the same time.")

    def read(body: Buffer) -> Request:
        return server.decode_request(
            _read_body(body, message.headers, listener.limits, control, is_stream),
            Operation.STREAM if is_stream else Operation.INFER,
            message,
            query.model or listener.model,
            returns_ndarray=query.returns_ndarray,
        )

    try:
        return read(message.body)
    except DecodeError as error:
        return replace(missing.reread(error, message.body, read, members=False), flaw=missing.flaw(error))


def _read_body(body: Buffer, headers: Headers, limits: Limits, control: StreamControl, is_stream: bool) -> GrpsMessage:
    """Return the message of an inference. Real servers are stricter: they reject a content type with parameters, and
    JSON without the JSON content type."""
    content_type = headers.get("content-type")
    given = media_type(content_type)
    if given == OCTETS_TYPE:
        return bin_data_message(body)
    if not begins_object(body) and given != JSON_TYPE:
        found = f"Content-Type {content_type[:100]!r} is" if content_type else "a body without Content-Type is"
        raise DecodeError(f"{found} not supported, expected {JSON_TYPE} or {OCTETS_TYPE}")
    return read_message(body, "input", limits, flag=control.key, unless="" if is_stream else control.ways)


def encode_response(
    answer: Answer, request: Request, translate: Translate, control: StreamControl = DEFAULT_CONTROL
) -> Message:
    """Return the response to a request that `decode_request` returned, or one message of a stream.

    Raises:
        GatewayError: INVALID_ARGUMENT if the response cannot represent an output (the message says which).
    """
    if request.operation is Operation.STATISTICS:
        return _write_metrics(answer, request)
    grps = server.encode_response(answer, request, translate)
    is_stream = request.operation is Operation.STREAM
    headers = stream_headers(control.content_type or stream_type(answer)) if is_stream else None
    if grps.payload is Payload.BIN_DATA:
        body = bin_data_body(grps)
        if len(body) or not is_stream:
            return reply(headers or OCTETS, (body,), 200)
        # An empty chunk would end the stream.
        grps = replace(grps, payload=Payload.STR_DATA)
    text = write_message(grps, "output", translate.nan or NAN)
    assert grps.status is not None
    code = grps.status.code if grps.status.flag == FAILURE or 200 <= grps.status.code < 300 else 200
    return reply(headers or JSON_HEADERS, text, code)


def encode_end(request: Request, control: StreamControl = DEFAULT_CONTROL) -> Message:
    """Return the end of a stream, which is a message without bytes. If the stream has no messages, the end is the
    entire response."""
    return Message(headers=stream_headers(control.content_type), status=200)


# --- The metrics page, and the series that it plots: request results per second ---

_HTML = Headers(((b"content-type", b"text/html; charset=utf-8"),))
_PAGE = files(__package__).joinpath("metrics_page.html").read_text("utf-8")

_NAMES = {
    Metric.REQUESTS: "*qps",
    Metric.FAILED: "*fail_rate(%)",
    Metric.MEAN_LATENCY: "*latency_avg(ms)",
    Metric.MAX_LATENCY: "*latency_max(ms)",
    Metric.LATENCY_PERCENTILES: "*latency_cdf(ms)",
    Metric.CPU_USAGE: "*cpu_usage(%)",
    Metric.MEMORY_USAGE: "*mem_usage(%)",
}
"""The names of the series in grps."""


def _write_metrics(answer: Answer, request: Request) -> Message:
    """Return the metrics page, or the series that the query selects.

    Raises:
        GatewayError: NOT_FOUND if the series is unknown.
    """
    assert isinstance(answer, Measurements)
    series_by_name = {_NAMES[each.metric]: each for each in answer.series}
    message = request.origin
    assert message is not None
    if message.pattern != METRICS_SERIES:
        names = "".join(f"<section data-name='{escape(name)}'></section>" for name in series_by_name)
        return Message(headers=_HTML, parts=(_PAGE.replace("<!-- series -->", names).encode(),), status=200)
    name = read_query(message.query).name
    series = series_by_name.get(name)
    if series is None:
        raise refusal(Reason.PATH_NOT_FOUND, f"no series {name[:100]!r}, expected one of {', '.join(series_by_name)}")
    label = "cdf" if series.metric is Metric.LATENCY_PERCENTILES else "trend"
    document = {"label": label, "data": list(enumerate(series.values))}
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=200)
