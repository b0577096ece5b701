"""`python -m tests.attacks.soak --minutes N` sends valid and invalid traffic over every transport to a gateway in front
of sample servers. At the end, it compares memory, tasks and descriptors with the values after the first minute."""

from __future__ import annotations

import argparse
import gzip
import random
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from tests.attacks.attacked import MIB, SCHEMES, Attacked, attacked, reference
from tests.attacks.clients import Brpc, Connection, Grpc, GrpcGzip, Http, Mip, infer, message, post, tensor

PROTOCOLS = ("v2-rest", "v2-grpc", "umbridge", "mip", "grps-rest", "grps-grpc", "grps-brpc", "graphpipe")
SIGNATURE = """
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: x, datatype: FP64, shape: [-1, 2]}]"""
KEPT = 50 * MIB
"""Bytes that the allocator can keep in addition to the memory after the first minute."""
KEPT_DESCRIPTORS, KEPT_TASKS = 30, 20
PAUSE = 0.005

Call = Callable[[Connection], object]


def _point() -> Tensor:
    return Tensor("x", Datatype.FP64, (1, 2), struct.pack("<2d", 1.0, 2.0))


def _v2(model: str) -> bytes:
    body = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1.0,2.0]}]}'
    return post(f"/v2/models/{model}/infer", body)


def _answered(request: bytes, sign: bytes) -> Call:
    """Send a request whose reply must contain `sign`."""

    def call(connection: Connection) -> None:
        reply = connection.call(request)
        if sign not in reply:
            raise AssertionError(f"{reply[:300]!r}")

    return call


def _sent(octets: bytes) -> Call:
    """Send bytes, accept any reply, and disconnect."""

    def call(connection: Connection) -> None:
        connection.socket.settimeout(0.2)
        with suppress(OSError):
            connection.socket.sendall(octets)
            connection.socket.recv(65536)
        connection.close()

    return call


