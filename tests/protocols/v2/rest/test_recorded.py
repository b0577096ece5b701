"""The replies of a real Triton 2.51, MLServer 1.7.1 and KServe 0.21 to the codec's requests; see recorded.py."""

import json

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, RequestedOutput, Response
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.flavors import REST_FLAVORS
from tests.protocols.v2.rest.recorded import REQUESTS, SINGLE, SORTS, infer, recorded, reply, target, tensor
from tests.protocols.v2.rest.wire import AS_IS

NAMES = [(flavor, name) for flavor, requests in REQUESTS.items() for name in requests]
FLAVOR_NAMES = tuple(REQUESTS)
DOUBLED = tensor("y", "FP32", (1, 3), "f", 2, 5, -6)


def answer(flavor: str, name: str) -> Answer:
    return V2_REST.decode_response(reply(flavor, name), REQUESTS[flavor][name], target(flavor))


def response(flavor: str, name: str) -> Response:
    found = answer(flavor, name)
    assert isinstance(found, Response)
    return found


def refused(flavor: str, name: str) -> GatewayError:
    with pytest.raises(GatewayError) as error:
        answer(flavor, name)
    return error.value


@pytest.mark.parametrize(("flavor", "name"), NAMES)
def test_writes_the_requests_that_were_recorded(flavor: str, name: str) -> None:
    head, _, body = recorded(flavor, name, "request").partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    message = V2_REST.encode_request(REQUESTS[flavor][name], target(flavor))
    assert line == f"{message.method} {message.path} HTTP/1.1"
    assert {f"{key}: {text}" for key, text in message.headers} <= set(headers)
    assert bytes(message.body) == body


@pytest.mark.parametrize(
    ("flavor", "version", "extensions"),
    [("triton", "2.51.0", True), ("mlserver", "1.7.1", False), ("kserve", "0.21.0", True)],
)
def test_detects_the_flavor_of_each_server(flavor: str, version: str, extensions: bool) -> None:
    info = answer(flavor, "server_metadata")
    assert isinstance(info, ServerInfo)
    assert (info.name, info.version, bool(info.extensions)) == (flavor, version, extensions)
    assert REST_FLAVORS.detect(info) == flavor


@pytest.mark.parametrize("flavor", FLAVOR_NAMES)
def test_readiness(flavor: str) -> None:
    answers = [answer(flavor, name) for name in ("ready", "model_ready", "model_ready_unknown")]
    assert answers == [True, True, False]


PLATFORM = {"triton": "python"}
VERSIONS = {"triton": ("1",)}


@pytest.mark.parametrize("flavor", FLAVOR_NAMES)
def test_metadata(flavor: str) -> None:
    assert answer(flavor, "metadata") == Signature(
        (TensorSpec("x", Datatype.FP32, (-1, 3)),),
        (TensorSpec("y", Datatype.FP32, (-1, 3)),),
        name="single",
        versions=VERSIONS.get(flavor, ()),
        platform=PLATFORM.get(flavor, ""),
    )


@pytest.mark.parametrize("flavor", ["mlserver", "kserve"])
def test_metadata_of_a_model_that_declares_nothing(flavor: str) -> None:
    assert answer(flavor, "metadata_undeclared") == Signature(name="undeclared")


def test_versions_of_mlserver() -> None:
    found = answer("mlserver", "version")
    assert isinstance(found, Signature)
    assert found.versions == ("v9", "v10")
    error = refused("mlserver", "error_version")
    assert (error.reason, error.message) == (Reason.MODEL_NOT_FOUND, "Model versioned with version v9 not found")


@pytest.mark.parametrize(
    ("flavor", "entry"),
    [
        ("triton", ModelEntry("single", "1", "READY")),
        ("mlserver", ModelEntry("single", "", "READY")),
        ("kserve", ModelEntry("single")),
    ],
)
def test_models(flavor: str, entry: ModelEntry) -> None:
    models = answer(flavor, "models")
    assert isinstance(models, tuple)
    assert entry in models


@pytest.mark.parametrize("flavor", FLAVOR_NAMES)
@pytest.mark.parametrize("name", ["infer", "infer_without_id", "infer_requested"])
def test_reads_recorded_inferences(flavor: str, name: str) -> None:
    found = response(flavor, name)
    (output,) = found.outputs
    assert replace(output, data=bytes(output.data)) == DOUBLED
    assert (found.model, found.version, found.parameters) == ("single", "1" if flavor == "triton" else "", {})


@pytest.mark.parametrize("flavor", FLAVOR_NAMES)
def test_the_servers_own_ids_and_headers_do_not_reach_the_client(flavor: str) -> None:
    """MLServer adds an id and CloudEvents headers; KServe writes nulls and repeats the gateway's parameter."""
    client_request = Request(Operation.INFER, "single", protocol="v2-rest")
    written = V2_REST.encode_response(response(flavor, "infer_without_id"), client_request, AS_IS)
    version = {"model_version": "1"} if flavor == "triton" else {}
    assert list(written.headers) == [("content-type", "application/json")]
    assert json.loads(bytes(written.parts[0])) == {
        "model_name": "single",
        **version,
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2.0, 5.0, -6.0]}],
    }


