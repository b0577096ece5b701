"""What Envoy's transcoder makes of a right V2 request: it speaks a JSON of its own, and drops what it does not know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection

from gateway.protocols.v2.grpc import schema
from tests.benchmarks.contest import envoy
from tests.benchmarks.contest.sides import Started, envoy_as

TENSOR = {"name": "input0", "datatype": "FP32", "shape": [1, 3], "data": [1.5, -2.25, 3.125]}
V2 = "/v2/models/vector_3/infer"


@dataclass(frozen=True)
class Reply:
    path: str
    request: str
    status: int
    reply: str


def replies(started: Started) -> list[Reply]:
    """To the request at V2's path, to V2's document at the transcoder's path, and to the transcoder's own document.

    Raises:
        MissingError: there is no Envoy.
    """
    start = envoy_as(envoy.TRANSCODER)
    address = started.server("V2 REST to V2 gRPC: Envoy's transcoder", lambda: start(started)).address
    own = {
        **{name: TENSOR[name] for name in ("name", "datatype", "shape")},
        "contents": {"fp32_contents": TENSOR["data"]},
    }
    return [
        _reply(address, V2, {"inputs": [TENSOR]}),
        _reply(address, schema.MODEL_INFER, {"model_name": "vector_3", "inputs": [TENSOR]}),
        _reply(address, schema.MODEL_INFER, {"model_name": "vector_3", "inputs": [own]}),
    ]


def is_emptied(found: Sequence[Reply]) -> bool:
    """Whether V2's document was answered by success, without its numbers."""
    return found[1].status == 200 and "contents" not in json.loads(found[1].reply)["outputs"][0]


def _reply(address: str, path: str, document: object) -> Reply:
    body = json.dumps(document)
    with closing(HTTPConnection(address, timeout=10)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return Reply(path, body, reply.status, reply.read().decode())
