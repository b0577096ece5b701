"""Create OpenTelemetry spans from completed Records.

Names and attributes follow OpenTelemetry's semantic conventions for HTTP and RPC; names that are not in the conventions
begin with `gateway.`.

The protobuf messages (opentelemetry/proto/trace/v1/trace.proto and its imports) are written field by field.
OpenTelemetry's own package creates an object for each attribute, and would make a traced request take four times as
long. Most attributes are the same in many spans, so their bytes are cached."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from struct import pack
from time import monotonic, time
from typing import TypeAlias
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from gateway.core.errors import Status
from gateway.core.protobuf.wire import key, varint
from gateway.core.record import OK, Record
from gateway.core.spans import MIRROR_SPAN, Span, TraceContext

INTERNAL, SERVER, CLIENT = 1, 2, 3
"""The values of `Span.SpanKind`."""

Value: TypeAlias = str | bool | int | float
Attributes: TypeAlias = dict[str, Value]

_MOST_KEPT = 1024
"""Maximum number of attributes whose bytes are cached."""
_LONGEST_KEPT = 256
"""Maximum length of a cached string, in characters."""
_INT64 = 2**64 - 1

# Field numbers, as keys. Fixed-width numbers have wire type 1 (I64) or 5 (I32), other fields 0 (VARINT) or 2 (LENGTH).
_RESOURCE_SPANS = _RESOURCE = _SCOPE = key(1)
_SCOPE_SPANS = _SPANS = key(2)
_RESOURCE_ATTRIBUTES = _NAME_OF_SCOPE = key(1)
_VERSION_OF_SCOPE = key(2)
_TRACE_ID, _SPAN_ID, _PARENT, _NAME = key(1) + varint(16), key(2) + varint(8), key(4) + varint(8), key(5)
_KIND, _START, _END = varint(6 << 3), varint(7 << 3 | 1), varint(8 << 3 | 1)
_ATTRIBUTES, _STATUS, _FLAGS = key(9), key(15), varint(16 << 3 | 5)
_KEY, _VALUE = key(1), key(2)
_STRING, _BOOL, _INT, _DOUBLE = key(1), varint(2 << 3), varint(3 << 3), varint(4 << 3 | 1)
_STATUS_TEXT, _STATUS_ERROR = key(2), varint(3 << 3) + varint(2)

_KNOWS_WHETHER_REMOTE, _IS_REMOTE = 0x100, 0x200
"""Values of `SpanFlags`. The first states that the second is meaningful; the second states that the parent span is in
another process."""


def span(
    trace: int,
    id: int,
    parent: int,
    name: str,
    kind: int,
    began: float,
    ended: float,
    attributes: Attributes,
    *,
    is_parent_remote: bool = False,
    error: str | None = None,
) -> bytes:
    """Return the message `Span`.

    - `parent`: the id of a span, or 0.
    - `began`, `ended`: seconds since 1970.
    - `error`: the message of the span's error, or None.
    """
    flags = _KNOWS_WHETHER_REMOTE | (_IS_REMOTE if is_parent_remote else 0)
    pieces = [_TRACE_ID, trace.to_bytes(16), _SPAN_ID, id.to_bytes(8)]
    if parent:
        pieces += (_PARENT, parent.to_bytes(8))
    text = _encoded(name)
    pieces += (_NAME, varint(len(text)), text, _KIND, varint(kind))
    pieces += (_START, pack("<Q", round(began * 1e9)), _END, pack("<Q", round(ended * 1e9)))
    pieces += [attribute(each, value) for each, value in attributes.items()]
    if error is not None:
        text = _encoded(error)
        pieces.append(_sized(_STATUS, (_sized(_STATUS_TEXT, text) if text else b"") + _STATUS_ERROR))
    pieces += (_FLAGS, pack("<I", flags))
    return b"".join(pieces)


def request(resource: Mapping[str, Value], scope: str, version: str, spans: Iterable[bytes]) -> bytes:
    """Return the message `ExportTraceServiceRequest`, with the spans of one resource and one instrumentation scope."""
    described = b"".join(_sized(_RESOURCE_ATTRIBUTES, _key_value(name, each)) for name, each in resource.items())
    named = _sized(_NAME_OF_SCOPE, _encoded(scope)) + _sized(_VERSION_OF_SCOPE, _encoded(version))
    of_scope = b"".join((_sized(_SCOPE, named), *(_sized(_SPANS, each) for each in spans)))
    return _sized(_RESOURCE_SPANS, _sized(_RESOURCE, described) + _sized(_SCOPE_SPANS, of_scope))


def attribute(name: str, value: Value) -> bytes:
    """Return a span's field `attributes` with one attribute."""
    if isinstance(value, str) and len(value) > _LONGEST_KEPT:
        return _sized(_ATTRIBUTES, _key_value(name, value))
    return _kept(name, value)


