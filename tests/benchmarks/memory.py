"""How much memory one large tensor takes in the gateway on its way from V2 REST to V2 gRPC and back."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from tests.benchmarks.servers import Server, rest_to_grpc

TITLE = "V2 REST -> V2 gRPC, peak memory of a tensor of 64 MiB"
SIZE = 2**26 - 4096
"""Bytes: what the default limit lets through, with the message around it."""
AIM = 6.0
"""Times the tensor, above what the gateway has when idle."""


@dataclass(frozen=True)
class Peak:
    """Bytes of resident memory: before the tensor, and the most while it passed."""

    idle: int
    peak: int

    @property
    def ratio(self) -> float:
        return (self.peak - self.idle) / SIZE

    def shown(self) -> str:
        mib = 2**20
        return f"{TITLE}: {self.peak / mib:.0f} MiB, idle {self.idle / mib:.0f}: {self.ratio:.1f} times; aim {AIM:.0f}."


def measure(folder: Path) -> Peak:
    """Send one tensor in binary, and have it back in binary.

    Raises:
        AssertionError: the reply is not the tensor.
    """
    with rest_to_grpc(folder) as gateway:
        _exchange(gateway, b"\0")
        idle = _resident(gateway)
        _exchange(gateway, random.Random(1).randbytes(SIZE))
        return Peak(idle, _resident(gateway))


def _exchange(gateway: Server, data: bytes) -> None:
    given = {"name": "x", "datatype": "UINT8", "shape": [len(data)], "parameters": {"binary_data_size": len(data)}}
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    with closing(HTTPConnection(gateway.address, timeout=60)) as connection:
        headers = {"Inference-Header-Content-Length": str(len(head))}
        connection.request("POST", "/v2/models/identity/infer", head + data, headers)
        reply = connection.getresponse()
        body = reply.read()
    assert reply.status == 200, body[:500]
    assert body.endswith(data)


def _resident(gateway: Server) -> int:
    """The most it ever had."""
    status = Path(f"/proc/{gateway.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
