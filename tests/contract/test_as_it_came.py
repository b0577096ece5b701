"""Requests and replies between a client and a server of the same protocol, through a complete gateway: the bytes stay
the same, or have the same meaning."""

from struct import pack

import pytest

from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.protocols.grps.brpc.frames import write_frame
from gateway.protocols.grps.brpc.meta import SERVICE
from gateway.protocols.grps.schema import RpcMeta
from gateway.protocols.v2.grpc.schema import MODEL_INFER
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked, recorded, reply
from tests.protocols.grps.protobuf.test_both_sides import OK, PREDICT
from tests.protocols.grps.protobuf.test_both_sides import written as grps_message
from tests.protocols.v2.grpc.wire import reply_body, request_body
from tests.wires import Server, Wires, replying

SIGNATURE = """
      inputs: [{name: x, datatype: FP32, shape: [-1, 2]}]
      outputs: [{name: x, datatype: FP32, shape: [-1, 2]}]"""


def config(protocol: str, more: str = "") -> str:
    scheme = "tcp://" if protocol in ("grps-brpc", "mip") else ""
    return f"""
listeners: [{{name: in, bind: "{scheme}127.0.0.1:0", protocols: [{protocol}], model: m}}]
backends: {{lab: {{protocol: {protocol}, endpoints: ["lab:1"]}}}}
routes:
  - match: {{model: m}}
    backend: lab
{more}
"""


JSON = ((b"content-type", b"application/json"),)
X = b'{"name": "x", "dtype": "DT_FLOAT32", "shape": [1, 2], "flat_float32": [1e0, 0.10]}'
GRPS = b'{"model": "m", "gtensors": {"tensors": [%b]}}' % X
GRPS_REPLY = b'{\n "status": {"code": 200, "msg": "OK", "status": "SUCCESS"},\n "gtensors": {"tensors": [%b]}\n}\n' % X


async def test_grps_rest() -> None:
    wires = Wires(config("grps-rest"), lab=replying(GRPS_REPLY, headers=JSON))
    for _ in range(2):
        reply = await wires.post("grps-rest", "/grps/v1/infer/predict", GRPS)
        assert reply.body == GRPS_REPLY
    assert [each.body for each in wires.sent["lab"]] == [GRPS, GRPS]


async def test_a_rewritten_model_is_written_in_the_body() -> None:
    wires = Wires(config("grps-rest", "    rewrite: {model: theirs}"), lab=replying(GRPS_REPLY, headers=JSON))
    reply = await wires.post("grps-rest", "/grps/v1/infer/predict", GRPS)
    assert bytes(wires.sent["lab"][0].body).startswith(b'{"model":"theirs","gtensors":')
    assert b'"model"' not in reply.body  # as in the server's reply


async def test_converted_numbers_are_written_anew() -> None:
    more = "    translate: {cast: round}\n    signature:" + SIGNATURE.replace("FP32", "FP64")
    wires = Wires(config("grps-rest", more), lab=replying(GRPS_REPLY, headers=JSON))
    await wires.post("grps-rest", "/grps/v1/infer/predict", GRPS)
    assert b"DT_FLOAT64" in wires.sent["lab"][0].body


async def test_grps_over_grpc() -> None:
    request, answer = grps_message(1.5, -2, model="m"), grps_message(3, 4, model="", status=OK)
    wires = Wires(config("grps-grpc"), lab=replying(answer, status=0))
    for _ in range(2):
        reply = await wires.send("grps-grpc", Message(path=PREDICT, parts=(request,)))
        assert reply.body == answer
    assert [each.body for each in wires.sent["lab"]] == [request, request]


async def test_grps_over_brpc() -> None:
    request, answer = grps_message(1.5, -2, model="m"), grps_message(3, 4, model="", status=OK)
    meta = RpcMeta(request={"service_name": SERVICE, "method_name": "Predict"}, correlation_id=7)
    frame = write_frame(meta.SerializeToString(), (request,))
    told = write_frame(RpcMeta(response={}, correlation_id=7).SerializeToString(), (answer,))
    wires = Wires(config("grps-brpc"), lab=framed(told))
    for _ in range(2):
        reply = await wires.send("grps-brpc", cut(frame))
        assert b"".join(reply.parts).endswith(answer)
    assert all(b"".join(each.parts).endswith(request) for each in wires.sent["lab"])


def cut(frame: Message) -> Message:
    """Return a frame in the form that a transport passes on."""
    joined = b"".join(frame.parts)
    return Message(parts=(joined[:12], joined[12:]))