EVALUATE = post("/Evaluate", b'{"name":"v2-rest","input":[[1.0,2.0]],"config":{}}')
BOMB = post("/v2/models/identity/infer", gzip.compress(bytes(80 * MIB), 1), "Content-Encoding: gzip")
# An incompressible part keeps the body within `limits.inflation`.
UNKNOWN = gzip.compress(message("v2-grpc", "unknown", tensor(random.Random(1).randbytes(MIB // 8) + bytes(4 * MIB))), 1)
TWO = struct.pack("<2d", 1.0, 2.0)
GOOD: list[tuple[str, str, Callable[[tuple[str, int]], Connection], Call]] = [
    *((f"V2 REST to {each}", "http", Http, _answered(_v2(each), b"[1.0,2.0]")) for each in PROTOCOLS),
    ("UM-Bridge", "http", Http, _answered(EVALUATE, b"[1.0,2.0]")),
    ("V2 gRPC", "grpc", Grpc, _answered(message("v2-grpc", "v2-rest", _point()), TWO)),
    ("MIP", "mip", Mip, _answered(message("mip", "", _point()), b"[1.0,2.0]")),
    ("grps BRPC", "brpc", Brpc, _answered(message("grps-brpc", "v2-grpc", _point()), TWO)),
    ("10 MiB of octets", "http", Http, _answered(infer("identity", bytes(10 * MIB)), b" 200 OK")),
]  # fmt: skip
BAD: list[tuple[str, str, Callable[[tuple[str, int]], Connection], Call]] = [
    ("unknown models with 4 MiB", "http", Http, _answered(infer("unknown", bytes(4 * MIB)), b" 404 ")),
    ("a dead server with 4 MiB", "http", Http, _answered(infer("dead", bytes(4 * MIB)), b" 503 ")),
    ("half a body", "http", Http, _sent(infer("identity", bytes(MIB))[:-1000])),
    ("no HTTP", "http", Http, _sent(b"\0\1\2\3 \r\n\r\n")),
    ("pipelined requests, not read", "http", Http, _sent(_v2("v2-rest") * 200)),
    ("gzip beyond the limit", "http", Http, _sent(BOMB)),
    ("half a MIP packet", "mip", Mip, _sent(message("mip", "", tensor(bytes(MIB)))[:-9])),
    ("MIP of a dead server", "mip_dead", Mip, _answered(message("mip", "", _point()), b"unreachable")),
    ("no MIP", "mip", Mip, _sent(b"\7" * 100)),
    ("half a frame", "brpc", Brpc, _sent(message("grps-brpc", "v2-grpc", tensor(bytes(MIB)))[:-9])),
    ("brpc of a dead server", "brpc", Brpc, _answered(message("grps-brpc", "dead", tensor(bytes(MIB))), b"PRPC")),
    ("no brpc", "brpc", Brpc, _sent(b"PRPX" * 10)),
    ("unknown models over gRPC", "grpc", GrpcGzip, _answered(UNKNOWN, b"unknown")),
    ("half a call", "grpc", Grpc, _sent(b"\0\0\5\0\1\0\0\0\1")),
    ("no HTTP/2", "grpc", Grpc, _sent(b"x" * 200)),
]  # fmt: skip


class Traffic:
    """A client of each kind, each in its own thread. It opens a new connection from time to time."""

    def __init__(self, gateway: Attacked) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._gateway = gateway
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(*each, True)) for each in GOOD]
        self._threads += [threading.Thread(target=self._run, args=(*each, False)) for each in BAD]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(
        self, name: str, listener: str, connect: Callable[[tuple[str, int]], Connection], call: Call, good: bool
    ) -> None:
        while not self._stopped.is_set():
            try:
                with connect(self._gateway.address(listener)) as connection:
                    for _ in range(random.randrange(1, 100)):
                        call(connection)
                        self.counts[name] += 1
                        if self._stopped.wait(PAUSE if good else 10 * PAUSE) or connection.socket.fileno() < 0:
                            break
            except (OSError, AssertionError) as error:
                if good or isinstance(error, AssertionError):
                    self.faults.append(f"{name}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    minutes = parser.parse_args().minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateway = stack.enter_context(_gateway(folder, stack))
        first, last, faults = _soak(gateway, minutes)
    _show(first, last, faults)


def _gateway(folder: Path, stack: ExitStack) -> AbstractContextManager[Attacked]:
    backends, routes = "", ""
    for each in PROTOCOLS:
        address = stack.enter_context(reference(folder / each, each))
        backends += f'  {each}: {{protocol: {each}, endpoints: ["{SCHEMES.get(each, "")}{address}"]}}\n'
        routes += f"  - match: {{model: {each}}}\n    backend: {each}\n    rewrite: {{model: identity}}\n"
        routes += f"    signature:{SIGNATURE}\n"
    works = stack.enter_context(reference(folder / "works"))
    return attacked(folder / "gateway", works, backends=backends, routes=routes)


Row = tuple[int, int, int, int]
"""Return the memory in bytes, the numbers of tasks and descriptors, and the longest stall in milliseconds."""


def _soak(gateway: Attacked, minutes: float) -> tuple[Row, Row, list[str]]:
    rows: list[Row] = []
    with Traffic(gateway) as traffic:
        print(
            f"{'minute':>6}{'memory MiB':>12}{'tasks':>8}{'descriptors':>13}{'stall ms':>10}{'calls':>10}", flush=True
        )
        steps = max(3, round(2 * minutes))
        for step in range(1, steps + 1):
            time.sleep(60 * minutes / steps)
            seen = gateway.look()
            rows.append((gateway.resident, seen.tasks, gateway.descriptors, round(1e3 * seen.stall)))
            memory, tasks, descriptors, stall = rows[-1]
            at, calls = minutes * step / steps, sum(traffic.counts.values())
            print(f"{at:6.1f}{memory / MIB:12.0f}{tasks:8}{descriptors:13}{stall:10}{calls:10}", flush=True)
    for name, count in sorted(traffic.counts.items()):
        print(f"  {name}: {count}")
    # The mean of several measurements, because the number of requests in progress varies.
    return _mean(rows[: max(1, len(rows) // 5)]), _mean(rows[-max(1, len(rows) // 5) :]), traffic.faults


def _mean(rows: list[Row]) -> Row:
    memory, tasks, descriptors, stall = (sum(each) // len(rows) for each in zip(*rows, strict=True))
    return memory, tasks, descriptors, stall


def _show(first: Row, last: Row, faults: list[str]) -> None:
    print(f"memory {first[0] / MIB:.0f} MiB, then {last[0] / MIB:.0f}; tasks {first[1]}, then {last[1]};", end=" ")
    print(f"descriptors {first[2]}, then {last[2]}; {len(faults)} good calls went wrong")
    for fault in faults[:20]:
        print(f"  {fault}")
    grown = last[0] - first[0] > KEPT or last[1] - first[1] > KEPT_TASKS or last[2] - first[2] > KEPT_DESCRIPTORS
    sys.exit("it grew, or good calls failed" if grown or faults else 0)


if __name__ == "__main__":
    main()
