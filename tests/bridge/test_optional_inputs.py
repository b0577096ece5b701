"""Inputs that a model's configuration calls optional: requests as clients write them, to a server that tells it."""

import json
from typing import Any

import pytest

from gateway.core.messages import Headers, Message
from tests.wires import Wires

TEXT = """
listeners: [{name: http, bind: "127.0.0.1:1", protocols: [v1-rest, v2-rest, grps-rest]}]
backends: {lab: {protocol: v2-rest, endpoints: ["lab:1"]}}
routes: [{match: {model: "*"}, backend: lab, check: full%s}]
"""
SPECS = [
    {"name": "text", "datatype": "BYTES", "shape": [-1, 1]},
    {"name": "end_id", "datatype": "INT32", "shape": [-1, 1]},
]
ANSWERS: dict[str, Any] = {
    "/v2": {"name": "triton", "version": "2", "extensions": ["model_configuration", "generate"]},
    "/v2/models/m": {
        "name": "m", "versions": ["1"], "platform": "", "inputs": SPECS,
        "outputs": [{"name": "y", "datatype": "INT32", "shape": [-1, 1]}],
    },
    "/v2/models/m/config": {"name": "m", "input": [{"name": "text"}, {"name": "end_id", "optional": True}]},
    "/v2/models/m/infer": {
        "model_name": "m", "outputs": [{"name": "y", "datatype": "INT32", "shape": [1, 1], "data": [7]}]
    },
}  # fmt: skip


async def triton(message: Message) -> Message:
    body = json.dumps(ANSWERS[message.path]).encode()
    return Message(headers=Headers(((b"content-type", b"application/json"),)), parts=(body,), status=200)


def sent(gateway: Wires) -> list[list[str]]:
    bodies = [
        json.JSONDecoder().raw_decode(bytes(each.body).decode("latin-1"))[0]
        for each in gateway.sent["lab"]
        if each.path.endswith("/infer")
    ]
    return [[each["name"] for each in body["inputs"]] for body in bodies]


REQUESTS = {
    "generate": ("v2-rest", "/v2/models/m/generate", {"text": "hi"}),
    "rows of v1": ("v1-rest", "/v1/models/m:predict", {"instances": [{"text": "hi"}]}),
    "bare rows of v1": ("v1-rest", "/v1/models/m:predict", {"instances": [["hi"]]}),
    "columns of v1": ("v1-rest", "/v1/models/m:predict", {"inputs": {"text": [["hi"]]}}),
    "grps": ("grps-rest", "/grps/v1/infer/predict", {"model": "m", "gmap": {"sS": {"text": "hi"}}}),
}
DECLARED = """, signature: {inputs: [
  {name: text, datatype: BYTES, shape: [-1, 1]}, {name: end_id, datatype: INT32, shape: [-1, 1], optional: true}]}"""


@pytest.mark.parametrize("declared", ["", DECLARED], ids=["told by the server", "declared"])
@pytest.mark.parametrize(("protocol", "path", "body"), REQUESTS.values(), ids=REQUESTS)
async def test_they_may_be_missing(protocol: str, path: str, body: object, declared: str) -> None:
    gateway = Wires(TEXT % declared, lab=triton)
    reply = await gateway.post(protocol, path, json.dumps(body).encode())
    assert (reply.status, sent(gateway)) == (200, [["text"]]), bytes(reply.body)


async def test_others_may_not() -> None:
    gateway = Wires(TEXT % "", lab=triton)
    reply = await gateway.post("v1-rest", "/v1/models/m:predict", b'{"inputs": {"end_id": [[1]]}}')
    assert (reply.status, sent(gateway)) == (400, [])
    assert b"input 'text' is missing" in bytes(reply.body)
