"""What clients of TensorFlow Serving may ask, and how they are refused: in a real server's words if it has some."""

from typing import Any

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import NotReady, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import Limits
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import tensor
from tests.protocols.tensorflow_serving.test_examples import example, examples
from tests.protocols.tensorflow_serving.wire import (
    MODELS,
    PREDICTION,
    TFS,
    asked,
    google,
    infer,
    outputs,
    refused,
    sent,
    told,
)

X = tensor("x", np.array([1, 2], np.float32))
SERVING = "tensorflow.serving."


def written(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def predict(inputs: dict[str, dict[str, Any]] | None = None, **fields: Any) -> bytes:
    made = google(f"{SERVING}PredictRequest")(**fields)
    for name, content in (inputs or {}).items():
        made.inputs[name].MergeFrom(google("tensorflow.TensorProto")(**content))
    return written(made)


def classify(count: int = 2) -> bytes:
    made = google(f"{SERVING}ClassificationRequest")(model_spec={"name": "m"})
    made.input.MergeFromString(examples(*[example(x=[1.0])] * count))
    return written(made)


def multi(*tasks: tuple[str, dict[str, Any]]) -> bytes:
    made = google(f"{SERVING}MultiInferenceRequest")()
    for method, spec in tasks:
        made.tasks.add(method_name=f"tensorflow/serving/{method}", model_spec=spec)
    made.input.MergeFromString(examples(example(x=[1.0])))
    return written(made)


@pytest.mark.parametrize(
    ("spec", "version", "parameters"),
    [
        ({"name": "m"}, "", {}),
        ({"name": "m", "version": {"value": 3}}, "3", {}),
        ({"name": "m", "version": {}}, "", {}),
        ({"name": "m", "version": {"value": -1}}, "-1", {}),
        ({"name": "m", "version_label": "canary"}, "canary", {}),
        ({"name": "m", "signature_name": "serving_default"}, "", {}),
        ({"name": "m", "signature_name": "other"}, "", {"signature_name": "other"}),
    ],
)
def test_the_model_the_version_or_label_and_the_signature(
    spec: dict[str, Any], version: str, parameters: dict[str, str]
) -> None:
    request = asked(predict(model_spec=spec))
    assert (request.model, request.version, request.parameters) == ("m", version, parameters)
    again = asked(sent(request)[1])
    assert (again.version, again.parameters) == (version, parameters)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Missing ModelSpec"),
        (predict(model_spec={}), "ModelSpec has no name specified."),
        (predict(model_spec={"name": "m", "version_label": "7"}), "version_label is '7'"),
        (predict(model_spec={"name": "m", "version_label": ""}), "version_label is ''"),
        (predict(model_spec={"name": "m"}, output_filter=["y", "y"]), "duplicate output tensor alias: y"),
        (predict(model_spec={"name": "m"}, inputs={"": {"dtype": "DT_FLOAT"}}), "an input has no name"),
        (predict(model_spec={"name": "m"}, inputs={"x": {}}), "tensor parsing error: x: DT_INVALID"),
        (predict(inputs={"x": {"dtype": "DT_FLOAT"}}) * 2, "input 'x' occurs twice"),
        (predict(model_spec={"name": "m"}) + bytes.fromhex("2a020801"), "predict_streamed_options"),
        (predict(model_spec={"name": "m"}) + bytes.fromhex("3a021001"), "request_options"),
        (bytes.fromhex("1a01ff"), "output_filter is not UTF-8"),
    ],
)
def test_predict_is_refused(body: bytes, text: str) -> None:
    assert text in refused(body)


def test_a_client_id_and_empty_options_change_nothing() -> None:
    plain = predict(model_spec={"name": "m"})
    assert asked(plain + bytes.fromhex("320161" + "2a00" + "3a00")) == asked(plain)


def test_a_tensor_beyond_the_limit_is_refused() -> None:
    body = sent(infer(X))[1]
    assert "limits.message" in refused(body, limits=Limits(message=7))


def test_the_reply_names_the_version_that_answered_if_it_is_a_number() -> None:
    request = asked(predict(model_spec={"name": "m", "version_label": "stable", "signature_name": "s"}))
    for version, expected in (("4", 4), ("stable", None), ("v1", None), ("", None), ("9" * 30, None)):
        reply = google(f"{SERVING}PredictResponse").FromString(told(Response((X,), "other", version), request))
        spec = reply.model_spec
        assert (spec.name, spec.signature_name) == ("m", "s")
        assert (spec.version.value if spec.HasField("version") else None) == expected


@pytest.mark.parametrize(
    ("body", "method", "text"),
    [
        (classify()[:5], "Classify", "Input is empty."),
        (b"", "Classify", "Missing ModelSpec"),
        (b"", "MultiInference", "tasks is empty"),
        (multi(("predict", {"name": "m"})), "MultiInference", "method_name is 'tensorflow/serving/predict'"),
        (multi(("classify", {"name": "m"}), ("regress", {"name": "n"})), "MultiInference", "different models"),
        (
            multi(("classify", {"name": "m"}), ("regress", {"name": "m", "signature_name": "serving_default"})),
            "MultiInference",
            "Duplicate evaluation of signature: serving_default",
        ),
        (multi(("classify", {})), "MultiInference", "ModelSpec has no name specified."),
        (b"\x0a\x03\x0a\x01m", "GetModelMetadata", "must specify at least one metadata_field"),
        (b"\x0a\x03\x0a\x01m\x12\x01f", "GetModelMetadata", "Metadata field f is not supported"),
        (b"\x12\x01f", "GetModelMetadata", "Missing ModelSpec"),
        (b"\x0a\x03\x0a\x01m" + bytes(200_000), "GetModelMetadata", "at most"),
    ],
)
def test_other_methods_are_refused(body: bytes, method: str, text: str) -> None:
    assert text in refused(body, f"{PREDICTION}{method}")


