"""Requests as bytes, each in one wire form, and the numbers of their replies. Every payload is random, its numbers with
all their digits, and the same in every run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.protocols.v2.grpc import schema

Numbers = NDArray[np.floating[Any]]

HEAD = (
    "POST {path} HTTP/1.1\r\n"
    "Host: {address}\r\n"
    "User-Agent: benchmark\r\n"
    "Accept: */*\r\n"
    "Content-Type: {content_type}\r\n"
    "{more}"
    "Content-Length: {length}\r\n"
    "\r\n"
)
REQUESTS_FIELDS = "Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
"""What `requests` sends too."""


@dataclass(frozen=True)
class Form:
    """One way to send a vector to the model of its size, and to read the vector that comes back."""

    name: str
    write: Callable[[str, str, Numbers], bytes]
    """Of an address and a model."""
    read: Callable[[bytes], Numbers]
    """Of the body of a reply."""
    method: str = ""
    """Of gRPC."""
    framed: bool = False
    """The request is a frame of baidu_std, and so are the replies."""
    doubles: bool = False
    pool: int = 16
    """Random payloads that are sent in turns."""
    digits: int = 0
    """Of the numbers that are sent; 0 for all that they have."""

    def request(self, address: str, size: int, seed: int) -> bytes:
        """The request of that number."""
        return self.write(address, f"vector_{size}", numbers(size, seed, doubles=self.doubles))

    def difference(self, size: int, reply: bytes) -> str:
        """How the reply to the first request differs from what was sent; empty if it does not."""
        given, found = numbers(size, 0, doubles=self.doubles), self.read(reply)
        if self.digits:
            given = np.array([float(f"{each:.{self.digits}g}") for each in given.tolist()], given.dtype)
        if np.array_equal(given, found):
            return ""
        return f"sent {given[:5]}..., got {found[:5]}... of {len(found)} numbers"


def numbers(size: int, seed: int, *, doubles: bool = False) -> Numbers:
    source = np.random.default_rng((size, seed))
    return source.standard_normal(size).astype(np.float64 if doubles else np.float32)


def http(path: str, address: str, body: bytes, more: str = "", content_type: str = "application/json") -> bytes:
    head = HEAD.format(path=path, address=address, length=len(body), more=more, content_type=content_type)
    return head.encode("ascii") + body


def _json(document: object) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def _v2_rest(address: str, model: str, given: Numbers) -> bytes:
    tensor = {"name": "input0", "datatype": _datatype(given), "shape": [1, len(given)], "data": given}
    return http(f"/v2/models/{model}/infer", address, _json({"inputs": [tensor]}))


def _v2_rest_by_python(address: str, model: str, given: Numbers) -> bytes:
    """Seven digits, and a blank behind each comma and colon, as Python's `json` writes them."""
    data = [float(f"{each:.7g}") for each in given.tolist()]
    tensor = {"name": "input0", "datatype": _datatype(given), "shape": [1, len(given)], "data": data}
    return http(f"/v2/models/{model}/infer", address, json.dumps({"inputs": [tensor]}).encode())


def _transcoded_by_python(address: str, model: str, given: Numbers) -> bytes:
    contents = {"fp32_contents": [float(f"{each:.7g}") for each in given.tolist()]}
    tensor = {"name": "input0", "datatype": "FP32", "shape": [1, len(given)], "contents": contents}
    return http(schema.MODEL_INFER, address, json.dumps({"model_name": model, "inputs": [tensor]}).encode())


def _read_v2_rest(body: bytes) -> Numbers:
    (output,) = json.loads(body)["outputs"]
    found: Numbers = np.array(output["data"], "<f8" if output["datatype"] == "FP64" else "<f4")
    return found.reshape(-1)


def _transcoded(address: str, model: str, given: Numbers) -> bytes:
    tensor = {"name": "input0", "datatype": "FP32", "shape": [1, len(given)], "contents": {"fp32_contents": given}}
    return http(schema.MODEL_INFER, address, _json({"model_name": model, "inputs": [tensor]}))


def _read_transcoded(body: bytes) -> Numbers:
    (output,) = json.loads(body)["outputs"]
    return np.array(output["contents"]["fp32Contents"], np.float32)


def _v2_grpc(address: str, model: str, given: Numbers) -> bytes:
    message = schema.ModelInferRequest(model_name=model)
    message.inputs.add(name="input0", datatype=_datatype(given), shape=[1, len(given)])
    message.raw_input_contents.append(given.tobytes())
    written: bytes = message.SerializeToString()
    return written


def _read_v2_grpc(body: bytes) -> Numbers:
    """Behind gRPC's prefix."""
    reply = schema.ModelInferResponse.FromString(body[5:])
    (raw,), (output,) = reply.raw_output_contents, reply.outputs
    return _of_bytes(raw, output.datatype)


def _of_bytes(data: bytes, datatype: str) -> Numbers:
    found: Numbers = np.frombuffer(data, "<f8" if datatype == "FP64" else "<f4")
    return found


def _datatype(given: Numbers) -> str:
    return "FP64" if given.dtype == np.float64 else "FP32"


def _v2_binary(address: str, model: str, given: Numbers) -> bytes:
    data = given.tobytes()
    size = {"binary_data_size": len(data)}
    tensor = {"name": "input0", "datatype": _datatype(given), "shape": [1, len(given)], "parameters": size}
    head = _json({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    more = f"Inference-Header-Content-Length: {len(head)}\r\n"
    return http(f"/v2/models/{model}/infer", address, head + data, more, "application/octet-stream")


def _read_v2_binary(body: bytes) -> Numbers:
    """The tensor is the end of the body, behind the JSON."""
    document, end = json.JSONDecoder().raw_decode(body[:4096].decode("latin-1"))
    (output,) = document["outputs"]
    size = output["parameters"]["binary_data_size"]
    assert len(body) == end + size
    return _of_bytes(body[end:], output["datatype"])


def of_python(path: str, document: Callable[[str, list[float]], object], answer: Callable[..., Any]) -> Form:
    """JSON as Python's `json` writes it, sent by `requests`: as clients of UM-Bridge and many others do."""

    def write(address: str, model: str, given: Numbers) -> bytes:
        body = json.dumps(document(model, given.tolist())).encode()
        return http(
            path.format(model=model), address, body, "Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
        )

    return Form(path.replace("/", " "), write, lambda body: np.array(answer(json.loads(body))), doubles=True)


V2_REST = Form("V2 REST", _v2_rest, _read_v2_rest)
V2_REST_BY_PYTHON = Form("V2 REST by Python", _v2_rest_by_python, _read_v2_rest, digits=7)
TRANSCODED_BY_PYTHON = Form("JSON of the transcoder by Python", _transcoded_by_python, _read_transcoded, digits=7)
V2_REST_DOUBLES = Form("V2 REST", _v2_rest, _read_v2_rest, doubles=True)
V2_BINARY = Form("V2 REST, binary tensors", _v2_binary, _read_v2_binary)
TRANSCODED = Form("JSON of the transcoder", _transcoded, _read_transcoded)
V2_GRPC = Form("V2 gRPC", _v2_grpc, _read_v2_grpc, schema.MODEL_INFER)
V2_GRPC_DOUBLES = Form("V2 gRPC", _v2_grpc, _read_v2_grpc, schema.MODEL_INFER, doubles=True)
UMBRIDGE = of_python(
    "/Evaluate",
    lambda model, numbers: {"name": model, "input": [numbers], "config": {}},
    lambda reply: reply["output"][0],
)
