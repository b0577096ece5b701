"""grps: what its sample clients, brpc's client and its servers send."""

import json
from struct import pack
from typing import Any

import pytest

from gateway.assembly.registry import protocols
from gateway.core.messages import Message
from gateway.protocols.grps.brpc.frames import read_frame
from gateway.protocols.grps.protobuf.message import read_message
from gateway.reference import signature
from gateway.reference.callables import from_callable
from tests.protocols.grps.brpc.recorded import META, joined
from tests.wires import Wires, cut, reference, replying

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [grps-rest, v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [grps-grpc]}
  - {name: brpc, bind: "127.0.0.1:0", protocols: [grps-brpc]}
backends: {lab: {protocol: PROTOCOL, endpoints: ["lab:1"]}}
routes: [{match: {model: "*"}, backend: lab}]
"""
PREDICT = "/grps/v1/infer/predict"
OK = {"code": 200, "msg": "OK", "status": "SUCCESS"}


def config(protocol: str) -> str:
    return CONFIG.replace("PROTOCOL", protocol)


def document(message: Message) -> Any:
    return json.loads(bytes(message.body))


VALUES = {"s_s": "value", "s_b": "dmFsdWU=", "s_i32": 1, "s_i64": "2", "s_f": 0.5, "s_d": 0.25}
SIX = {name: {"key": value} for name, value in VALUES.items()}
"""As grps' own sample clients send it."""


async def echo(message: Message) -> Message:
    body = document(message)
    return Message(parts=(json.dumps({"status": OK, "gmap": body["gmap"]}).encode(),), status=200)


async def test_a_gmap_may_have_one_key_in_several_maps() -> None:
    wires = Wires(config("grps-rest"), lab=echo)
    reply = await wires.post("grps-rest", PREDICT, json.dumps({"model": "m", "gmap": SIX}).encode())
    assert document(wires.sent["lab"][0])["gmap"] == SIX
    assert (reply.status, document(reply)["gmap"]) == (200, SIX)


async def test_the_same_in_protobuf() -> None:
    octets = bytes.fromhex("12016d 3a16 0a06 0a016b 120176 1a05 0a016b1001 2205 0a016b1002".replace(" ", ""))
    wires = Wires(config("grps-grpc"), lab=replying(octets, status=0))
    reply = await wires.send("grps-grpc", Message(path="/grps.protos.v1.GrpsService/Predict", parts=(octets,)))
    [sent] = wires.sent["lab"]
    there, here = (
        sorted((each.name, each.datatype, bytes(each.data)) for each in read_message(message, 1000).tensors)
        for message in (sent.body, octets)
    )
    assert there == here
    assert bytes(reply.body).endswith(octets[3:])


async def test_towards_others_such_entries_have_the_names_of_their_maps() -> None:
    wires = Wires(config("v2-rest, flavor: plain"), lab=replying(b'{"model_name":"m","outputs":[]}'))
    given = {"s_i32": {"k": 1, "alone": 2}, "s_d": {"k": 0.5}}
    await wires.post("grps-rest", PREDICT, json.dumps({"model": "m", "gmap": given}).encode())
    asked = document(wires.sent["lab"][-1])
    assert [each["name"] for each in asked["inputs"]] == ["s_i32.k", "alone", "s_d.k"]


async def test_what_comes_back_under_these_names_is_the_gmap_again() -> None:
    async def v2(message: Message) -> Message:
        if message.method == "GET":
            return Message(status=404, parts=(b'{"error":"unknown"}',))
        body = {"model_name": "m", "outputs": document(message)["inputs"]}
        return Message(parts=(json.dumps(body).encode(),), status=200)

    entries = "[{name: s_i32.k, datatype: INT32, shape: [1]}, {name: s_d.k, datatype: FP64, shape: [1]}]"
    told = f"backend: lab, signature: {{inputs: {entries}, outputs: {entries}}}"
    wires = Wires(config("v2-rest, flavor: plain").replace("backend: lab", told), lab=v2)
    given = {"s_i32": {"k": 1}, "s_d": {"k": 0.5}}
    reply = await wires.post("grps-rest", PREDICT, json.dumps({"model": "m", "gmap": given}).encode())
    assert document(reply)["gmap"] == given


