"""What is measured: every pair at every size and load, and the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.contest import envoy, traffic
from tests.benchmarks.contest.forms import (
    TRANSCODED,
    TRANSCODED_BY_PYTHON,
    UMBRIDGE,
    V2_BINARY,
    V2_GRPC,
    V2_GRPC_DOUBLES,
    V2_REST,
    V2_REST_BY_PYTHON,
    V2_REST_DOUBLES,
)
from tests.benchmarks.contest.model_servers import kserve, mlserver, reference, triton, umbridge_adapter, v2_adapter
from tests.benchmarks.contest.sides import Gateway, Side, direct, envoy_as, nginx

GATEWAY = "gateway"
ENVOY_HTTP, ENVOY_GRPC, ENVOY_TRANSCODER = "Envoy as HTTP proxy", "Envoy as gRPC proxy", "Envoy's transcoder"
DIRECT = "direct"
ONE_BODY = "gateway with one repeated body"

CPU, WALL = "cpu", "wall"
"""What a target compares: CPU per request of the process, or the median latency of calls that wait for each other."""

SIZES = (10, 1_000, 10_000, 1_000_000)
IN_FLIGHT = (1, 16, 256)
LARGE, FEW = 1_000_000, 16
"""Of requests of 10 MB not more are in flight: 256 of them would be 2.8 GB."""
MIB_64 = (2**26 - 4096) // 4
"""FP32 numbers: 64 MiB but for the message around them, which the default limit lets through."""


@dataclass(frozen=True)
class Target:
    against: str
    """The name of a side."""
    at_most: float
    """Of the gateway's figure by that side's."""
    figure: str = CPU


@dataclass(frozen=True)
class Contest:
    """One load on some sides; the first is what the others are compared with."""

    pair: str
    size: int
    """Numbers of the vector; 0 where sizes differ."""
    in_flight: int
    sides: tuple[Side, ...]
    targets: tuple[Target, ...] = ()

    @property
    def name(self) -> str:
        if not self.size:
            return f"{self.pair}, {self.in_flight} in flight"
        number = "doubles" if self.sides[0].form.doubles else "floats"
        return f"{self.pair}, {self.size:,} {number}, {self.in_flight} in flight"


@dataclass(frozen=True)
class Pair:
    name: str
    sides: tuple[Side, ...]
    loads: tuple[tuple[int, int], ...]
    """Sizes and requests in flight."""
    targets: tuple[tuple[int, int, Target], ...]
    """With the size and the requests in flight that they hold for."""

    def contests(self, *, targets_alone: bool) -> Iterator[Contest]:
        aims = {(size, in_flight) for size, in_flight, _ in self.targets}
        for load in sorted(aims if targets_alone else {*aims, *self.loads}):
            yield Contest(self.name, *load, self.sides, tuple(aim for *at, aim in self.targets if (*at,) == load))


GRID = tuple((size, in_flight) for size in SIZES for in_flight in IN_FLIGHT if size < LARGE or in_flight <= FEW)

PAIRS = (
    Pair(
        "V2 REST to V2 REST",
        (
            Side(GATEWAY, V2_REST, Gateway("v2-rest", "v2-rest")),
            Side(ENVOY_HTTP, V2_REST, envoy_as(envoy.PROXY)),
            Side("nginx as HTTP proxy", V2_REST, nginx("v2-rest")),
            Side(DIRECT, V2_REST, direct("v2-rest")),
        ),
        GRID,
        (
            (10, 16, Target(ENVOY_HTTP, 0.9)),
            (1_000, 16, Target(ENVOY_HTTP, 1.1)),
            (10_000, 16, Target(ENVOY_HTTP, 1.8)),
            (1_000_000, 1, Target(ENVOY_HTTP, 1.5)),
        ),
    ),
    Pair(
        "V2 gRPC to V2 gRPC",
        (
            Side(GATEWAY, V2_GRPC, Gateway("v2-grpc", "v2-grpc")),
            Side(ENVOY_GRPC, V2_GRPC, envoy_as(envoy.GRPC)),
            Side("nginx as gRPC proxy", V2_GRPC, nginx("v2-grpc")),
            Side(DIRECT, V2_GRPC, direct("v2-grpc")),
        ),
        GRID,
        (
            (10, 16, Target(ENVOY_GRPC, 1.1)),
            (1_000, 16, Target(ENVOY_GRPC, 1.2)),
            (10_000, 16, Target(ENVOY_GRPC, 1.5)),
        ),
    ),
    Pair(
        "V2 REST to V2 gRPC",
        (
            Side(GATEWAY, V2_REST, Gateway("v2-rest", "v2-grpc")),
            Side(ENVOY_TRANSCODER, TRANSCODED, envoy_as(envoy.TRANSCODER)),
            Side(DIRECT, V2_GRPC, direct("v2-grpc")),
        ),
        GRID,
        (
            (10, 16, Target(ENVOY_TRANSCODER, 0.6)),
            (1_000, 16, Target(ENVOY_TRANSCODER, 0.35)),
            (10_000, 16, Target(ENVOY_TRANSCODER, 0.2)),
            (1_000_000, 1, Target(ENVOY_TRANSCODER, 0.1)),
        ),
    ),
    Pair(
        "V2 REST to V2 REST, mixed traffic",
        (
            Side(GATEWAY, traffic.V2_REST, Gateway("v2-rest", "v2-rest")),
            Side(ONE_BODY, traffic.V2_REST_ONE, Gateway("v2-rest", "v2-rest")),
            Side(ENVOY_HTTP, traffic.V2_REST, envoy_as(envoy.PROXY)),
            Side("nginx as HTTP proxy", traffic.V2_REST, nginx("v2-rest")),
            Side(DIRECT, traffic.V2_REST, direct("v2-rest")),
        ),
        ((0, 1), (0, 16)),
        ((0, 16, Target(ENVOY_HTTP, 1.0)), (0, 16, Target(ONE_BODY, 1.3))),
    ),
    Pair(
        "V2 gRPC to V2 gRPC, mixed traffic",
        (
            Side(GATEWAY, traffic.V2_GRPC, Gateway("v2-grpc", "v2-grpc")),
            Side(ENVOY_GRPC, traffic.V2_GRPC, envoy_as(envoy.GRPC)),
            Side(DIRECT, traffic.V2_GRPC, direct("v2-grpc")),
        ),
        ((0, 1), (0, 16)),
        ((0, 16, Target(ENVOY_GRPC, 1.1)),),
    ),
    Pair(
        "V2 REST to V2 gRPC, mixed traffic",
        (
            Side(GATEWAY, traffic.V2_REST, Gateway("v2-rest", "v2-grpc")),
            Side(ONE_BODY, traffic.V2_REST_ONE, Gateway("v2-rest", "v2-grpc")),
            Side(ENVOY_TRANSCODER, traffic.TRANSCODED, envoy_as(envoy.TRANSCODER)),
        ),
        ((0, 1), (0, 16)),
        ((0, 16, Target(ENVOY_TRANSCODER, 0.6)), (0, 16, Target(ONE_BODY, 1.3))),
    ),
    Pair(
        "V2 REST to V2 gRPC, seven digits and spaces",
        (
            Side(GATEWAY, V2_REST_BY_PYTHON, Gateway("v2-rest", "v2-grpc")),
            Side(ENVOY_TRANSCODER, TRANSCODED_BY_PYTHON, envoy_as(envoy.TRANSCODER)),
        ),
        (),
        ((1_000, 16, Target(ENVOY_TRANSCODER, 0.35)), (10_000, 16, Target(ENVOY_TRANSCODER, 0.2))),
    ),
    Pair(
        "UM-Bridge to V2 gRPC",
        (
            Side(GATEWAY, UMBRIDGE, Gateway("umbridge", "v2-grpc", reference("v2-grpc"))),
            Side("umbridge.Model + tritonclient.grpc", UMBRIDGE, umbridge_adapter),
            Side(DIRECT, V2_GRPC_DOUBLES, reference("v2-grpc")),
        ),
        ((10, 1), (10, 16)),
        (
            (10, 1, Target("umbridge.Model + tritonclient.grpc", 0.3)),
            (10, 16, Target("umbridge.Model + tritonclient.grpc", 0.2)),
        ),
    ),
    Pair(
        "V2 REST to UM-Bridge",
        (
            Side(GATEWAY, V2_REST_DOUBLES, Gateway("v2-rest", "umbridge", reference("umbridge"))),
            Side("FastAPI + pydantic + httpx", V2_REST_DOUBLES, v2_adapter),
            Side(DIRECT, UMBRIDGE, reference("umbridge")),
        ),
        ((10, 1), (10, 16)),
        ((10, 1, Target("FastAPI + pydantic + httpx", 0.25)), (10, 16, Target("FastAPI + pydantic + httpx", 0.12))),
    ),
    Pair(
        "V2 REST served",
        (
            Side("gateway reference", V2_REST_DOUBLES, reference("v2-rest")),
            Side("MLServer", V2_REST_DOUBLES, mlserver),
            Side("KServe", V2_REST_DOUBLES, kserve),
        ),
        ((10, 16), (1_000, 16), (10_000, 16)),
        (
            (10, 16, Target("MLServer", 0.15)),
            (1_000, 16, Target("MLServer", 0.25)),
            (10_000, 16, Target("MLServer", 0.4)),
        ),
    ),
    Pair(
        "V2 binary REST to V2 gRPC",
        (Side(GATEWAY, V2_BINARY, Gateway("v2-rest", "v2-grpc")), Side(DIRECT, V2_GRPC, direct("v2-grpc"))),
        ((MIB_64, 1),),
        ((MIB_64, 1, Target(DIRECT, 2.0, WALL)),),
    ),
    Pair(
        "V2 gRPC to Triton",
        (
            Side(GATEWAY, V2_GRPC, Gateway("v2-grpc", "v2-grpc", triton("v2-grpc"))),
            Side(DIRECT, V2_GRPC, triton("v2-grpc")),
        ),
        ((10, 1),),
        ((10, 1, Target(DIRECT, 1.5, WALL)),),
    ),
    Pair(
        "V2 REST to Triton's V2 gRPC",
        (
            Side(GATEWAY, V2_REST, Gateway("v2-rest", "v2-grpc", triton("v2-grpc"))),
            Side(DIRECT, V2_REST, triton("v2-rest")),
        ),
        ((10, 1),),
        ((10, 1, Target(DIRECT, 1.5, WALL)),),
    ),
)


def contests(rows: str, sizes: Sequence[int], in_flight: Sequence[int], *, targets_alone: bool) -> Iterator[Contest]:
    """Those whose name has `rows`; of the sizes and loads named, or of all."""
    for pair in PAIRS:
        for each in pair.contests(targets_alone=targets_alone):
            fits = each.size in (sizes or [each.size]) and each.in_flight in (in_flight or [each.in_flight])
            if fits and rows in each.name:
                yield each
