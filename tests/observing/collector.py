"""A collector in this process: takes OTLP over HTTP, and reads it with OpenTelemetry's own protobuf classes."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.in_thread import QuietHandler, in_thread


class Collector:
    """What has arrived. `status` is that of the replies; 0: connections are closed without one. `answers` is cleared to
    leave requests without an answer until it is set."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    @property
    def spans(self) -> list[Span]:
        """All spans, in the order in which they came."""
        return [span for _, span in self._of_resources()]

    def services(self) -> dict[bytes, str]:
        """The `service.name` of each span, by the span's id."""
        return {span.span_id: str(found["service.name"]) for found, span in self._of_resources()}

    def _of_resources(self) -> Iterator[tuple[dict[str, object], Span]]:
        """Each span with the attributes of its resource."""
        for request in self.requests:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    yield from ((attributes(resource.resource.attributes), span) for span in scope.spans)


def attributes(pairs: object) -> dict[str, object]:
    """The attributes of a span or a resource, by name."""
    found = {}
    for pair in pairs:  # type: ignore[attr-defined]
        kind = pair.value.WhichOneof("value")
        found[pair.key] = getattr(pair.value, kind)
    return found


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.headers.append({name.lower(): text for name, text in self.headers.items()})
            if collector.status == 200:
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
            collector.answers.wait()
            if not collector.status:
                self.close_connection = True
                return
            reply = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status)
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            with suppress(OSError):  # the exporter has given up
                self.wfile.write(reply)

    with in_thread(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        collector.url = f"http://{address}"
        try:
            yield collector
        finally:
            collector.answers.set()
