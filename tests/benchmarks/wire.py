"""The requests of the load as bytes, as the real clients write them, and the numbers of their replies."""

from __future__ import annotations

import base64
import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gateway.protocols.v2.grpc import schema
from tests.peers import grps_messages as grps
from tests.peers.brpc_client import FIRST_ID, Call
from tests.peers.grps_rpc import SERVICE as GRPS_SERVICE
from tests.peers.protobuf import Document

HEAD = (
    "POST {path} HTTP/1.1\r\n"
    "Host: {address}\r\n"
    "User-Agent: python-requests/2.32.5\r\n"
    "Accept-Encoding: gzip, deflate\r\n"
    "Accept: */*\r\n"
    "Connection: keep-alive\r\n"  # also of umbridge's client, which then uses another one
    "Content-Length: {length}\r\n"
    "Content-Type: application/json\r\n"
    "{headers}\r\n"
)


@dataclass(frozen=True)
class Form:
    """One protocol's way to send a vector to the model of its size, and to read the vector that comes back."""

    path: str
    document: Callable[[str, Sequence[float]], object]
    answer: Callable[..., object]
    method: str = ""
    headers: str = ""
    """More lines of the head."""

    def request(self, address: str, numbers: Sequence[float]) -> str:
        """The whole of it, ASCII."""
        model = f"vector_{len(numbers)}"
        body = json.dumps(self.document(model, numbers))
        path = self.path.format(model=model)
        return HEAD.format(path=path, address=address, length=len(body), headers=self.headers) + body

    def read(self, body: str) -> object:
        """The numbers of a reply."""
        return self.answer(json.loads(body))


@dataclass(frozen=True)
class BinaryForm:
    """The same in bytes, as base64: messages of a gRPC `method`, or frames of baidu_std."""

    write: Callable[[str, Sequence[float]], bytes]
    answer: Callable[[bytes], object]
    method: str = ""

    def request(self, address: str, numbers: Sequence[float]) -> str:
        return base64.b64encode(self.write(f"vector_{len(numbers)}", numbers)).decode()

    def read(self, body: str) -> object:
        return self.answer(base64.b64decode(body))


def named(form: BinaryForm, model: str) -> BinaryForm:
    """The form, with calls of one `model`, whatever the numbers."""
    return replace(form, write=lambda _, numbers: form.write(model, numbers))


def _write_v2(model: str, numbers: Sequence[float]) -> bytes:
    """Raw, as tritonclient does."""
    message = schema.ModelInferRequest(model_name=model)
    message.inputs.add(name="input0", datatype="FP64", shape=[1, len(numbers)])
    message.raw_input_contents.append(struct.pack(f"<{len(numbers)}d", *numbers))
    written: bytes = message.SerializeToString()
    return written


def _read_v2(reply: bytes) -> object:
    (raw,) = schema.ModelInferResponse.FromString(reply).raw_output_contents
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


def _grps(model: str, numbers: Sequence[float]) -> Document:
    tensor = grps.tensor("input0", "DT_FLOAT64", [1, len(numbers)], [*numbers])
    return {"model": model, "gtensors": {"tensors": [tensor]}}


def _of_grps(reply: Document) -> object:
    return reply["gtensors"]["tensors"][0]["flat_float64"]


def _read_frame(reply: bytes) -> object:
    """Its payload is behind the meta, whose size is the header's last number."""
    return _of_grps(grps.decode(reply[12 + int.from_bytes(reply[8:12]) :]))


UMBRIDGE = Form(
    "/Evaluate",
    lambda model, numbers: {"name": model, "input": [numbers], "config": {}},
    lambda reply: reply["output"][0],
)
JSON_FORM = Form(
    "/predict/{model}",
    lambda model, numbers: {"features": [numbers]},
    lambda reply: reply["prediction"][0],
)
"""A form that is declared in the configuration."""
TORCHSERVE = Form("/predictions/{model}", lambda model, numbers: [numbers], lambda reply: reply[0])
V1_REST = Form(
    "/v1/models/{model}:predict",
    lambda model, numbers: {"instances": [numbers]},
    lambda reply: reply["predictions"][0],
)
V2_REST = Form(
    "/v2/models/{model}/infer",
    lambda model, numbers: {
        "inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, len(numbers)], "data": numbers}],
        "outputs": [{"name": "output0", "parameters": {"binary_data": False}}],
    },
    lambda reply: reply["outputs"][0]["data"],
)
V2_GRPC = BinaryForm(_write_v2, _read_v2, f"/{schema.SERVICE}/ModelInfer")
GRPS_REST = Form("/grps/v1/infer/predict", _grps, _of_grps)
GRPS_GRPC = BinaryForm(
    lambda model, numbers: grps.encode(_grps(model, numbers)),
    lambda reply: _of_grps(grps.decode(reply)),
    f"/{GRPS_SERVICE}/Predict",
)
GRPS_BRPC = BinaryForm(lambda model, numbers: Call(_grps(model, numbers)).frame(FIRST_ID), _read_frame)


def vector(size: int) -> list[float]:
    """Numbers with all their digits, as computed ones have them; the same in every run."""
    source = random.Random(size)
    return [source.gauss(0, 1) for _ in range(size)]