@lru_cache(_MOST_KEPT, typed=True)  # distinguishes True from 1
def _kept(name: str, value: Value) -> bytes:
    return _sized(_ATTRIBUTES, _key_value(name, value))


def _key_value(name: str, value: Value) -> bytes:
    if isinstance(value, str):
        any_value = _sized(_STRING, _encoded(value))
    elif isinstance(value, bool):
        any_value = _BOOL + varint(value)
    elif isinstance(value, int):
        any_value = _INT + varint(value & _INT64)
    else:
        any_value = _DOUBLE + pack("<d", value)
    return _sized(_KEY, name.encode()) + _sized(_VALUE, any_value)


def _sized(field: bytes, content: bytes) -> bytes:
    return b"%b%b%b" % (field, varint(len(content)), content)


def _encoded(text: str) -> bytes:
    # an unpaired surrogate cannot be encoded
    return text.encode("utf-8", "replace")


SCOPE = "gateway"
"""The name of the instrumentation scope."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""The allowed values of `http.request.method`. For requests without a method, or with a different method, the value is
_OTHER."""

_SERVER_FAULTS = frozenset(
    each.name
    for each in (
        Status.UNKNOWN, Status.DEADLINE_EXCEEDED, Status.UNIMPLEMENTED, Status.INTERNAL, Status.UNAVAILABLE,
        Status.DATA_LOSS,
    )
)  # fmt: skip
"""The statuses that the conventions count as errors in a server span. Other statuses are the client's fault."""


