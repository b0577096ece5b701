"""Metadata: to clients, and from backends."""

import json

from gateway.core.datatypes import Datatype
from gateway.core.messages import Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Request
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, call, reply

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 3)), TensorSpec("flag", Datatype.BOOL, ())),
    (TensorSpec("y", Datatype.BF16, (2,)),),
    name="m",
    versions=("1", "2"),
    platform="onnxruntime",
)


def answered(signature: Signature, method: str) -> Message:
    request = Request(Operation.METADATA, "m", origin=call(b"", "m", method))
    return GRAPHPIPE.encode_response(signature, request, DEFAULT_TRANSLATE)


def test_what_a_server_tells_people_goes_on() -> None:
    spec = TensorSpec("x", Datatype.FP32, (-1,), description="pixels, größe")
    told = Signature((spec,), (spec,), name="m", platform="go", description="finds cats", server_version="1.0.5")
    binary = answered(told, "POST").body
    assert GRAPHPIPE.decode_response(reply(binary), Request(Operation.METADATA), TARGET) == told
    shown = json.loads(bytes(answered(told, "GET").body))
    assert (shown["Version"], shown["Description"]) == ("1.0.5", "finds cats")
    assert [each["Description"] for each in shown["Inputs"] + shown["Outputs"]] == ["pixels, größe"] * 2


def test_metadata_is_binary_to_post_and_json_to_get() -> None:
    binary = answered(SIGNATURE, "POST").body
    read = GRAPHPIPE.decode_response(reply(binary), Request(Operation.METADATA), TARGET)
    assert read == Signature(
        (TensorSpec("x", Datatype.FP32, (-1, 3)), TensorSpec("flag", Datatype.UINT8, ())),
        (TensorSpec("y", Datatype.FP32, (2,)),),
        name="m",
        platform="onnxruntime",
        server_version="1, 2",
    )
    shown = answered(SIGNATURE, "GET")
    assert shown.headers.get("content-type") == "application/json"
    assert b'\n    "Name": "m",\n' in bytes(shown.body)
    assert json.loads(bytes(shown.body)) == {
        "Name": "m",
        "Version": "1, 2",
        "Server": "onnxruntime",
        "Description": "",
        "Inputs": [
            {"Name": "x", "Description": "", "Shape": [-1, 3], "Type": 10},
            {"Name": "flag", "Description": "", "Shape": [], "Type": 1},
        ],
        "Outputs": [{"Name": "y", "Description": "", "Shape": [2], "Type": 10}],
    }
