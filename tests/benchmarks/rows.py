"""What is measured: one row per way, size and load."""

from __future__ import annotations

from dataclasses import dataclass

from tests.benchmarks.contest.forms import UMBRIDGE, V2_GRPC_DOUBLES, Form
from tests.benchmarks.wire import GRPS_BRPC, GRPS_GRPC, GRPS_REST, JSON_FORM, TORCHSERVE, V1_REST, V2_REST


@dataclass(frozen=True)
class Way:
    """From the clients of one protocol to a server of another, and the adapter that people write for it, if any."""

    name: str
    client: Form
    server: Form
    adapter: str = ""


UMBRIDGE_TO_V2 = Way("UM-Bridge -> V2 REST", UMBRIDGE, V2_REST, "umbridge.Model + tritonclient.http")
UMBRIDGE_TO_GRPC = Way("UM-Bridge -> V2 gRPC", UMBRIDGE, V2_GRPC_DOUBLES, "umbridge.Model + tritonclient.grpc")
REST_TO_GRPC = Way("V2 REST -> V2 gRPC", V2_REST, V2_GRPC_DOUBLES)
V2_TO_UMBRIDGE = Way("V2 REST -> UM-Bridge", V2_REST, UMBRIDGE, "FastAPI + pydantic + httpx")

REST_TO_GRPS = Way("V2 REST -> grps gRPC", V2_REST, GRPS_GRPC)
GRPS_TO_GRPC = Way("grps REST -> V2 gRPC", GRPS_REST, V2_GRPC_DOUBLES)
GRPC_TO_GRPC = Way("V2 gRPC -> V2 gRPC", V2_GRPC_DOUBLES, V2_GRPC_DOUBLES)
GRPC_TO_REST = Way("V2 gRPC -> V2 REST", V2_GRPC_DOUBLES, V2_REST)
V1_TO_V2 = Way("V1 REST -> V2 REST", V1_REST, V2_REST)
V2_TO_V1 = Way("V2 REST -> V1 REST", V2_REST, V1_REST)
JSON_TO_GRPC = Way("declared JSON -> V2 gRPC", JSON_FORM, V2_GRPC_DOUBLES, "FastAPI + pydantic + tritonclient.grpc")
REST_TO_JSON = Way("V2 REST -> declared JSON", V2_REST, TORCHSERVE, "FastAPI + pydantic + httpx")
BRPC_TO_UMBRIDGE = Way("grps BRPC -> UM-Bridge", GRPS_BRPC, UMBRIDGE)


@dataclass(frozen=True)
class Row:
    way: Way
    doubles: int
    in_flight: int
    keep_alive: bool = True

    @property
    def name(self) -> str:
        connections = "" if self.keep_alive else ", a new connection per call"
        return f"{self.way.name}, {self.doubles:,} doubles, {self.in_flight} in flight{connections}"


ROWS = (
    # As `umbridge`'s own client calls: `requests.post`, without a session.
    Row(UMBRIDGE_TO_V2, 10, 1, keep_alive=False),
    Row(UMBRIDGE_TO_V2, 10, 16, keep_alive=False),
    Row(UMBRIDGE_TO_V2, 10, 1),
    Row(UMBRIDGE_TO_V2, 10, 16),
    Row(UMBRIDGE_TO_V2, 1_000, 1),
    Row(UMBRIDGE_TO_V2, 100_000, 1),
    Row(V2_TO_UMBRIDGE, 10, 1),
    Row(V2_TO_UMBRIDGE, 10, 16),
    Row(UMBRIDGE_TO_GRPC, 10, 1, keep_alive=False),
    Row(UMBRIDGE_TO_GRPC, 10, 1),
    Row(UMBRIDGE_TO_GRPC, 10, 16),
    Row(REST_TO_GRPC, 10, 1),
    Row(REST_TO_GRPC, 10, 16),
    Row(REST_TO_GRPC, 1_000, 1),
    Row(REST_TO_GRPC, 10_000, 1),
    Row(GRPC_TO_GRPC, 10, 1),
    Row(GRPC_TO_GRPC, 10, 16),
    Row(GRPC_TO_GRPC, 100_000, 1),
    Row(GRPC_TO_REST, 10, 1),
    Row(GRPC_TO_REST, 10, 16),
    Row(REST_TO_GRPS, 10, 1),
    Row(REST_TO_GRPS, 10, 16),
    Row(GRPS_TO_GRPC, 10, 1),
    Row(GRPS_TO_GRPC, 10, 16),
    Row(BRPC_TO_UMBRIDGE, 10, 1),
    Row(V1_TO_V2, 10, 1),
    Row(V1_TO_V2, 10, 16),
    Row(V2_TO_V1, 10, 1),
    Row(JSON_TO_GRPC, 10, 1),
    Row(JSON_TO_GRPC, 10, 16),
    Row(JSON_TO_GRPC, 1_000, 1),
    Row(REST_TO_JSON, 10, 1),
    Row(REST_TO_JSON, 10, 16),
    Row(REST_TO_JSON, 1_000, 1),
)