class OtlpExporter:
    """Exports spans with `send`, a function that takes an ExportTraceServiceRequest and, if the export fails, returns
    the reason.

    `service` and `version` are the resource's `service.name` and `service.version`."""

    def __init__(self, send: Callable[[bytes], str], service: str, version: str) -> None:
        self._send = send
        self._version = version
        self._resource = {
            **_of_environment(os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")),
            "service.name": service,
            "service.version": version,
            "service.instance.id": str(uuid4()),
        }

    def __call__(self, records: Sequence[Record]) -> str:
        """Send the spans of `records`. Return the reason if the spans were not accepted, or an empty string."""
        spans = (span for record in records for span in _spans(record))
        return self._send(request(self._resource, SCOPE, self._version, spans))


def _of_environment(text: str) -> dict[str, str]:
    """Return the attributes in a percent-encoded list `NAME=VALUE,NAME=VALUE`, which is the format of
    OTEL_RESOURCE_ATTRIBUTES (OpenTelemetry specification, "Specifying resource information via an environment
    variable")."""
    pairs = (each.partition("=") for each in text.split(",") if "=" in each)
    return {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}


def _spans(record: Record) -> Iterator[bytes]:
    """Yield the spans of a request as protobuf. Yield nothing if the request was not sampled."""
    context = record.context
    if not isinstance(context, TraceContext) or not record.events:
        return
    since_epoch = time() - monotonic()
    root, *parts = record.events
    root.ended = record.ended
    # The event loop's clock, which measures some of these times, can lag by a few milliseconds.
    root.began = min([root.began, *(each.began for each in parts)])
    began, ended = root.began + since_epoch, root.ended + since_epoch
    if root.name == MIRROR_SPAN:
        attributes = _of_mirrored_call(record, root)
        yield span(context.trace, context.id, context.parent, MIRROR_SPAN, INTERNAL, began, ended, attributes)
    else:
        yield span(
            context.trace, context.id, context.parent, _name(record, root), SERVER, began, ended,
            _of_request(record, root), is_parent_remote=bool(context.parent), error=_error(record, root),
        )  # fmt: skip
    for each in parts:
        if each.name == "try":
            kind, name, attributes = CLIENT, _call_name(each.facts, record), _of_try(each)
        else:
            kind, name, attributes = INTERNAL, each.name, _known(each.facts, "gateway.")
        is_error = bool(each.error) or _is_http_error(each)
        if is_error:
            attributes["error.type"] = _error_type(each)
        above = context.id if each.parent is None else each.parent.id
        ended = max(each.ended or record.ended, each.began)
        yield span(
            context.trace, each.id, above, name, kind, each.began + since_epoch, ended + since_epoch, attributes,
            error=each.error if is_error else None,
        )  # fmt: skip


def _name(record: Record, root: Span) -> str:
    """Return the name of a request's span: `POST /v2/models/{model}/infer`,
    `inference.GRPCInferenceService/ModelInfer`, or the operation and the protocol."""
    method, pattern = str(root.facts["method"]), str(root.facts["pattern"])
    if root.facts["transport"] == "grpc":
        return (pattern or method).lstrip("/")
    if root.facts["transport"] == "http":
        method = method if method in _METHODS else "HTTP"
        return pattern if pattern.startswith(method) else f"{method} {pattern}".strip()
    return f"{record.operation or 'request'} {record.in_protocol}"


def _call_name(facts: Mapping[str, object], record: Record) -> str:
    if facts.get("transport") == "grpc" and "path" in facts:
        return str(facts["path"]).lstrip("/")
    if facts.get("transport") == "http" and "method" in facts:
        return str(
            facts["method"]
        )  # in the conventions, a client span's name contains no path, because the number of paths is unlimited
    return f"{record.operation or 'request'} {facts.get('protocol', '')}".strip()


def _of_request(record: Record, root: Span) -> Attributes:
    found: Attributes = {"gateway.listener": record.listener, "gateway.in_protocol": record.in_protocol}
    if root.facts["transport"] == "http":
        method = str(root.facts["method"])
        found["http.request.method"] = method if method in _METHODS else "_OTHER"
        found |= {"url.path": str(root.facts["path"]), "url.scheme": "https" if root.facts["tls"] else "http"}
        if record.code:
            found["http.response.status_code"] = record.code
        if route := str(root.facts["pattern"]).rpartition(" ")[2]:
            found["http.route"] = route
    elif root.facts["transport"] == "grpc":
        found |= {"rpc.system.name": "grpc", "rpc.method": str(root.facts["path"]).lstrip("/"),
                  "rpc.response.status_code": record.status}  # fmt: skip
    if record.client:
        host, _, port = record.client.rpartition(":")
        found["client.address"] = host.strip("[]")
        if port.isdigit():
            found["client.port"] = int(port)
    texts = {
        "request_id": record.id, "operation": record.operation, "model": record.model, "route": record.route,
        "backend": record.backend, "out_protocol": record.out_protocol, "principal": record.principal,
        "reason": record.reason,
    }  # fmt: skip
    found |= {f"gateway.{name}": text for name, text in texts.items() if text}
    found |= {"gateway.status": record.status, "gateway.tries": record.tries}
    found |= {"gateway.request.size": record.bytes_in, "gateway.response.size": record.bytes_out}
    if record.losses:
        found["gateway.losses"] = ", ".join(record.losses)
    if record.status != OK:
        found["error.type"] = record.reason or record.status
    return found


def _of_mirrored_call(record: Record, root: Span) -> Attributes:
    found = _known(root.facts, "gateway.mirror.")
    texts = {"request_id": record.id, "operation": record.operation, "model": record.model, "backend": record.backend}
    return found | {f"gateway.{name}": text for name, text in texts.items() if text}


def _of_try(span: Span) -> Attributes:
    facts = span.facts
    found: Attributes = {"gateway.backend": str(facts.get("backend", "")), "gateway.endpoint": str(facts["endpoint"])}
    found |= {"gateway.out_protocol": str(facts.get("protocol", ""))}
    found |= _server(str(facts["endpoint"]), is_secure=bool(facts.get("tls")))
    number, status = facts.get("number"), facts.get("status")
    if facts.get("transport") == "http":
        if "method" in facts:
            found |= {"http.request.method": str(facts["method"]), "url.full": _url(facts)}
        if isinstance(number, int) and number > 1:
            found["http.request.resend_count"] = number - 1
        if isinstance(status, int) and status:
            found["http.response.status_code"] = status
    elif facts.get("transport") == "grpc":
        found |= {"rpc.system.name": "grpc", "rpc.method": str(facts.get("path", "")).lstrip("/")}
        if isinstance(status, int):
            found["rpc.response.status_code"] = Status(status).name
        elif span.failure is not None:
            found["rpc.response.status_code"] = span.failure[0].name
    sizes = {"gateway.request.size": facts.get("request_bytes"), "gateway.response.size": facts.get("reply_bytes")}
    return found | {name: size for name, size in sizes.items() if isinstance(size, int)}


def _server(endpoint: str, *, is_secure: bool) -> Attributes:
    """Return `server.address` and `server.port` for an endpoint, which is `host:port`, a URL or a socket path."""
    if endpoint.startswith("unix:"):
        return {"server.address": endpoint.removeprefix("unix:").removeprefix("//")}
    scheme, _, rest = endpoint.rpartition("://")
    parts = urlsplit(f"//{rest.lstrip('/')}")  # dns:///name:port
    try:
        port = parts.port or (443 if is_secure or scheme == "https" else 80)
    except ValueError:
        return {}
    return {"server.address": parts.hostname, "server.port": port} if parts.hostname else {}


def _url(facts: Mapping[str, object]) -> str:
    """Return the URL of an attempt without its query, which could contain confidential values."""
    address, path = str(facts["endpoint"]).rstrip("/"), str(facts.get("path", ""))
    scheme, _, rest = address.rpartition("://")
    return f"{scheme or ('https' if facts.get('tls') else 'http')}://{rest}{path}"


def _is_http_error(span: Span) -> bool:
    """Return True if `span` is an attempt for which the server returned an HTTP error, even if the gateway does not
    decode the error."""
    status = span.facts.get("status")
    return span.facts.get("transport") == "http" and isinstance(status, int) and status >= 400


def _error_type(span: Span) -> str:
    """Return the attribute `error.type`: the response status, or the reason for a missing response."""
    status = span.facts.get("status")
    if isinstance(status, int) and status:
        return Status(status).name if span.facts.get("transport") == "grpc" else str(status)
    return span.failure[1].value if span.failure is not None else "_OTHER"


def _known(facts: Mapping[str, object], prefix: str) -> Attributes:
    return {f"{prefix}{name}": each for name, each in facts.items() if isinstance(each, str | bool | int | float)}


def _error(record: Record, root: Span) -> str | None:
    """Return the error for a request's span if the gateway or a backend is at fault (over HTTP, a 5xx status), or
    None."""
    if record.code >= 500 if root.facts["transport"] == "http" else record.status in _SERVER_FAULTS:
        return record.reason or record.status
    return None
