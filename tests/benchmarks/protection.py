"""What the settings of production cost per request: two gateways before the same servers, one with them, in turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.benchmarks.measure import Generator, Turn
from tests.benchmarks.rows import REST_TO_GRPC, UMBRIDGE_TO_V2, Row
from tests.benchmarks.servers import Server, own_address, reference_server
from tests.interop.processes import start_gateway

TITLE = "what timeout, retry, health and limits cost"
AIM = "at most 5% or 3 us, whichever is more"

ROWS = (
    Row(UMBRIDGE_TO_V2, 10, 1, 400),
    Row(UMBRIDGE_TO_V2, 10, 16, 400),
    Row(REST_TO_GRPC, 10, 1, 400),
    Row(REST_TO_GRPC, 10, 16, 400),
)

_PROTECTED = """
    safe: true
    health: {}
    policies: [{timeout: {seconds: 30}}, {retry: {}}, {concurrency_limit: {calls: 1000}}]
"""
"""The settings of a backend whose cost is measured."""

_CONFIG = """
{top}
listeners:
  - {{name: to_rest, bind: "{to_rest}", protocols: [umbridge]}}
  - {{name: to_grpc, bind: "{to_grpc}", protocols: [v2-rest]}}
backends:
  rest:
    protocol: v2-rest
    endpoints: ["{rest}"]
{settings}
  grpc:
    protocol: v2-grpc
    endpoints: ["{grpc}"]
{settings}
routes:
  - {{match: {{listener: to_rest, model: "*"}}, backend: rest}}
  - {{match: {{listener: to_grpc, model: "*"}}, backend: grpc}}
"""


@dataclass(frozen=True)
class Protection:
    """Microseconds of CPU per request, without and with the settings; the medians of some rounds, and the median of
    the rounds' ratios."""

    row: str
    plain: float
    protected: float
    ratio: float

    def shown(self) -> str:
        more = self.protected - self.plain
        return f"{self.row:44}{self.plain:12.0f}{self.protected:12.0f}{more:+12.1f}{self.ratio:12.3f}"


def heading(title: str = TITLE, aim: str = AIM) -> str:
    return f"{title}; aim: {aim}\n{'':44}{'without us':>12}{'with us':>12}{'more us':>12}{'ratio':>12}"


def measure(folder: Path, rounds: int, load: Generator) -> Iterator[Protection]:
    """Each of ROWS."""
    yield from compared(folder, rounds, load, Settings(), Settings(backend=_PROTECTED.strip("\n")))


@dataclass(frozen=True)
class Settings:
    """What one of two gateways has that are compared: keys at the top, and keys of each backend."""

    top: str = ""
    backend: str = ""


def compared(folder: Path, rounds: int, load: Generator, plain: Settings, protected: Settings) -> Iterator[Protection]:
    """What a gateway with the second settings costs more than one with the first, for each of ROWS."""
    with _gateways(folder, {"plain": plain, "protected": protected}) as gateways:
        for row in ROWS:
            turns = [Turn(row, row.way.client, each[row.way.name]) for each in gateways]
            for turn in turns:
                turn.warm_up(load)
            found = [[turn.take(load).cpu for turn in turns] for _ in range(2 * rounds)]
            bare, full = map(median, zip(*found, strict=True))
            yield Protection(row.name, bare, full, median(ours / base for base, ours in found))


@contextmanager
def _gateways(folder: Path, settings: Mapping[str, Settings]) -> Iterator[list[dict[str, Server]]]:
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        yield [_gateway(name, each, servers, folder, stack) for name, each in settings.items()]


def _gateway(
    name: str, settings: Settings, servers: dict[str, str], folder: Path, stack: ExitStack
) -> dict[str, Server]:
    faces = {"to_rest": own_address(), "to_grpc": own_address()}
    text = _CONFIG.format(settings=settings.backend, top=settings.top, **servers, **faces)
    gateway = start_gateway(text, folder / name)
    stack.callback(gateway.stop)
    return {
        UMBRIDGE_TO_V2.name: Server(faces["to_rest"], gateway.process.pid),
        REST_TO_GRPC.name: Server(faces["to_grpc"], gateway.process.pid),
    }
