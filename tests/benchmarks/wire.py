"""The requests of the load as bytes, as the real clients write them, and the numbers of their replies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

HEAD = (
    "POST {path} HTTP/1.1\r\n"
    "Host: {address}\r\n"
    "User-Agent: python-requests/2.32.5\r\n"
    "Accept-Encoding: gzip, deflate\r\n"
    "Accept: */*\r\n"
    "Connection: keep-alive\r\n"  # also of umbridge's client, which then uses another one
    "Content-Length: {length}\r\n"
    "Content-Type: application/json\r\n"
    "\r\n"
)


@dataclass(frozen=True)
class Form:
    """One protocol's way to send a vector to the model of its size, and to read the vector that comes back."""

    path: str
    document: Callable[[str, Sequence[float]], object]
    read: Callable[..., object]

    def request(self, address: str, numbers: Sequence[float]) -> bytes:
        model = f"vector_{len(numbers)}"
        body = json.dumps(self.document(model, numbers)).encode()
        return HEAD.format(path=self.path.format(model=model), address=address, length=len(body)).encode() + body


UMBRIDGE = Form(
    "/Evaluate",
    lambda model, numbers: {"name": model, "input": [numbers], "config": {}},
    lambda reply: reply["output"][0],
)
V2_REST = Form(
    "/v2/models/{model}/infer",
    lambda model, numbers: {
        "inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, len(numbers)], "data": numbers}],
        "outputs": [{"name": "output0", "parameters": {"binary_data": False}}],
    },
    lambda reply: reply["outputs"][0]["data"],
)


def vector(size: int) -> list[float]:
    """Numbers with all their digits, as computed ones have them; the same in every run."""
    source = random.Random(size)
    return [source.gauss(0, 1) for _ in range(size)]