async def brpc(payload: bytes, meta: bytes = META) -> tuple[int, bytes]:
    """The error code of the reply's frame, and its payload."""
    wires = Wires("check: full" + config("grps-brpc"), lab=replying(b""))
    frame = joined(meta, payload)
    reply = await wires.send("grps-brpc", Message(parts=(frame,)))
    header, rest = cut(protocols()["grps-brpc"], b"".join(map(bytes, reply.parts)))
    found = read_frame(Message(parts=(header, rest)))
    return found.meta.response.error_code, bytes(found.payload)


def gtensors(*fields: bytes) -> bytes:
    """A GrpsMessage with one tensor of these fields."""
    tensor = b"".join(fields)
    entry = b"\x0a" + bytes([len(tensor)]) + tensor
    return b"\x12\x01m\x2a" + bytes([len(entry)]) + entry


FP32, SHAPE_3 = b"\x10\x07", b"\x1a\x01\x03"


def floats(*numbers: float) -> bytes:
    return b"\x52" + bytes([4 * len(numbers)]) + pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize(
    "payload",
    [
        gtensors(FP32, SHAPE_3, floats(1, 2)),
        gtensors(b"\x10\x09", SHAPE_3, floats(1, 2, 3)),
        gtensors(SHAPE_3, floats(1, 2, 3)),
        gtensors(FP32, b"\x1a\x03\x80\x80\x01", floats(1)),
    ],
    ids=["too few", "another list", "no dtype", "a long shape"],
)
async def test_a_tensor_that_is_not_what_it_says_is_a_failure_in_the_message(payload: bytes) -> None:
    code, message = await brpc(payload)
    assert code == 0
    status = read_message(message, 10_000).status
    assert status is not None
    assert (status.code, status.flag) == (400, 2)


@pytest.mark.parametrize("payload", [b"\xff", b"\x2a\x05\x0a", b"\x2a\x02\x0a\x05", b"\x2a\x04\x0a\x02\x1a\x05"])
async def test_a_payload_that_is_no_message_fails_the_call(payload: bytes) -> None:
    assert await brpc(payload) == (1003, b"")


@pytest.mark.parametrize(
    ("returned", "numbers"), [("[[1, 2], [3, 4]]", [1.0, 2.0, 3.0, 4.0]), ("[0.5]", [0.5]), ("7", [7.0])]
)
async def test_an_ndarray_is_fp32(returned: str, numbers: list[float]) -> None:
    answer = f'{{"status": {json.dumps(OK)}, "ndarray": {returned}}}'.encode()
    wires = Wires(config("grps-rest"), lab=replying(answer))
    x = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps({"inputs": [x]}).encode())
    [output] = document(reply)["outputs"]
    assert (output["datatype"], output["data"]) == ("FP32", numbers)


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def twice(x: Any) -> Any:
    return 2 * x


@pytest.mark.parametrize("protocol", ["grps-rest", "grps-grpc", "grps-brpc"])
async def test_a_model_that_does_not_exist_is_neither_ready_nor_described(protocol: str) -> None:
    wires = Wires(config(protocol), lab=reference(protocol, from_callable("twice", twice)))
    for path, method in (("/v2/models/NAME", "GET"), ("/v2/models/NAME/ready", "GET")):
        there = await wires.send("v2-rest", Message(method, path.replace("NAME", "twice")))
        missing = await wires.send("v2-rest", Message(method, path.replace("NAME", "wrong")))
        assert (there.status, missing.status) == (200, 404), path


async def test_metadata_are_told_to_everybody_where_they_are_trusted() -> None:
    wires = Wires(config("grps-rest, trust_metadata: true"), lab=reference("grps-rest", from_callable("twice", twice)))
    told = document(await wires.send("v2-rest", Message("GET", "/v2/models/twice")))
    assert told["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 1]}]
    assert told["outputs"] == [{"name": "y", "datatype": "FP64", "shape": [-1, 1]}]