def framed(reply: Message) -> Server:
    async def serve(_: Message) -> Message:
        return cut(reply)

    return serve


async def test_mip() -> None:
    request, told = mip(0, 0, b"[1e3, 0.10]", b"[-2, 2.50]"), mip(1, 1, b"[0.10]", b"[ 1e1]")
    wires = Wires(config("mip"), lab=replying(*map(bytes, told.parts), status=0))
    reply = await wires.send("mip", request)
    assert [b"".join(each.parts) for each in wires.sent["lab"]] == [b"".join(request.parts)]
    assert b"".join(reply.parts) == b"".join(told.parts)


def mip(subtype: int, outputs: int, *examples: bytes) -> Message:
    """Return an inference with one input or output in JSON."""
    tlvs = b"".join(pack("!2L", 2, len(each)) + each for each in examples)
    payload = pack("!2BH", 1, outputs, len(examples)) + tlvs
    return Message(parts=(pack("!4BL", 0, 2, subtype, 0, len(payload)), payload))


async def test_umbridge() -> None:
    told = b'{"output": [[0.10]]}'
    wires = Wires(config("umbridge"), lab=replying(told, headers=JSON))
    bodies = [b'{"name": "m", "input": [[%b, 0.10]], "config": {}}' % each for each in (b"1e0", b"2.50")]
    for body in bodies:
        assert (await wires.post("umbridge", "/Evaluate", body)).body == told
    assert [each.body for each in wires.sent["lab"] if each.path == "/Evaluate"] == bodies


async def test_v2_rest_with_an_id() -> None:
    def body(id: str, key: str, data: str) -> bytes:
        tensor = f'{{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [{data}]}}'
        return f'{{"id": "{id}", {key}: [{tensor}]}}'.encode()

    async def lab(message: Message) -> Message:
        id = bytes(message.body).split(b'"')[3].decode()
        reply = body(id, '"model_name": "m", "outputs"', "0.10, 1e1")
        return Message(headers=Headers(JSON), parts=(reply,), status=200)

    wires = Wires(config("v2-rest").replace("v2-rest, endpoints", "v2-rest, flavor: plain, endpoints"), lab=lab)
    for id in ("3f2a", "77-b"):
        reply = await wires.post("v2-rest", "/v2/models/m/infer", body(id, '"inputs"', "1e0, 0.10"))
        assert reply.body == body(id, '"model_name": "m", "outputs"', "0.10, 1e1")
        assert wires.sent["lab"][-1].body == body(id, '"inputs"', "1e0, 0.10")


@pytest.mark.parametrize("id", ["", "7"])
async def test_v2_grpc(id: str) -> None:
    def told(*numbers: float) -> bytes:
        return reply_body(pack("<2f", *numbers), model="m", id=id)

    replies = [told(1, 2), told(3, 4), told(5, 6)]
    left = list(replies)

    async def lab(_: Message) -> Message:
        return Message(parts=(left.pop(0),))

    wires = Wires(config("v2-grpc").replace("v2-grpc, endpoints", "v2-grpc, flavor: triton, endpoints"), lab=lab)
    bodies = [request_body(pack("<2f", at, -2), model="m", id=id) for at in range(3)]
    found = [await wires.send("v2-grpc", Message(path=MODEL_INFER, parts=(body,))) for body in bodies]
    assert [each.body for each in found] == replies
    assert [each.body for each in wires.sent["lab"]] == bodies


NAMED = "inputs: [{name: x, datatype: FP32, shape: [-1, 3]}], outputs: [{name: y, datatype: FP32, shape: [-1, 3]}]"


@pytest.mark.parametrize("more", ["", f"    signature: {{{NAMED}}}"], ids=["unknown", "known"])
async def test_graphpipe_is_written_anew_and_says_the_same(more: str) -> None:
    request, told = recorded("float32.request"), recorded("float32.reply")
    wires = Wires(config("graphpipe", more), lab=replying(told))
    answer = await wires.post("graphpipe", "/graphpipe/m", request)
    assert outputs(bytes(answer.body)) == outputs(told)
    [sent] = wires.sent["lab"]
    [given], [passed] = (asked(bytes(each)).inputs for each in (request, sent.body))
    assert (passed.datatype, passed.shape, bytes(passed.data)) == (given.datatype, given.shape, bytes(given.data))
    assert passed.name == ("x" if more else "")


def outputs(body: bytes) -> list[tuple[object, ...]]:
    response = GRAPHPIPE.decode_response(reply(body), Request(Operation.INFER), TARGET)
    assert isinstance(response, Response)
    return [(each.datatype, each.shape, bytes(each.data)) for each in response.outputs]