@pytest.mark.parametrize("flavor", ["mlserver", "kserve"])
def test_the_models_parameters_are_carried(flavor: str) -> None:
    assert response(flavor, "infer_parameters").parameters == {"k": 1, "f": 1.5, "b": True, "s": "é"}


@pytest.mark.parametrize("flavor", ["mlserver", "kserve"])
def test_every_datatype_keeps_its_bits(flavor: str) -> None:
    outputs = response(flavor, "infer_sorts").outputs
    assert tuple(replace(each, data=bytes(each.data)) for each in outputs) == SORTS


@pytest.mark.parametrize("flavor", ["mlserver", "kserve"])
def test_bf16_is_sent_as_fp32_to_servers_without_it(flavor: str) -> None:
    (output,) = response(flavor, "infer_bf16").outputs
    assert b'"parameters":{"gateway_datatype":"BF16"' in recorded(flavor, "infer_bf16", "request")
    assert output.array.tolist() == [0.10009765625, 1.0]


def test_nan_survives_binary_replies_and_not_json_replies() -> None:
    (output,) = response("kserve", "infer_nothing_finite").outputs
    assert str(output.array.tolist()) == "[[nan]]"
    with pytest.raises(DecodeError, match="null"):
        answer("mlserver", "infer_nothing_finite")


@pytest.mark.parametrize(
    ("flavor", "name", "reason", "text"),
    [
        ("triton", "error_unknown_model", Reason.MODEL_NOT_FOUND, "Request for unknown model: 'nobody' is not found"),
        ("mlserver", "error_unknown_model", Reason.MODEL_NOT_FOUND, "Model nobody not found"),
        ("kserve", "error_unknown_model", Reason.MODEL_NOT_FOUND, "Model with name nobody does not exist."),
        ("triton", "error_refused", Reason.INVALID_INPUT, "refused with code 4"),
        ("mlserver", "error_refused", Reason.INVALID_INPUT, "refused with code 422"),
        ("kserve", "error_refused", Reason.INVALID_INPUT, "refused with code 1"),
        ("kserve", "error_not_ready", Reason.UNREACHABLE, "Model with name refused with code 3 is not ready."),
        ("mlserver", "error_crash", Reason.MODEL_ERROR, "Internal Server Error"),
        ("kserve", "error_crash", Reason.MODEL_ERROR, "RuntimeError : refused with code 9"),
        ("mlserver", "error_invalid", Reason.INVALID_INPUT, "body.71: JSON decode error"),
    ],
)
def test_errors(flavor: str, name: str, reason: Reason, text: str) -> None:
    error = refused(flavor, name)
    assert (error.reason, error.message) == (reason, text)


def test_a_crash_in_triton() -> None:
    error = refused("triton", "error_crash")
    assert error.reason is Reason.MODEL_ERROR
    assert "RuntimeError: crashed with code 9" in error.message


# --- requests that are not recorded ---


def test_kserve_has_no_versions() -> None:
    with pytest.raises(GatewayError, match=r"a KServe, which has no versions, not '1'.*rewrite\.version") as error:
        V2_REST.encode_request(infer("single", SINGLE, version="1"), target("kserve"))
    assert error.value.reason is Reason.MODEL_NOT_FOUND


@pytest.mark.parametrize("flavor", ["", "triton", "binary", "kserve"])
def test_tensors_are_binary_for_flavors_that_read_it(flavor: str) -> None:
    message = V2_REST.encode_request(infer("single", SINGLE), target(flavor))
    assert bytes(message.parts[1]) == bytes(SINGLE.data)


@pytest.mark.parametrize("flavor", ["plain", "mlserver"])
def test_tensors_are_json_for_the_other_flavors(flavor: str) -> None:
    message = V2_REST.encode_request(infer("single", SINGLE, outputs=(RequestedOutput("y"),)), target(flavor))
    assert list(message.headers) == [("content-type", "application/json")]
    assert json.loads(bytes(message.body)) == {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.5, -3.0]}],
        "outputs": [{"name": "y"}],
    }


def test_half_floats_are_widened_for_a_plain_server() -> None:
    message = V2_REST.encode_request(infer("m", tensor("h", "FP16", (1,), "e", 0.5)), target("plain"))
    (given,) = json.loads(bytes(message.body))["inputs"]
    marked = {"parameters": {"gateway_datatype": "FP16"}}
    assert given == {"name": "h", "datatype": "FP32", "shape": [1], **marked, "data": [0.5]}


@pytest.mark.parametrize(
    ("info", "flavor"),
    [
        (None, "plain"),
        (ServerInfo("any", "1"), "plain"),
        (ServerInfo("any", "1", ("statistics",)), "plain"),
        (ServerInfo("modelglot", "1", ("binary_tensor_data", "parameters")), "binary"),
        (ServerInfo("kserve", "0.9", ("binary_tensor_data",)), "kserve"),
    ],
)
def test_a_flavor_is_detected_from_server_metadata(info: ServerInfo | None, flavor: str) -> None:
    assert REST_FLAVORS.detect(info) == flavor
    assert flavor in REST_FLAVORS.names
