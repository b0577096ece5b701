"""The forms of `rows`: requests as the real clients write them, and the numbers of their replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.contest.forms import Form, of_python
from tests.peers import grps_messages as grps
from tests.peers.brpc_client import FIRST_ID, Call
from tests.peers.grps_rpc import SERVICE as GRPS_SERVICE
from tests.peers.protobuf import Document


def named(form: Form, model: str) -> Form:
    """The form, with calls of one `model`, whatever the numbers."""
    write = form.write
    return replace(form, name=f"{form.name} {model}", write=lambda address, _, given: write(address, model, given))


def with_key(form: Form, key: str) -> Form:
    """The form, of a client with an API key."""
    head, write = f"\r\nx-api-key: {key}\r\n\r\n".encode(), form.write
    return replace(form, write=lambda *of: write(*of).replace(b"\r\n\r\n", head, 1))


def _grps(model: str, numbers: Sequence[float]) -> Document:
    tensor = grps.tensor("input0", "DT_FLOAT64", [1, len(numbers)], [*numbers])
    return {"model": model, "gtensors": {"tensors": [tensor]}}


def _of_grps(reply: Document) -> Any:
    return reply["gtensors"]["tensors"][0]["flat_float64"]


def _grps_in_bytes(name: str, write: Callable[[Document], bytes], begin: Callable[[bytes], int], **more: Any) -> Form:
    """`begin` says where the message of a reply begins."""
    return Form(
        name,
        lambda _, model, given: write(_grps(model, given.tolist())),
        lambda reply: np.array(_of_grps(grps.decode(reply[begin(reply) :]))),
        doubles=True,
        **more,
    )


JSON_FORM = of_python(
    "/predict/{model}", lambda model, numbers: {"features": [numbers]}, lambda reply: reply["prediction"][0]
)
"""A form that is declared in the configuration."""
TORCHSERVE = of_python("/predictions/{model}", lambda model, numbers: [numbers], lambda reply: reply[0])
V1_REST = of_python(
    "/v1/models/{model}:predict", lambda model, numbers: {"instances": [numbers]}, lambda reply: reply["predictions"][0]
)
V2_REST = of_python(
    "/v2/models/{model}/infer",
    lambda model, numbers: {
        "inputs": [{"name": "input0", "datatype": "FP64", "shape": [1, len(numbers)], "data": numbers}],
        "outputs": [{"name": "output0", "parameters": {"binary_data": False}}],
    },
    lambda reply: reply["outputs"][0]["data"],
)
GRPS_REST = of_python("/grps/v1/infer/predict", _grps, _of_grps)
GRPS_GRPC = _grps_in_bytes("grps gRPC", grps.encode, lambda _: 5, method=f"/{GRPS_SERVICE}/Predict")
GRPS_BRPC = _grps_in_bytes(
    "grps BRPC",
    lambda document: Call(document).frame(FIRST_ID),
    lambda reply: 12 + int.from_bytes(reply[8:12]),  # behind the meta, whose size is the header's last number
    framed=True,
)
