"""What keys cost per request: two gateways before the same servers, in turns, one of which asks for a key and checks
what its principal may do. Clients send the key to both. Then the check alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from timeit import repeat

from gateway.auth.authenticator import Authenticator, Credentials
from gateway.auth.keys import key_file, new_key, write_keys
from gateway.auth.permissions import Principals
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from tests.benchmarks.measure import Generator, Turn
from tests.benchmarks.protection import ROWS, Protection
from tests.benchmarks.rows import REST_TO_GRPC, UMBRIDGE_TO_V2
from tests.benchmarks.servers import Server, own_address, reference_server
from tests.benchmarks.wire import Form
from tests.interop.processes import start_gateway

TITLE = "what keys cost"
AIM = "at most 2 us"
TOGETHER_TITLE = "what the access log, metrics and keys cost together"
TOGETHER_AIM = "at most 6% or 6 us, whichever is more"

_CONFIG = """
auth: {{keys: {{file: "{file}"}}}}
permissions: {{vectors: [{{operations: [infer, metadata], models: ["vector_*"]}}]}}
principals: {{bench: {{permissions: [vectors]}}}}
listeners:
  - {{name: to_rest, bind: "{to_rest}", protocols: [umbridge]{auth}}}
  - {{name: to_grpc, bind: "{to_grpc}", protocols: [v2-rest]{auth}}}
backends:
  rest: {{protocol: v2-rest, endpoints: ["{rest}"]}}
  grpc: {{protocol: v2-grpc, endpoints: ["{grpc}"]}}
routes:
  - {{match: {{listener: to_rest, model: "*"}}, backend: rest}}
  - {{match: {{listener: to_grpc, model: "*"}}, backend: grpc}}
"""


_OBSERVED = """
log: {{format: json, access: {{when: always, path: "{log}"}}}}
health: {{bind: "{health}"}}
"""


@dataclass(frozen=True)
class Keyed(Form):
    """A Form whose requests have a key."""

    key: str = ""

    def request(self, address: str, numbers: object) -> str:
        whole = super().request(address, numbers)  # type: ignore[arg-type]
        return whole.replace("\r\n\r\n", f"\r\nx-api-key: {self.key}\r\n\r\n", 1)


def measure(folder: Path, rounds: int, load: Generator, *, together: bool = False) -> Iterator[Protection]:
    """Each of the protection's ROWS: what keys cost, or what they cost together with the access log and metrics."""
    key, entry = new_key("bench")
    file = folder / "keys.yaml"
    file.write_text(write_keys([entry]))
    with ExitStack() as stack:
        servers = {
            "rest": reference_server("v2-rest", folder, stack).address,
            "grpc": reference_server("v2-grpc", folder, stack).address,
        }
        values = {"file": str(file), "log": str(folder / "access.log"), "health": own_address(), **servers}
        keyed = _CONFIG + _OBSERVED if together else _CONFIG
        gateways = [
            _gateway("open", _CONFIG, {"auth": "", **values}, folder, stack),
            _gateway("keyed", keyed, {"auth": ", auth: {}", **values}, folder, stack),
        ]
        for row in ROWS:
            assert isinstance(row.way.client, Form)
            form = Keyed(**vars(row.way.client), key=key)
            turns = [Turn(row, form, each[row.way.name]) for each in gateways]
            for turn in turns:
                turn.warm_up(load)
            found = [[turn.take(load).cpu for turn in turns] for _ in range(rounds)]
            bare, with_keys = map(median, zip(*found, strict=True))
            yield Protection(row.name, bare, with_keys, median(ours / base for base, ours in found))


def checking() -> float:
    """Microseconds of the check alone, for a key that was seen before: who it belongs to, and what it may do."""
    key, entry = new_key("bench")
    credentials = Credentials(Principals({}, {"bench": ["use"]}))
    credentials.use_keys(key_file([entry]))
    ask = Authenticator(credentials)
    raw = [(b"host", b"localhost:8080"), (b"accept", b"*/*"), (b"content-length", b"100"), (b"x-api-key", key.encode())]

    def check() -> bool:
        return ask(Headers(raw), "").may(Operation.INFER, "vector_10", "http")

    return 1e6 * min(repeat(check, number=20_000, repeat=7)) / 20_000


def _gateway(name: str, text: str, values: dict[str, str], folder: Path, stack: ExitStack) -> dict[str, Server]:
    faces = {"to_rest": own_address(), "to_grpc": own_address()}
    gateway = start_gateway(text.format(**values, **faces), folder / name)
    stack.callback(gateway.stop)
    return {
        UMBRIDGE_TO_V2.name: Server(faces["to_rest"], gateway.process.pid),
        REST_TO_GRPC.name: Server(faces["to_grpc"], gateway.process.pid),
    }