def test_a_single_task_is_an_ordinary_inference() -> None:
    request = asked(multi(("regress", {"name": "m", "signature_name": "r"})), f"{PREDICTION}MultiInference")
    assert request.parameters == {"signature_name": "r"}
    assert sent(request)[0] == f"{PREDICTION}Regress"
    reply = told(Response((tensor("outputs", np.array([7], np.float32)),), "m", "2"), request)
    [result] = google(f"{SERVING}MultiInferenceResponse").FromString(reply).results
    assert [each.value for each in result.regression_result.regressions] == [7]
    assert (result.model_spec.signature_name, result.model_spec.version.value) == ("r", 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "the outputs are none, and Classify takes its result from 'classes' or 'scores'"),
        ((tensor("y", np.zeros((2, 3), np.float32)),), "`translate.rename` on the route can rename outputs"),
        ((tensor("scores", np.zeros((3, 2), np.float32)),), "has shape [3, 2]; Classify has a row of classes"),
        ((tensor("scores", np.zeros(2, np.float32)),), "has shape [2]"),
        ((tensor("scores", np.zeros((2, 1))),), "output 'scores' is FP64"),
        ((tensor("classes", np.zeros((2, 1), np.int64)),), "output 'classes' is INT64; Classify has labels"),
        ((tensor("classes", np.array([[b"\xff"], [b"a"]], object)),), "element 0 is not UTF-8"),
    ],
)
def test_outputs_that_are_no_result_of_classify(given: tuple[Any, ...], text: str) -> None:
    request = asked(classify(), f"{PREDICTION}Classify")
    with pytest.raises(GatewayError) as caught:
        TFS.encode_response(Response(given), request, Translate())
    assert text in caught.value.message
    assert caught.value.reason is Reason.INVALID_OUTPUT


def test_classify_of_scores_or_of_classes_alone() -> None:
    request = asked(classify(), f"{PREDICTION}Classify")
    for output, expected in (
        (tensor("scores", np.array([[1], [0]], np.float16)), [("", 1), ("", 0)]),
        (tensor("classes", np.array([["a"], ["b"]], object)), [("a", 0), ("b", 0)]),
    ):
        more = tensor("logits", np.zeros((2, 1), np.float32))
        reply = google(f"{SERVING}ClassificationResponse").FromString(told(Response((output, more)), request))
        assert [(row.classes[0].label, row.classes[0].score) for row in reply.result.classifications] == expected


def test_regress_takes_a_number_for_each_example() -> None:
    request = replace(asked(classify(), f"{PREDICTION}Regress"))
    for shape in ((2,), (2, 1)):
        output = tensor("outputs", np.array([1, 0], np.int8).reshape(shape))
        reply = google(f"{SERVING}RegressionResponse").FromString(told(Response((output,)), request))
        assert [each.value for each in reply.result.regressions] == [1, 0]
    with pytest.raises(GatewayError, match="Regress has a number for each of 2 examples"):
        told(Response((tensor("outputs", np.zeros((2, 2), np.float32)),)), request)
    with pytest.raises(GatewayError, match="Regress takes its result from 'outputs'"):
        told(Response((X,)), request)


def test_a_reload_of_the_configuration_is_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="HandleReloadConfigRequest") as caught:
        asked(b"", f"{MODELS}HandleReloadConfigRequest")
    assert caught.value.reason is Reason.UNSUPPORTED


def test_metadata_whose_names_are_no_unicode_are_refused() -> None:
    signature = Signature((TensorSpec("\ud800", Datatype.FP32, (1,)),), ())
    with pytest.raises(GatewayError, match=r"the metadata: .*not UTF-8"):
        told(signature, Request(Operation.METADATA, "m"))


def test_a_status_without_a_model_is_refused_by_a_server_that_is_ready() -> None:
    request = asked(b"", f"{MODELS}GetModelStatus")
    assert request.operation is Operation.READY
    ready = TFS.encode_response(True, request, Translate())
    assert (ready.status, ready.body) == (3, b"Missing ModelSpec")
    busy = TFS.encode_response(NotReady("starting"), request, Translate())
    assert (busy.status, busy.body) == (14, b"starting")


def test_the_status_of_a_model_that_is_not_ready_is_loading() -> None:
    request = Request(Operation.MODEL_READY, "m")
    [found] = google(f"{SERVING}GetModelStatusResponse").FromString(told(False, request)).model_version_status
    assert (found.version, found.state) == (1, 20)


def test_results_of_many_examples_are_those_of_few() -> None:
    """They are written in another way."""
    many = 1200
    numbers = np.arange(many, dtype=np.float32)
    regressed = asked(classify(many), f"{PREDICTION}Regress")
    body = told(Response((tensor("outputs", numbers),)), regressed)
    reply = google(f"{SERVING}RegressionResponse").FromString(body)
    assert [each.value for each in reply.result.regressions] == numbers.tolist()
    assert outputs(body, regressed) == (tensor("outputs", numbers),)
    classified = asked(classify(many), f"{PREDICTION}Classify")
    scores = tensor("scores", numbers.reshape(many, 1))
    reply = google(f"{SERVING}ClassificationResponse").FromString(told(Response((scores,)), classified))
    assert [row.classes[0].score for row in reply.result.classifications] == numbers.tolist()
