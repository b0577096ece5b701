"""What tracing costs per request where one in a hundred is sampled: two gateways with an access log and metrics before
the same servers, one of which traces, in turns. The spans go to a collector that takes them and does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from time import process_time

from gateway.core.record import Record
from gateway.core.spans import Span, TraceContext, begin, note
from gateway.observing.collector import compressed
from gateway.observing.otlp import OtlpExporter
from tests.benchmarks.measure import Generator
from tests.benchmarks.protection import Protection, compared, start
from tests.benchmarks.servers import own_address, reference_server

TITLE = "what tracing of 1% costs"
AIM = "at most 2 us"

_OBSERVED = """
log: {{format: json, access: {{when: always, path: "{log}"}}}}
health: {{bind: "{health}"}}
"""
_TRACED = """
tracing: {{otlp: "{collector}", sample: 0.01}}
"""


def measure(folder: Path, rounds: int, load: Generator) -> Iterator[Protection]:
    """Each row of the protection's benchmark."""
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        collector = stack.enter_context(_collector())
        settings = {"observed": _OBSERVED, "traced": _OBSERVED + _TRACED}
        observed, traced = (
            start(
                name, "", servers, folder, stack,
                text.format(log=folder / f"{name}.log", health=own_address(), collector=collector),
            )
            for name, text in settings.items()
        )  # fmt: skip
        yield from compared((observed, traced), rounds, load)


TRACED = 40
"""Requests whose spans are sent at once: those of 4,000 requests, of which one in a hundred is sampled."""
TIMES = 50


def exporting() -> float:
    """Microseconds for the spans of one traced request, eight of them: their attributes, protobuf and gzip."""
    sizes: list[int] = []

    def send(batch: bytes) -> str:
        sizes.append(len(compressed(batch)))
        return ""

    export, spent = OtlpExporter(send, "modelglot", "1.0.0"), []
    for _ in range(TIMES):
        records = [_traced(number) for number in range(TRACED)]
        before = process_time()
        export(records)
        spent.append(process_time() - before)
    return 1e6 * median(spent) / TRACED


def _traced(number: int) -> Record:
    """The record of a request from UM-Bridge to V2 over REST."""
    record = Record(
        "to_rest", "umbridge", "", "infer", "vector_10", "route-0", "rest", "v2-rest", "127.0.0.1:8000", tries=1,
        code=200, received=1.0, ended=1.001, id=f"{number:024x}", client=f"127.0.0.1:{40000 + number}", bytes_in=100,
        bytes_out=100, context=TraceContext(number + 1, 0, number + 1, is_sampled=True),
    )  # fmt: skip
    root = Span("request", None, 1.0)
    root.facts = {"method": "POST", "path": "/Evaluate", "pattern": "POST /Evaluate", "transport": "http", "tls": False}
    record.events = [root]
    note(record, "decode", 1e-5)
    note(record, "fit", 1e-5)
    with begin(record, "try") as sent:
        sent.facts = {
            "backend": "rest", "endpoint": "127.0.0.1:8000", "protocol": "v2-rest", "transport": "http", "tls": False,
            "number": 1, "method": "POST", "path": "/v2/models/vector_10/infer", "status": 200, "request_bytes": 300,
            "reply_bytes": 200,
        }  # fmt: skip
        note(record, "encode request", 1e-5, sent)
        note(record, "decode reply", 1e-5, sent)
    note(record, "fit reply", 1e-5)
    note(record, "encode", 1e-5)
    return record


class _Takes(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def _collector() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Takes) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()
