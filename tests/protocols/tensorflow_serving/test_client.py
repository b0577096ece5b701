"""What is asked of servers, and what their replies are taken for."""

import numpy as np
import pytest
from google.protobuf.json_format import ParseDict

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protobuf.fields import write_field
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.tensorflow_serving.inference import TASKS
from tests.protocols.tensorflow_serving.wire import (
    MODELS,
    PREDICTION,
    TARGET,
    TFS,
    answered,
    google,
    infer,
    outputs,
    sent,
)

X = tensor("x", np.array([[1, 2]], np.float32))
SERVING = "tensorflow.serving."


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (infer(X, parameters={"level": 7}), "no parameters but 'signature_name'; got 'level'"),
        (infer(X, parameters={"signature_name": 7}), "parameter 'signature_name' is 7; expected the name"),
        (infer(X, outputs=(RequestedOutput("y", {"classification": 2}),)), "parameter 'classification' of output 'y'"),
        (infer(Tensor("x", Datatype.FP32, (1,), bytes(4), "", {"k": 1})), "parameter 'k' of input 'x'"),
        (infer(Tensor("", Datatype.FP32, (1,), bytes(4))), "an input has no name"),
        (infer(Tensor("\ud800", Datatype.FP32, (1,), bytes(4))), "not UTF-8"),
        (infer(X, model="\ud800"), "not UTF-8"),
        (infer(X, outputs=(RequestedOutput("\ud800"),)), "not UTF-8"),
        (infer(X, version="9" * 30), "beyond 64 bits"),
        (infer(X, parameters={TASKS: "[1]"}), "expected a list of pairs of a method and a signature"),
        (infer(X, parameters={TASKS: '[["predict", ""]]'}), "expected a list of pairs of a method and a signature"),
        (Request(Operation.MODELS), "cannot list its models"),
        (Request(Operation.SERVER_METADATA), "no operation server-metadata"),
        (Request(Operation.STREAM, "m"), "no operation stream"),
    ],
)
def test_what_a_message_cannot_say_is_refused(request_: Request, text: str) -> None:
    with pytest.raises(GatewayError) as caught:
        sent(request_)
    assert text in caught.value.message


def test_requested_outputs_are_a_filter() -> None:
    _, body = sent(infer(X, outputs=(RequestedOutput("y"), RequestedOutput("z"))))
    assert list(google(f"{SERVING}PredictRequest").FromString(body).output_filter) == ["y", "z"]


def test_the_datatype_before_a_conversion_is_left_out() -> None:
    marked = Tensor("x", Datatype.FP32, (1, 2), X.data, "", {"gateway_datatype": "FP16"})
    assert sent(infer(marked)) == sent(infer(X))


def test_the_route_says_which_method_is_called() -> None:
    for payload, method in (("", "Predict"), ("predict", "Predict"), ("classify", "Classify"), ("regress", "Regress")):
        assert sent(infer(X, payload=payload))[0] == f"{PREDICTION}{method}"


