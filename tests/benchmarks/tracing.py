"""What tracing costs per request where one in a hundred is sampled: two gateways with an access log and metrics before
the same servers, one of which traces, in turns. The spans go to a collector that takes them and does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

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
