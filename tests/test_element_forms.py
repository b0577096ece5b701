"""How elements are written on V2 where messages are read: marks (`content_type`) and typed or raw contents reach the
other side together with what they are about, or neither does."""

import json
from typing import Any

import pytest

from gateway.core.messages import Headers, Message
from gateway.protocols.v2.grpc.schema import ModelInferRequest, ModelInferResponse
from tests.protocols.v2.grpc.wire import INFER
from tests.wires import Server, Wires, replying

JSON = Headers([(b"content-type", b"application/json")])
MARK = {"content_type": "base64"}
MARKED: dict[str, Any] = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": MARK, "data": ["dGVzdA=="]}
OUTPUT = {**MARKED, "name": "y"}


def config(protocol: str, flavor: str = "mlserver", route: str = "", listener: str = "") -> str:
    flavor = f", flavor: {flavor}" if flavor else ""
    return f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, tfs-grpc]{listener}}}]
check: full
backends: {{lab: {{protocol: {protocol}, endpoints: ["lab:1"]{flavor}}}}}
routes: [{{match: {{model: m}}, backend: lab{route}}}]
"""


def rest_reply(**changes: Any) -> Server:
    body = json.dumps({"model_name": "m", "outputs": [{**OUTPUT, **changes}]})
    return replying(body.encode(), headers=tuple(JSON.raw))


def filled(tensor: Any, raw_contents: Any, mark: str = "", raw: bytes = b"", **contents: Any) -> None:
    """Give the tensor its datatype, its mark and its typed contents, or the message raw ones."""
    tensor.datatype = "BYTES" if mark else "FP32"
    tensor.shape.append(1)
    if mark:
        tensor.parameters["content_type"].string_param = mark
    if contents:
        tensor.contents.CopyFrom(type(tensor.contents)(**contents))
    else:
        raw_contents.append(raw)


def grpc_reply(**contents: Any) -> Server:
    reply = ModelInferResponse(model_name="m")
    filled(reply.outputs.add(name="y"), reply.raw_output_contents, **contents)
    return replying(reply.SerializeToString(), status=0)


def grpc_request(**contents: Any) -> Message:
    request = ModelInferRequest(model_name="m")
    filled(request.inputs.add(name="x"), request.raw_input_contents, **contents)
    return Message("", INFER, Headers(), (request.SerializeToString(),), pattern=INFER)


def answered(reply: Message) -> Any:
    return ModelInferResponse.FromString(bytes(reply.body))


def element(text: bytes) -> bytes:
    return len(text).to_bytes(4, "little") + text


def posted(wires: Wires) -> Any:
    return json.loads(bytes(wires.sent["lab"][0].body))


def called(wires: Wires) -> Any:
    return ModelInferRequest.FromString(bytes(wires.sent["lab"][0].body))


async def infer(wires: Wires, tensor: Any = MARKED) -> Any:
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps({"inputs": [tensor]}).encode())
    return json.loads(bytes(reply.body))


# --- marks ---


async def test_a_mark_goes_with_its_text_from_rest_to_rest() -> None:
    wires = Wires(config("v2-rest"), lab=rest_reply())
    answer = await infer(wires)
    assert posted(wires)["inputs"] == [MARKED]
    assert answer["outputs"] == [OUTPUT]


async def test_a_mark_goes_with_its_text_into_binary_data_and_back() -> None:
    wires = Wires(config("v2-rest", "triton"), lab=rest_reply())
    answer = await infer(wires)
    body = bytes(wires.sent["lab"][0].body)
    assert b'"content_type":"base64"' in body
    assert body.endswith(element(b"dGVzdA=="))
    assert answer["outputs"] == [OUTPUT]


async def test_a_mark_goes_with_its_text_from_rest_to_grpc_and_back() -> None:
    wires = Wires(config("v2-grpc"), lab=grpc_reply(mark="base64", raw=element(b"AP8=")))
    answer = await infer(wires)
    assert called(wires).raw_input_contents == [element(b"dGVzdA==")]
    assert called(wires).inputs[0].parameters["content_type"].string_param == "base64"
    assert answer["outputs"] == [{**OUTPUT, "data": ["AP8="]}]


async def test_a_mark_goes_with_its_text_from_grpc_to_rest_and_back() -> None:
    wires = Wires(config("v2-rest"), lab=rest_reply())
    reply = await wires.send("v2-grpc", grpc_request(mark="base64", raw=element(b"AP8=")))
    assert posted(wires)["inputs"] == [{**MARKED, "data": ["AP8="]}]
    answer = answered(reply)
    assert answer.raw_output_contents == [element(b"dGVzdA==")]
    assert answer.outputs[0].parameters["content_type"].string_param == "base64"


async def test_with_bytes_base64_a_grpc_server_gets_bytes_and_its_marked_reply_is_not_encoded_twice() -> None:
    text = config("v2-grpc", route=", translate: {bytes: base64}")
    wires = Wires(text, lab=grpc_reply(mark="base64", raw=element(b"AP8=")))
    answer = await infer(wires)
    assert called(wires).raw_input_contents == [element(b"test")]
    assert not called(wires).inputs[0].parameters
    assert answer["outputs"] == [{**OUTPUT, "data": ["AP8="]}]


async def test_another_protocol_gets_the_bytes_without_the_mark() -> None:
    wires = Wires(config("graphpipe", ""), lab=replying(b""))
    await infer(wires)
    body = bytes(wires.sent["lab"][0].body)
    assert b"test" in body
    assert b"dGVzdA" not in body


@pytest.mark.parametrize("mark", ["np", "str"])
async def test_marks_that_change_no_element_go_on_or_are_left_out(mark: str) -> None:
    tensor = {**MARKED, "parameters": {"content_type": mark}}
    rest = Wires(config("v2-rest"), lab=rest_reply(parameters={"content_type": mark}))
    answer = await infer(rest, tensor)
    assert (posted(rest)["inputs"], answer["outputs"]) == ([tensor], [{**tensor, "name": "y"}])
    other = Wires(config("graphpipe", ""), lab=replying(b""))
    await infer(other, tensor)
    assert b"dGVzdA==" in bytes(other.sent["lab"][0].body)


async def test_a_mark_of_a_models_own_is_a_parameter() -> None:
    tensor = {**MARKED, "parameters": {"content_type": "datetime"}}
    wires = Wires(config("v2-rest"), lab=rest_reply())
    await infer(wires, tensor)
    assert posted(wires)["inputs"] == [tensor]
    refused = await infer(Wires(config("graphpipe", ""), lab=replying(b"")), tensor)
    assert refused["error"].startswith("parameter 'content_type' of input 'x' is not supported")


async def test_an_element_that_is_not_base64_is_refused_by_name() -> None:
    wires = Wires(config("v2-rest"), lab=rest_reply())
    reply = await wires.send("v2-grpc", grpc_request(mark="base64", raw=element(b"test!")))
    assert "input 'x': an element is not base64" in reply.headers.get("grpc-message", str(reply))


# --- typed and raw contents ---

ONE = b"\0\0\x80\x3f"


async def test_typed_goes_to_typed_and_back() -> None:
    wires = Wires(config("v2-grpc"), lab=grpc_reply(fp32_contents=[2.0]))
    reply = await wires.send("v2-grpc", grpc_request(fp32_contents=[1.0]))
    assert list(called(wires).inputs[0].contents.fp32_contents) == [1.0]
    assert not called(wires).raw_input_contents
    answer = answered(reply)
    assert list(answer.outputs[0].contents.fp32_contents) == [2.0]
    assert not answer.raw_output_contents


async def test_raw_goes_to_raw_and_back_whatever_the_server_answers() -> None:
    for server in (grpc_reply(raw=ONE), grpc_reply(fp32_contents=[1.0])):
        wires = Wires(config("v2-grpc"), lab=server)
        reply = await wires.send("v2-grpc", grpc_request(raw=ONE))
        assert called(wires).raw_input_contents == [ONE]
        assert answered(reply).raw_output_contents == [ONE]


async def test_a_raw_reply_to_a_typed_request_stays_raw() -> None:
    wires = Wires(config("v2-grpc", "triton"), lab=grpc_reply(raw=ONE))
    reply = await wires.send("v2-grpc", grpc_request(fp32_contents=[1.0]))
    assert answered(reply).raw_output_contents == [ONE]


@pytest.mark.parametrize("server", ["v2-grpc", "v2-rest"])
async def test_a_listener_of_mlservers_clients_answers_typed_requests_typed(server: str) -> None:
    flavor = ", flavor: {v2-grpc: mlserver}"
    numbers = {"datatype": "FP32", "data": [1.0], "parameters": {}}
    lab = grpc_reply(raw=ONE) if server == "v2-grpc" else rest_reply(**numbers)
    wires = Wires(config(server, "triton", listener=flavor), lab=lab)
    typed = await wires.send("v2-grpc", grpc_request(fp32_contents=[1.0]))
    raw = await wires.send("v2-grpc", grpc_request(raw=ONE))
    assert list(answered(typed).outputs[0].contents.fp32_contents) == [1.0]
    assert answered(raw).raw_output_contents == [ONE]


NUMBERS = {
    "BOOL": ([True, False], "bool_contents"),
    "INT8": ([-128, 127], "int_contents"),
    "INT16": ([-2, 3], "int_contents"),
    "INT32": ([-(2**31), 2**31 - 1], "int_contents"),
    "INT64": ([-(2**63), 2**63 - 1], "int64_contents"),
    "UINT8": ([0, 255], "uint_contents"),
    "UINT16": ([0, 65535], "uint_contents"),
    "UINT32": ([0, 2**32 - 1], "uint_contents"),
    "UINT64": ([0, 2**64 - 1], "uint64_contents"),
    "FP32": ([0.5, -1.0], "fp32_contents"),
    "FP64": ([0.1, 1e300], "fp64_contents"),
}


@pytest.mark.parametrize("datatype", NUMBERS)
async def test_a_server_that_reads_contents_alone_gets_them_from_any_client(datatype: str) -> None:
    values, field = NUMBERS[datatype]
    wires = Wires(config("v2-grpc", "typed"), lab=grpc_reply(fp32_contents=[2.0]))
    answer = await infer(wires, {"name": "x", "datatype": datatype, "shape": [2], "data": values})
    assert list(getattr(called(wires).inputs[0].contents, field)) == values
    assert not called(wires).raw_input_contents
    assert answer["outputs"][0]["data"] == [2.0]


async def test_a_server_that_reads_contents_alone_gets_texts_and_half_numbers() -> None:
    wires = Wires(config("v2-grpc", "typed"), lab=grpc_reply(fp32_contents=[2.0]))
    await infer(wires, {"name": "x", "datatype": "BYTES", "shape": [3], "data": ["a", "", "bc"]})
    assert list(called(wires).inputs[0].contents.bytes_contents) == [b"a", b"", b"bc"]
    wires = Wires(config("v2-grpc", "typed"), lab=grpc_reply(fp32_contents=[2.0]))
    await infer(wires, {"name": "x", "datatype": "FP16", "shape": [1], "data": [0.5]})
    assert list(called(wires).inputs[0].contents.fp32_contents) == [0.5]
    assert called(wires).inputs[0].parameters["gateway_datatype"].string_param == "FP16"


@pytest.mark.parametrize("check", ["full", "routing"])
async def test_a_raw_request_to_a_server_that_reads_contents_alone(check: str) -> None:
    text = config("v2-grpc", "typed").replace("check: full", f"check: {check}" if check == "full" else "")
    wires = Wires(text, lab=grpc_reply(fp32_contents=[1.0]))
    reply = await wires.send("v2-grpc", grpc_request(raw=ONE))
    assert list(called(wires).inputs[0].contents.fp32_contents) == [1.0]
    assert answered(reply).raw_output_contents == [ONE]
    wires = Wires(text, lab=grpc_reply(fp32_contents=[1.0]))
    reply = await wires.send("v2-grpc", grpc_request(fp32_contents=[1.0]))
    assert list(called(wires).inputs[0].contents.fp32_contents) == [1.0]
    assert list(answered(reply).outputs[0].contents.fp32_contents) == [1.0]
