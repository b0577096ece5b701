"""OpenVINO Model Server and its client: protobuf's JSON names in V1's metadata, version 0 for the latest, image files
for numbers, and V2 with binary data that no extension lists.

The metadata are as `docs/model_server_rest_api_tfs.md` of OpenVINO's repository shows them.
"""

import json
from base64 import b64encode
from typing import Any

import pytest

from gateway.core.messages import Headers, Message
from gateway.protocols.tensorflow_serving.schema import PREDICT
from gateway.protocols.v2.grpc.schema import ModelConfigResponse
from tests.protocols.tensorflow_serving.wire import google
from tests.wires import Server, Wires

JSON = Headers([(b"content-type", b"application/json")])
JPEG = b"\xff\xd8\xff\xe0"
_IMAGE = [{"size": size, "name": ""} for size in ("224", "224", "3")]


def _tensor(name: str, *sizes: dict[str, str]) -> dict[str, Any]:
    return {"dtype": "DT_FLOAT", "tensorShape": {"dim": list(sizes), "unknownRank": False}, "name": name}


METADATA: dict[str, Any] = {
    "modelSpec": {"name": "resnet", "signatureName": "", "version": "1"},
    "metadata": {
        "signature_def": {
            "@type": "type.googleapis.com/tensorflow.serving.SignatureDefMap",
            "signatureDef": {
                "serving_default": {
                    "inputs": {"0": _tensor("0", {"size": "-1", "name": ""}, *_IMAGE)},
                    "outputs": {"1463": _tensor("1463", {"size": "-1"}, {"size": "2"})},
                    "methodName": "",
                    "defaults": {},
                }
            },
        }
    },
}
STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}]}
CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, v1-rest, tfs-grpc]}}]
backends: {{lab: {{protocol: {protocol}, endpoints: ["lab:1"]}}}}
routes: [{{match: {{model: resnet}}, backend: lab{route}}}]
"""


def _said(document: object, status: int = 200) -> Message:
    return Message(headers=JSON, parts=(json.dumps(document).encode(),), status=status)


async def _v1(message: Message) -> Message:
    match message.method, message.path:
        case "GET", "/v1/models/resnet/metadata":
            return _said(METADATA)
        case "GET", "/v1/models/resnet":
            return _said(STATUS)
        case "POST", "/v1/models/resnet:predict":
            return _said({"predictions": [[0.25, 0.75]]})
    return _said({"error": "Invalid request URL"}, 400)


def v1(route: str = "") -> Wires:
    return Wires(CONFIG.format(protocol="v1-rest", route=route), lab=_v1)


async def get(wires: Wires, protocol: str, path: str) -> Any:
    return json.loads(bytes((await wires.send(protocol, Message("GET", path, Headers()))).body))


async def test_metadata_of_v1_with_protobufs_names() -> None:
    metadata = await get(v1(), "v2-rest", "/v2/models/resnet")
    assert metadata["inputs"] == [{"name": "0", "datatype": "FP32", "shape": [-1, 224, 224, 3]}]
    assert metadata["outputs"] == [{"name": "1463", "datatype": "FP32", "shape": [-1, 2]}]
    assert metadata["versions"] == ["1"]


async def test_metadata_that_lack_a_member_are_told_by_its_name() -> None:
    async def without(message: Message) -> Message:
        return _said({"modelSpec": {}, "metadata": {}}) if message.path.endswith("/metadata") else await _v1(message)

    wires = Wires(CONFIG.format(protocol="v1-rest", route=""), lab=without)
    assert "'signature_def' is missing" in (await get(wires, "v2-rest", "/v2/models/resnet"))["error"]


IMAGES = b'{"instances": [{"b64": "%b"}]}' % b64encode(JPEG)
_HEADER = b'{"inputs": [{"name": "0", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 8}}]}'
IN_BINARY = Message(
    "POST", "/v2/models/resnet/infer", Headers([(b"inference-header-content-length", b"%d" % len(_HEADER))]),
    (_HEADER + len(JPEG).to_bytes(4, "little") + JPEG,),
)  # fmt: skip


async def test_image_files_go_to_a_server_that_decodes_them() -> None:
    wires = v1(", check: full")
    reply = await wires.post("v1-rest", "/v1/models/resnet:predict", IMAGES)
    sent = json.loads(bytes(wires.sent["lab"][-1].body))
    assert (reply.status, sent) == (200, json.loads(IMAGES))
    assert json.loads(bytes(reply.body)) == {"predictions": [[0.25, 0.75]]}


async def test_image_files_in_binary_data_go_to_it_as_well() -> None:

    wires = v1()
    reply = await wires.send("v2-rest", IN_BINARY)
    assert reply.status == 200
    assert json.loads(bytes(wires.sent["lab"][-1].body)) == json.loads(IMAGES)


async def test_a_server_that_names_a_method_takes_numbers_only() -> None:
    async def tensorflow(message: Message) -> Message:
        text = json.dumps(METADATA).replace('"methodName": ""', '"methodName": "tensorflow/serving/predict"')
        return _said(json.loads(text)) if message.path.endswith("/metadata") else await _v1(message)

    wires = Wires(CONFIG.format(protocol="v1-rest", route=", check: full"), lab=tensorflow)
    reply = await wires.post("v1-rest", "/v1/models/resnet:predict", IMAGES)
    assert reply.status == 400
    assert b"has shape [1], expected [-1, 224, 224, 3]" in bytes(reply.body)


# --- version 0 ---


@pytest.mark.parametrize("check", ["", ", check: full"])
async def test_version_0_of_v1_is_the_latest(check: str) -> None:
    wires = v1(check)
    body = json.dumps({"instances": [[[[0.0] * 3] * 224] * 224]}).encode()
    reply = await wires.post("v1-rest", "/v1/models/resnet/versions/0:predict", body)
    assert (reply.status, wires.sent["lab"][-1].path) == (200, "/v1/models/resnet:predict")
    assert (await get(wires, "v1-rest", "/v1/models/resnet/versions/0"))["ready"] is True


@pytest.mark.parametrize("check", ["", ", check: full"])
async def test_version_0_of_tensorflow_serving_is_the_latest(check: str) -> None:
    request = google("tensorflow.serving.PredictRequest")(model_spec={"name": "resnet", "version": {"value": 0}})
    request.inputs["x"].dtype = 1
    request.inputs["x"].float_val.append(1.0)
    wires = Wires(CONFIG.format(protocol="tfs-grpc", route=check), lab=_predicting)
    reply = await wires.send("tfs-grpc", Message("", PREDICT, Headers(), (request.SerializeToString(),)))
    sent = google("tensorflow.serving.PredictRequest").FromString(bytes(wires.sent["lab"][-1].body))
    assert (reply.status, sent.model_spec.WhichOneof("version_choice")) == (0, None)


async def _predicting(message: Message) -> Message:
    return Message(
        parts=(google("tensorflow.serving.PredictResponse")(model_spec={"name": "resnet"}).SerializeToString(),)
    )


# --- V2 ---


def v2(**metadata: object) -> Server:
    async def serve(message: Message) -> Message:
        if message.path == "/v2":
            return _said({"name": "OpenVINO Model Server", "version": "2024.4", **metadata})
        if message.method == "GET":
            return _said({"name": "resnet", "inputs": [], "outputs": []})
        return _said({"model_name": "resnet", "outputs": []})

    return serve


async def test_v2_sends_files_in_binary_data_that_the_server_does_not_list() -> None:

    for check in ("", ", check: full"):
        wires = Wires(CONFIG.format(protocol="v2-rest", route=check), lab=v2())
        reply = await wires.send("v2-rest", IN_BINARY)
        assert reply.status == 200
        assert bytes(wires.sent["lab"][-1].body).endswith(JPEG)


# --- a configuration for models whose server has none ---


async def test_a_configuration_is_written_from_metadata() -> None:
    expected = {
        "name": "resnet",
        "max_batch_size": 4096,
        "input": [{"name": "0", "data_type": "TYPE_FP32", "dims": [224, 224, 3]}],
        "output": [{"name": "1463", "data_type": "TYPE_FP32", "dims": [2]}],
        "parameters": {"gateway_from_metadata": {"string_value": "true"}},
    }
    assert await get(v1(), "v2-rest", "/v2/models/resnet/config") == expected
    asked = Message("", "/inference.GRPCInferenceService/ModelConfig", Headers(), (b"\n\x06resnet",))
    config = ModelConfigResponse.FromString(bytes((await v1().send("v2-grpc", asked)).body)).config
    assert (config.name, config.max_batch_size, list(config.input[0].dims)) == ("resnet", 4096, [224, 224, 3])
    assert config.parameters["gateway_from_metadata"].string_value == "true"


async def test_a_configuration_without_a_common_batch_has_whole_shapes() -> None:
    signature = (
        "{inputs: [{name: x, datatype: BYTES, shape: [-1]}],"
        " outputs: [{name: y, datatype: FP64, shape: [-1, 2]}, {name: z, datatype: BF16, shape: [4]}]}"
    )
    config = await get(v1(f", signature: {signature}"), "v2-rest", "/v2/models/resnet/config")
    assert config == {
        "name": "resnet",
        "max_batch_size": 0,
        "input": [{"name": "x", "data_type": "TYPE_STRING", "dims": [-1]}],
        "output": [
            {"name": "y", "data_type": "TYPE_FP64", "dims": [-1, 2]},
            {"name": "z", "data_type": "TYPE_BF16", "dims": [4]},
        ],
        "parameters": {"gateway_from_metadata": {"string_value": "true"}},
    }
