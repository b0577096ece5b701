"""Recorded exchanges with real servers: `tests/wire/v2-rest` holds the whole HTTP messages.

    PYTHONPATH=. python tests/wire/v2-rest/record.py

records them again. The requests are those that the codec writes, so the replies are to exactly them.
"""

import struct
from http.client import HTTPResponse
from io import BytesIO
from math import nan
from pathlib import Path
from typing import Any, cast

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, RequestedOutput, Translate
from gateway.core.tensors import Tensor

WIRE = Path(__file__).parents[3] / "wire" / "v2-rest"


def tensor(name: str, datatype: str, shape: tuple[int, ...], form: str, *numbers: float) -> Tensor:
    return Tensor(name, DATATYPES[datatype], shape, struct.pack(f"<{len(numbers)}{form}", *numbers))


X = tensor("x", "FP64", (1, 3), "d", 1, 2.5, -3)
SINGLE = tensor("x", "FP32", (1, 3), "f", 1, 2.5, -3)
SORTS = (
    Tensor("flags", Datatype.BOOL, (2,), b"\1\0"),
    tensor("signed", "INT64", (2,), "q", -(2**63), 2**63 - 1),
    tensor("unsigned", "UINT64", (1,), "Q", 2**64 - 1),
    tensor("half", "FP16", (2, 1), "e", 0.5, -65504),
    tensor("float", "FP32", (1,), "f", 0.1),
    Tensor("texts", Datatype.BYTES, (2,), b"\0\0\0\0\3\0\0\0\xc3\xa9\0"),
    Tensor("none", Datatype.INT32, (0, 2), b""),
)
BF16 = Tensor("brain", Datatype.BF16, (2,), b"\xcd\x3d\x80\x3f")  # 0.1 and 1
THETA = tensor("theta", "FP64", (1, 2), "d", 0, 101)
NOT_A_NUMBER = tensor("theta", "FP64", (1, 2), "d", 0, nan)


def infer(model: str, *inputs: Tensor, **members: Any) -> Request:
    return Request(Operation.INFER, model, inputs=inputs, **members)


def fail(code: int) -> Request:
    return infer("fail", tensor("code", "INT32", (1,), "i", code), id="")


_SERVER = {
    "server_metadata": Request(Operation.SERVER_METADATA),
    "ready": Request(Operation.READY),
    "models": Request(Operation.MODELS),
    "model_ready": Request(Operation.MODEL_READY, "single"),
    "model_ready_unknown": Request(Operation.MODEL_READY, "nobody"),
    "metadata": Request(Operation.METADATA, "single"),
    "error_unknown_model": infer("nobody", SINGLE),
    "infer": infer("single", SINGLE, id="a"),
    "infer_without_id": infer("single", SINGLE),
    "infer_requested": infer("single", SINGLE, outputs=(RequestedOutput("y"),)),
    "error_crash": fail(9),
}
_TABLE_OF_MODELS = {
    **_SERVER,
    "metadata_undeclared": Request(Operation.METADATA, "undeclared"),
    "infer_parameters": infer("double", X, parameters={"k": 1, "f": 1.5, "b": True, "s": "é"}),
    "infer_sorts": infer("undeclared", *SORTS),
    "infer_bf16": infer("undeclared", BF16),
    "infer_nothing_finite": infer("posterior", THETA),
}
REQUESTS: dict[str, dict[str, Request]] = {
    "triton": {**_SERVER, "error_refused": fail(4)},
    "mlserver": {
        **_TABLE_OF_MODELS,
        "version": Request(Operation.METADATA, "versioned", "v10"),
        "error_version": Request(Operation.METADATA, "versioned", "v9"),
        "error_refused": fail(422),
        "error_invalid": infer("posterior", NOT_A_NUMBER, translate=Translate(nan="literal")),
    },
    "kserve": {**_TABLE_OF_MODELS, "error_refused": fail(1), "error_not_ready": fail(3)},
}
"""By flavor and name."""


def target(flavor: str) -> Target:
    return Target("models", "127.0.0.1:8000", flavor)


def recorded(flavor: str, name: str, end: str) -> bytes:
    return (WIRE / f"{flavor}_{name}.{end}").read_bytes()


def reply(flavor: str, name: str) -> Message:
    """The reply as the HTTP transport hands it to the codec."""
    response = HTTPResponse(cast(Any, _Socket(recorded(flavor, name, "reply"))))
    response.begin()
    headers = [(key.lower().encode(), value.encode("latin-1")) for key, value in response.getheaders()]
    return Message(status=response.status, headers=Headers(headers), parts=(response.read(),))


class _Socket:
    """The part of a socket that HTTPResponse uses."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._data)
