"""What settings of production cost per request: two gateways before the same servers, one with the setting, in turns.
Clients send an API key to both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread

from gateway.auth.keys import new_key, write_keys
from tests.benchmarks.contest.measure import generator
from tests.benchmarks.measure import Turn
from tests.benchmarks.rows import REST_TO_GRPC, UMBRIDGE_TO_V2, Row
from tests.benchmarks.servers import Server, own_address, reference_server
from tests.benchmarks.wire import with_key
from tests.interop.processes import start_gateway

ROWS = [Row(way, 10, in_flight) for way in (UMBRIDGE_TO_V2, REST_TO_GRPC) for in_flight in (1, 16)]
STARTS = 6
"""How often the gateways are started. Where the memory of a process lies makes each of its requests some microseconds
cheaper or dearer for as long as it runs."""

CONFIG = """
listeners:
  - {{name: to_rest, bind: "{to_rest}", protocols: [umbridge]{listener}}}
  - {{name: to_grpc, bind: "{to_grpc}", protocols: [v2-rest]{listener}}}
backends:
  rest: {{protocol: v2-rest, endpoints: ["{rest}"]{backend}}}
  grpc: {{protocol: v2-grpc, endpoints: ["{grpc}"]{backend}}}
routes:
  - {{match: {{listener: to_rest, model: "*"}}, backend: rest}}
  - {{match: {{listener: to_grpc, model: "*"}}, backend: grpc}}
"""
POLICIES = "[{timeout: {seconds: 30}}, {retry: {}}, {concurrency_limit: {calls: 1000}}]"
SILENT = "log: {{access: {{when: never}}}}\n"
LOGGED = 'log: {{format: json, access: {{when: always, path: "{log}"}}}}\n'
HEALTH = 'health: {{bind: "{health}"}}\n'
OBSERVED = LOGGED + HEALTH
PAYLOADS = """
log: {{format: json, access: {{when: always, path: "{log}"}}, payloads: {{to: "{log}.payloads", sample: %g}}}}
health: {{bind: "{health}"}}
"""
METRICS = SILENT + HEALTH + "request_ids: {{reply: false, forward: false}}\nmetrics: {{enabled: %s}}\n"
KEYS = """
auth: {{keys: {{file: "{keys}"}}}}
permissions: {{vectors: [{{operations: [infer, metadata], models: ["vector_*"]}}]}}
principals: {{bench: {{permissions: [vectors]}}}}
"""


@dataclass(frozen=True)
class Part:
    """A part of a gateway's configuration: members at its top, of its listeners, and of its backends."""

    top: str = ""
    listener: str = ""
    backend: str = ""


@dataclass(frozen=True)
class Setting:
    title: str
    aim: str
    without: Part
    given: Part

    @property
    def heading(self) -> str:
        return f"{self.title}; aim: {self.aim}\n{'':44}{'without us':>12}{'with us':>12}{'more us':>12}{'ratio':>12}"


SETTINGS = (
    Setting(
        "what timeout, retry, health and limits cost",
        "at most 5% or 3 us, whichever is more",
        Part(),
        Part(backend=f", safe: true, health: {{}}, policies: {POLICIES}"),
    ),
    Setting(
        "what the access log costs",
        "at most 6% or 6 us, whichever is more, with metrics and keys",
        Part(SILENT),
        Part(LOGGED),
    ),
    Setting("what request ids cost", "at most 6% or 6 us", Part(SILENT), Part(SILENT + "request_ids: {{}}\n")),
    Setting(
        "what metrics cost", "at most 5% or 6 us, whichever is more", Part(METRICS % "false"), Part(METRICS % "true")
    ),
    Setting("what keys cost", "at most 2 us", Part(KEYS), Part(KEYS, listener=", auth: {}")),
    Setting(
        "what the access log, metrics and keys cost together",
        "at most 6% or 6 us, whichever is more",
        Part(KEYS),
        Part(KEYS + OBSERVED, listener=", auth: {}"),
    ),
    Setting(
        "what tracing of 1% costs",
        "at most 2 us",
        Part(OBSERVED),
        Part(OBSERVED + 'tracing: {{otlp: "{collector}", sample: 0.01}}\n'),
    ),
    Setting("what the payload log of 1% costs", "at most 2 us", Part(OBSERVED), Part(PAYLOADS % 0.01)),
    Setting("what the payload log of all calls costs", "at most 100 us", Part(OBSERVED), Part(PAYLOADS % 1)),
)


@dataclass(frozen=True)
class Cost:
    """Microseconds of CPU per request, without the setting and with it; the medians of some rounds, and the median of
    the rounds' ratios."""

    row: str
    without: float
    given: float
    ratio: float

    def shown(self) -> str:
        more = self.given - self.without
        return f"{self.row:44}{self.without:12.0f}{self.given:12.0f}{more:+12.1f}{self.ratio:12.3f}"


def measure(setting: Setting, rounds: int, folder: Path) -> Iterator[Cost]:
    """The medians of several starts, each with a third of the rounds; of what is more, that of each start."""
    starts = [list(_once(setting, (rounds + 2) // 3, folder / str(start))) for start in range(STARTS)]
    for of_row in zip(*starts, strict=True):
        without, more = median(each.without for each in of_row), median(each.given - each.without for each in of_row)
        yield Cost(of_row[0].row, without, without + more, median(each.ratio for each in of_row))


def _once(setting: Setting, rounds: int, folder: Path) -> Iterator[Cost]:
    key, entry = new_key("bench")
    folder.mkdir()
    file = folder / "keys.yaml"
    file.write_text(write_keys([entry]))
    with ExitStack() as stack:
        values = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
            "collector": stack.enter_context(_collector()),
            "keys": str(file),
        }
        gateways = [
            _gateway(setting.without, values, folder / "without", stack),
            _gateway(setting.given, values, folder / "given", stack),
        ]
        load = stack.enter_context(generator())
        for row in ROWS:
            form = with_key(row.way.client, key)
            turns = [Turn(row, form, each[row.way.name], folder, load) for each in gateways]
            found = [[turn.take().cpu for turn in turns] for _ in range(rounds)]
            without, given = map(median, zip(*found, strict=True))
            yield Cost(row.name, without, given, median(ours / bare for bare, ours in found))


def _gateway(part: Part, values: Mapping[str, str], folder: Path, stack: ExitStack) -> dict[str, Server]:
    """A gateway: where each way is served."""
    faces = {"to_rest": own_address(), "to_grpc": own_address()}
    top = part.top.format(log=f"{folder}.log", health=own_address(), **values)
    text = top + CONFIG.format(listener=part.listener, backend=part.backend, **values, **faces)
    gateway = start_gateway(text, folder)
    stack.callback(gateway.stop)
    return {
        UMBRIDGE_TO_V2.name: Server(faces["to_rest"], gateway.process.pid),
        REST_TO_GRPC.name: Server(faces["to_grpc"], gateway.process.pid),
    }


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
    """A collector of spans that takes them and does nothing."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Takes) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
        server.shutdown()
