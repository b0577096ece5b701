"""Spans in OpenTelemetry's form, made of finished Records and sent by OTLP over HTTP as protobuf.

Names and attributes follow OpenTelemetry's semantic conventions for HTTP and RPC; what these have no word for begins
with `gateway.`. The packages are those of the extra `tracing`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from time import monotonic, time
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status as SpanStatus
from opentelemetry.trace.status import StatusCode

from gateway.core.errors import Status
from gateway.core.record import OK, Record
from gateway.core.spans import LONGEST_ERROR, MIRROR_SPAN, Span, TraceContext

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http"

Attributes = dict[str, str | bool | int | float]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""The methods that `http.request.method` may have. A request without one, or with another, has _OTHER."""

_SERVER_FAULTS = frozenset(
    each.name
    for each in (
        Status.UNKNOWN, Status.DEADLINE_EXCEEDED, Status.UNIMPLEMENTED, Status.INTERNAL, Status.UNAVAILABLE,
        Status.DATA_LOSS,
    )
)  # fmt: skip
"""The statuses with which the conventions call a server's span an error; others are the client's fault."""


class OtlpExporter:
    """An Export to the collector at `url`.

    - `headers`: those of each request to it. `timeout`: seconds that one batch may take, with all its tries.
    - `service`, `version`: the resource's `service.name` and `service.version`.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float, service: str, version: str) -> None:
        self._exporter = OTLPSpanExporter(url, headers=dict(headers), timeout=timeout, compression=Compression.Gzip)
        self._resource = Resource.create({"service.name": service, "service.version": version})
        self._scope = InstrumentationScope("gateway", version)
        self._lines = _Lines()
        # The exporter writes a line for each try that fails; the gateway writes one for each batch, rate-limited.
        logger = logging.getLogger(_EXPORTER_LOG)
        logger.propagate = False
        logger.handlers[:] = [self._lines]

    def __call__(self, records: Sequence[Record]) -> str:
        """Send the spans of `records`. Returns why they were not taken; empty if they were."""
        spans = [span for record in records for span in self._spans(record)]
        self._lines.texts.clear()
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return ""
        # The first line says what the collector did, the last one why it is not tried again.
        texts = self._lines.texts
        return "; ".join(dict.fromkeys((texts[0], texts[-1]))) if texts else "the collector did not take them"

    def close(self) -> None:
        """Give up a batch that is being sent."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _spans(self, record: Record) -> Iterator[ReadableSpan]:
        context = record.context
        if not isinstance(context, TraceContext) or not record.events:
            return
        since_epoch = time() - monotonic()
        root, *parts = record.events
        root.ended = record.ended
        # The event loop's clock, with which some parts are measured, may be some milliseconds behind.
        root.began = min([root.began, *(each.began for each in parts)])
        own = _context(context.trace, context.id)
        parent = _context(context.trace, context.parent, is_remote=True) if context.parent else None
        if root.name == MIRROR_SPAN:
            above = _context(context.trace, context.parent)
            yield self._span(MIRROR_SPAN, own, above, root, SpanKind.INTERNAL, _of_mirrored_call(record, root),
                             SpanStatus(), since_epoch)  # fmt: skip
        else:
            yield self._span(_name(record, root), own, parent, root, SpanKind.SERVER, _of_request(record, root),
                             _status(record, root), since_epoch)  # fmt: skip
        for each in parts:
            ended = each.ended or record.ended
            each.ended = max(ended, each.began)
            above = own if each.parent is None else _context(context.trace, each.parent.id)
            kind, attributes = SpanKind.INTERNAL, _known(each.facts, "gateway.")
            name = each.name
            if name == "try":
                kind, attributes = SpanKind.CLIENT, _of_try(each)
                name = _call_name(each.facts, record)
            is_error = bool(each.error) or _is_http_error(each)
            status = SpanStatus(StatusCode.ERROR, each.error or None) if is_error else SpanStatus()
            if is_error:
                attributes["error.type"] = _error_type(each)
            yield self._span(name, _context(context.trace, each.id), above, each, kind, attributes, status, since_epoch)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        span: Span,
        kind: SpanKind,
        attributes: Attributes,
        status: SpanStatus,
        since_epoch: float,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            kind=kind,
            status=status,
            start_time=round((span.began + since_epoch) * 1e9),
            end_time=round((span.ended + since_epoch) * 1e9),
            instrumentation_scope=self._scope,
        )


class _Lines(logging.Handler):
    """Keeps the exporter's log lines about one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage()[:LONGEST_ERROR])


def _context(trace: int, span: int, *, is_remote: bool = False) -> SpanContext:
    return SpanContext(trace, span, is_remote, _SAMPLED)


def _name(record: Record, root: Span) -> str:
    """`POST /v2/models/{model}/infer`, `inference.GRPCInferenceService/ModelInfer`, or operation and protocol."""
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
        return str(facts["method"])  # the conventions: no path of a client's span, since it may be any
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
    """`server.address` and `server.port` of an endpoint: `host:port`, a URL or a path of a socket."""
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
    """The URL of a try, without its query, which may hold what is not to be told."""
    address, path = str(facts["endpoint"]).rstrip("/"), str(facts.get("path", ""))
    scheme, _, rest = address.rpartition("://")
    return f"{scheme or ('https' if facts.get('tls') else 'http')}://{rest}{path}"


def _is_http_error(span: Span) -> bool:
    """Whether it is a try that an HTTP server replied to with an error, also if that is passed on unread."""
    status = span.facts.get("status")
    return span.facts.get("transport") == "http" and isinstance(status, int) and status >= 400


def _error_type(span: Span) -> str:
    """The conventions' `error.type`: the status that a server replied with, else why there was no reply."""
    status = span.facts.get("status")
    if isinstance(status, int) and status:
        return Status(status).name if span.facts.get("transport") == "grpc" else str(status)
    return span.failure[1].value if span.failure is not None else "_OTHER"


def _known(facts: Mapping[str, object], prefix: str) -> Attributes:
    return {f"{prefix}{name}": each for name, each in facts.items() if isinstance(each, str | bool | int | float)}


def _status(record: Record, root: Span) -> SpanStatus:
    """An error if the gateway or a backend is at fault: over HTTP a status of 500 and more."""
    if record.code >= 500 if root.facts["transport"] == "http" else record.status in _SERVER_FAULTS:
        return SpanStatus(StatusCode.ERROR, record.reason or record.status)
    return SpanStatus()
