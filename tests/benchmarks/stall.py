"""How long the gateway's loop is kept from its turn while large messages pass: the longest stall that a ticker in it
sees, beside a well-behaved client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from tests.attacks.attacked import Attacked, attacked, reference
from tests.attacks.clients import Brpc, Connection, Http, Mip, infer, message, post

TITLE = "longest stall of the loop"
AIM = 0.1
"""Seconds."""
TRIES = 3

Send = Callable[[Attacked], None]


@dataclass(frozen=True)
class Stall:
    """Seconds: the longest that the loop waited while the gateway worked; and that a small inference beside took. Of
    some tries the best, since the machine is not alone."""

    row: str
    stall: float
    beside: float

    def shown(self) -> str:
        return f"{self.row:44}{1e3 * self.stall:12.0f}{1e3 * self.beside:12.0f}"


def heading() -> str:
    return f"{TITLE}, ms; aim {1e3 * AIM:.0f}{'':11}{'stall':>12}{'beside':>12}"


def measure(folder: Path) -> Iterator[Stall]:
    with reference(folder / "server") as works, attacked(folder / "gateway", works) as gateway:
        gateway.beside()
        for row, send in ROWS.items():
            found = [_once(gateway, send) for _ in range(TRIES)]
            yield Stall(row, *map(min, zip(*found, strict=True)))


def _once(gateway: Attacked, send: Send) -> tuple[float, float]:
    gateway.look()
    gateway.beside()
    send(gateway)
    return gateway.look().stall, gateway.beside().longest


def _calls(listener: str, connect: Callable[[tuple[str, int]], Connection], request: bytes, count: int = 1) -> Send:
    def send(gateway: Attacked) -> None:
        with connect(gateway.address(listener)) as connection:
            for _ in range(count):
                connection.call(request)

    return send


def _numbers(count: int) -> bytes:
    return np.random.default_rng(1).standard_normal(count).astype("<f4").tobytes()


_SMALL = post(
    "/v2/models/identity/infer", b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1.0,2.0]}]}'
)
_BYTES = b"\1\0\0\0x"
ROWS: dict[str, Send] = {
    "V2 REST, 2,000 small calls": _calls("http", Http, _SMALL, 2000),
    "V2 REST, 10 million FP32, answered in JSON": _calls(
        "http", Http, infer("identity", _numbers(10**7), "FP32", [10**7])
    ),
    "V2 REST, 5 million BYTES, answered in JSON": _calls(
        "http", Http, infer("identity", _BYTES * 5 * 10**6, "BYTES", [5 * 10**6])
    ),
    "grps BRPC, 10 million FP32": _calls(
        "brpc", Brpc, message("grps-brpc", "identity", Tensor("x", Datatype.FP32, (10**7,), _numbers(10**7)))
    ),
    "MIP, 2 million FP32 in JSON": _calls(
        "mip", Mip, message("mip", "", Tensor("x", Datatype.FP32, (1, 2 * 10**6), _numbers(2 * 10**6)))
    ),
}