@pytest.mark.parametrize(
    ("body", "payload", "text"),
    [
        (b"", "classify", "the response has no result"),
        (bytes.fromhex("0a060a020a000a00"), "classify", "0 to 1 classes"),
        (b"\x0a\x05", "regress", "no whole field"),
        (bytes.fromhex("0a050a01781200"), "", "DT_INVALID"),
    ],
)
def test_replies_that_are_wrong(body: bytes, payload: str, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        answered(body, infer(X, payload=payload))


def test_a_multi_inference_must_have_a_result_for_each_task() -> None:
    request = infer(X, parameters={TASKS: '[["classify", ""], ["regress", "r"]]'})
    with pytest.raises(DecodeError, match="1 results for 2 tasks"):
        answered(b"\x0a\x00", request)
    with pytest.raises(DecodeError, match="the result for signature 'serving_default' is not a result of classify"):
        answered(b"\x0a\x00\x0a\x00", request)


def test_unknown_fields_of_results_are_ignored() -> None:
    body = write_field(1, write_field(1, write_field(1, b"\x20\1" + write_field(1, b"a") + b"\x15\0\0\x80\x3f")))
    classes, scores = outputs(body, infer(X, payload="classify"))
    assert (classes.array.tolist(), scores.array.tolist()) == ([[b"a"]], [[1]])
    one = b"\x0a\x05\x0d\0\0\x80\x3f"
    [numbers] = outputs(write_field(1, one * 2000 + b"\x18\x80\x80\x80\x80\x80\1"), infer(X, payload="regress"))
    assert numbers.array.tolist() == [1] * 2000


def test_no_examples_have_no_results() -> None:
    assert answered(b"\x0a\x00", infer(X, payload="regress")) == Response((tensor("outputs", np.zeros(0, np.float32)),))


def metadata(**signatures: object) -> bytes:
    definitions = ParseDict({"signature_def": signatures}, google(f"{SERVING}SignatureDefMap")())
    reply = google(f"{SERVING}GetModelMetadataResponse")()
    reply.metadata["signature_def"].Pack(definitions)
    body: bytes = reply.SerializeToString(deterministic=True)
    return body


KNOWN = {"dtype": "DT_INT64", "tensor_shape": {"dim": [{"size": -1}]}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (metadata(only={"inputs": {"x": KNOWN}}), (TensorSpec("x", Datatype.INT64, (-1,)),)),
        (metadata(one={"inputs": {"x": KNOWN}}, two={"inputs": {"x": KNOWN}}), ()),
        (metadata(serving_default={"inputs": {"x": KNOWN, "y": {**KNOWN, "dtype": "DT_COMPLEX64"}}}), ()),
        (metadata(serving_default={"inputs": {"x": {**KNOWN, "tensor_shape": {"unknown_rank": True}}}}), ()),
        (
            metadata(serving_default={"inputs": {"input_10": KNOWN, "input_2": KNOWN, "b": KNOWN}}),
            tuple(TensorSpec(name, Datatype.INT64, (-1,)) for name in ("b", "input_2", "input_10")),
        ),
    ],
)
def test_the_signature_of_a_model(body: bytes, expected: tuple[TensorSpec, ...]) -> None:
    assert answered(body, Request(Operation.METADATA, "m")) == Signature(expected, (), name="m")


def test_metadata_without_signatures_is_wrong() -> None:
    with pytest.raises(DecodeError, match="has no signature_def"):
        answered(b"", Request(Operation.METADATA, "m"))
    with pytest.raises(DecodeError, match="expected at most"):
        answered(bytes(3 * 2**20), Request(Operation.METADATA, "m"))


def test_the_available_versions_are_told_in_order() -> None:
    states = [{"version": 10, "state": 30}, {"version": 9, "state": 30}, {"version": 11, "state": 20}]
    whole, loading = (
        google(f"{SERVING}GetModelStatusResponse")(model_version_status=each).SerializeToString(deterministic=True)
        for each in (states, states[2:])
    )
    request = Request(Operation.METADATA, "m", part="status")
    assert sent(request)[0] == f"{MODELS}GetModelStatus"
    assert answered(whole, request) == Signature(name="m", versions=("9", "10"))
    assert answered(loading, Request(Operation.MODEL_READY, "m")) is False


def test_a_server_is_ready_that_refuses_a_status_of_nothing() -> None:
    request = Request(Operation.READY)
    assert sent(request) == (f"{MODELS}GetModelStatus", b"")
    assert answered(b"Missing ModelSpec", request, 3) is True
    for status in (12, 14):
        with pytest.raises(GatewayError):
            answered(b"", request, status)


def test_an_unknown_model_is_not_ready() -> None:
    request = Request(Operation.MODEL_READY, "m")
    text = b"Could not find any versions of model m"
    assert answered(text, request, 5) is False
    lacks = TFS.traits.servers.lacks_model
    assert lacks is not None
    for told, status, expected in ((text, 5, True), (b"not here", 5, False), (text, 12, False)):
        assert lacks(Message(parts=(told,), status=status), "m") is expected


def test_errors_of_servers_keep_status_and_text() -> None:
    for status, text, reason in (
        (9, 'Serving signature key "s" not found.', Reason.FAILED_PRECONDITION),
        (5, "Servable not found for request: Latest(m)", Reason.MODEL_NOT_FOUND),
        (3, "Unrecognized servable version label: L", Reason.INVALID_INPUT),
    ):
        with pytest.raises(GatewayError) as caught:
            TFS.decode_response(Message(parts=(text.encode(),), status=status), infer(X), TARGET)
        assert (caught.value.message, caught.value.reason) == (text, reason)
