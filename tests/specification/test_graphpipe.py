"""GraphPipe: what the specification says, and how the Go servers behave."""

import json
from typing import Any

import numpy as np
import pytest

from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.protocols.graphpipe.errors import encode_errors
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, recorded
from tests.wires import Server, Wires, replying

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest, graphpipe]}]
backends: {lab: {protocol: graphpipe, endpoints: ["http://lab:1/double"]}}
routes:
  - match: {model: "*"}
    backend: lab
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 2]}]
"""


@pytest.mark.parametrize(
    ("protocol", "path", "body"),
    [
        ("umbridge", "/Gradient", {"name": "m", "outWrt": 0, "inWrt": 0, "input": [[1, 2]], "sens": [1, 1]}),
        ("umbridge", "/ApplyJacobian", {"name": "m", "outWrt": 0, "inWrt": 0, "input": [[1, 2]], "vec": [1, 1]}),
        (
            "v2-rest",
            "/v2/models/m.gradient/infer",
            {"inputs": [{"name": name, "datatype": "FP64", "shape": [1, 2], "data": [1, 2]} for name in ("x", "sens")]},
        ),
    ],
)
async def test_a_server_of_one_model_is_never_asked_for_its_derivative(
    protocol: str, path: str, body: dict[str, Any]
) -> None:
    """graphpipe-go's ServeRaw ignores the further inputs, and answers with the model's values."""
    wires = Wires(CONFIG, lab=replying(b"never read"))
    reply = await wires.post(protocol, path, json.dumps(body).encode())
    assert b"has one model and no derivative models" in reply.body
    assert reply.status == (400 if protocol == "umbridge" else 501)
    assert wires.sent["lab"] == []


def through(protocol: str, server: Server, keys: str = "") -> Wires:
    """A gateway in front of one server that speaks `protocol`, with these keys of the route."""
    text = CONFIG.replace("protocol: graphpipe", f"protocol: {protocol}").replace("http://lab:1/double", "lab:1")
    return Wires(text.replace("    backend: lab\n", f"    backend: lab\n    {keys}\n"), lab=server)


def infer(config: bytes) -> bytes:
    """An InferRequest with one FP64 `x` and this config."""
    parameters = {"config": config.decode(errors="surrogateescape")}
    request = Request(Operation.INFER, "m", inputs=(tensor("x", np.array([[1.0, 2.0]])),), parameters=parameters)
    return bytes(GRAPHPIPE.encode_request(request, TARGET).body)


NOT_TEXT = b"\xff\x00config\x80"


async def test_a_config_is_a_string_or_any_other_binary_data() -> None:
    wires = through("graphpipe", replying(recorded("float64.reply")))
    await wires.post("graphpipe", "/graphpipe/m", infer(NOT_TEXT), "application/octet-stream")
    [sent] = wires.sent["lab"]
    assert NOT_TEXT in sent.body


@pytest.mark.parametrize(
    ("protocol", "carried"),
    [
        ("umbridge", ""),
        ("v2-rest, flavor: plain", ""),
        ("v2-rest, flavor: binary", ""),
        ("v2-grpc", ""),
        ("grps-rest", ""),
        ("grps-rest", "translate: {carry_config: true}"),
        ("mip", "translate: {carry_config: true}"),
    ],
)
async def test_bytes_that_have_no_form_on_the_other_side_are_refused_there(protocol: str, carried: str) -> None:
    wires = through(protocol, replying(b"{}"), carried)
    reply = await wires.post("graphpipe", "/graphpipe/m", infer(NOT_TEXT), "application/octet-stream")
    assert reply.status == 400
    assert b"config" in reply.body
    assert all(NOT_TEXT not in message.body for message in wires.sent["lab"])


async def test_the_codes_and_the_list_of_errors_are_kept() -> None:
    two = encode_errors(((404, "no such thing"), (7, "and another")))
    wires = through("graphpipe", replying(two))
    reply = await wires.post("graphpipe", "/graphpipe/m", infer(b""), "application/octet-stream")
    assert (reply.status, bytes(reply.body)) == (404, two)


async def test_others_get_all_texts() -> None:
    wires = through("graphpipe", replying(encode_errors(((0, "first"), (7, "second")))))
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps(body).encode())
    assert (reply.status, json.loads(bytes(reply.body))["error"]) == (500, "first; second")


async def test_many_long_errors_are_cut() -> None:
    wires = through("graphpipe", replying(encode_errors(((500, "x" * 1000),) * 100)))
    reply = await wires.post("graphpipe", "/graphpipe/m", infer(b""), "application/octet-stream")
    assert reply.status == 500
    assert 8000 < len(reply.body) < 9000
