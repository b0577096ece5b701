"""The requests of the load as bytes, as the real clients write them, and the numbers of their replies."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.protocols.v2 import schema

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
    answer: Callable[..., object]
    method: str = ""

    def request(self, address: str, numbers: Sequence[float]) -> str:
        """The whole of it, ASCII."""
        model = f"vector_{len(numbers)}"
        body = json.dumps(self.document(model, numbers))
        return HEAD.format(path=self.path.format(model=model), address=address, length=len(body)) + body

    def read(self, body: str) -> object:
        """The numbers of a reply."""
        return self.answer(json.loads(body))


@dataclass(frozen=True)
class GrpcForm:
    """The same over gRPC, in protobuf messages as base64: raw, as tritonclient writes them."""

    method: str

    def request(self, address: str, numbers: Sequence[float]) -> str:
        message = schema.ModelInferRequest(model_name=f"vector_{len(numbers)}")
        message.inputs.add(name="input0", datatype="FP64", shape=[1, len(numbers)])
        message.raw_input_contents.append(struct.pack(f"<{len(numbers)}d", *numbers))
        return base64.b64encode(message.SerializeToString()).decode()

    def read(self, body: str) -> object:
        (raw,) = schema.ModelInferResponse.FromString(base64.b64decode(body)).raw_output_contents
        return list(struct.unpack(f"<{len(raw) // 8}d", raw))


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
V2_GRPC = GrpcForm(f"/{schema.SERVICE}/ModelInfer")


def vector(size: int) -> list[float]:
    """Numbers with all their digits, as computed ones have them; the same in every run."""
    source = random.Random(size)
    return [source.gauss(0, 1) for _ in range(size)]
