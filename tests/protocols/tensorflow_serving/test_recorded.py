"""Bytes that TensorFlow's own programs and the stubs of `tensorflow-serving-api` wrote, read and written."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.protocols.tensorflow_serving.wire import MODELS, PREDICTION, answered, asked, infer, outputs, sent, told

PREDICT = bytes.fromhex(
    "0a180a016d120208021a0f73657276696e675f64656661756c74121b0a0178121608011208120208011202080222080000803f00002040"
)
PREDICTED = bytes.fromhex(
    "0a170a0179121208011204120208022a08000000400000a04012180a016d120208021a0f73657276696e675f64656661756c74"
)
CLASSIFY = bytes.fromhex(
    "0a030a016d12300a2e0a150a130a110a0178120c120a0a080000803f000000400a150a130a110a0178120c120a0a080000003f000080c0"
)
CLASSIFIED = bytes.fromhex(
    "0a240a0f0a080a0161150000003f0a030a01620a110a05150000803f0a080a016215000080bf12180a016d120208021a0f73657276696e67"
    "5f64656661756c74"
)
REGRESS_IN_CONTEXT = bytes.fromhex(
    "0a060a016d1a0173124b12490a0e0a0c0a0a0a017312050a030a01610a250a230a150a03616765120e1a0c0a0affffffffffffffffff010a"
    "0a0a017312050a030a016212100a0e0a0c0a0361676512051a030a0107"
)
REGRESSED = bytes.fromhex("0a090a050d0000003f0a00120a0a016d120208021a0173")
MULTI = bytes.fromhex(
    "0a220a030a016d121b74656e736f72666c6f772f73657276696e672f636c6173736966790a240a060a016d1a0172121a74656e736f72666c"
    "6f772f73657276696e672f7265677265737312150a130a110a0f0a0d0a0178120812060a040000803f"
)
MULTIPLY_ANSWERED = bytes.fromhex(
    "0a280a180a016d120208021a0f73657276696e675f64656661756c74120c0a0a0a080a0161150000803f0a150a0a0a016d120208021a0172"
    "1a070a050d00000040"
)
METADATA = bytes.fromhex(
    "0a070a016d1202080212bb010a0d7369676e61747572655f64656612a9010a36747970652e676f6f676c65617069732e636f6d2f74656e73"
    "6f72666c6f772e73657276696e672e5369676e61747572654465664d6170126f0a6d0a0f73657276696e675f64656661756c74125a0a1f0a"
    "0178121a0a03783a3010011a11120b08ffffffffffffffffff0112020802121b0a017912160a03793a3010011a0d120b08ffffffffffffff"
    "ffff011a1a74656e736f72666c6f772f73657276696e672f70726564696374"
)
METADATA_ASKED = bytes.fromhex("0a030a016d120d7369676e61747572655f646566")
STATUS = bytes.fromhex("0a060802101e1a00")

X = tensor("x", np.array([[1, 2.5]], np.float32))
EXAMPLES = tensor("x", np.array([[1, 2], [0.5, -4]], np.float32))


def test_a_request_for_predict_is_read_and_written() -> None:
    request = asked(PREDICT)
    assert (request.operation, request.model, request.version, request.parameters) == (Operation.INFER, "m", "2", {})
    assert request.inputs == (X,)
    named = infer(X, version="2", parameters={"signature_name": "serving_default"})
    assert sent(named) == (f"{PREDICTION}Predict", PREDICT)


def test_a_reply_of_predict_is_read_and_written() -> None:
    y = tensor("y", np.array([2, 5], np.float32))
    assert told(Response((y,), "m", "2"), asked(PREDICT)) == PREDICTED
    assert answered(PREDICTED, infer(X)) == Response((y,), "m", "2")


def test_classify_is_read_and_written() -> None:
    request = asked(CLASSIFY, f"{PREDICTION}Classify")
    assert request.inputs == (EXAMPLES,)
    assert sent(request) == (f"{PREDICTION}Classify", CLASSIFY)
    assert sent(infer(EXAMPLES, payload="classify")) == (f"{PREDICTION}Classify", CLASSIFY)
    found = outputs(CLASSIFIED, request)
    assert found == (
        tensor("classes", np.array([["a", "b"], ["", "b"]], object)),
        tensor("scores", np.array([[0.5, 0], [1, -1]], np.float32)),
    )
    assert told(Response(found, "m", "2"), request) == CLASSIFIED


def test_regress_takes_what_an_example_lacks_from_the_context() -> None:
    request = asked(REGRESS_IN_CONTEXT, f"{PREDICTION}Regress")
    assert request.parameters == {"signature_name": "s"}
    assert request.inputs == (
        tensor("age", np.array([[7], [-1]], np.int64)),
        tensor("s", np.array([["a"], ["b"]], object)),
    )
    found = outputs(REGRESSED, request)
    assert found == (tensor("outputs", np.array([0.5, 0], np.float32)),)
    assert told(Response(found, "m", "2"), request) == REGRESSED


def test_several_tasks_are_read_and_written() -> None:
    request = asked(MULTI, f"{PREDICTION}MultiInference")
    assert [(each.name, each.datatype, each.shape) for each in request.inputs] == [("x", Datatype.FP32, (1, 1))]
    assert sent(request) == (f"{PREDICTION}MultiInference", MULTI)
    found = outputs(MULTIPLY_ANSWERED, request)
    assert [each.name for each in found] == ["serving_default/classes", "serving_default/scores", "r/outputs"]
    assert told(Response(found, "m", "2"), request) == MULTIPLY_ANSWERED


def test_metadata_is_read_and_written() -> None:
    request = asked(METADATA_ASKED, f"{PREDICTION}GetModelMetadata")
    assert sent(Request(Operation.METADATA, "m")) == (f"{PREDICTION}GetModelMetadata", METADATA_ASKED)
    signature = Signature(
        (TensorSpec("x", Datatype.FP32, (-1, 2)),), (TensorSpec("y", Datatype.FP32, (-1,)),), name="m", versions=("2",)
    )
    assert answered(METADATA, request) == signature
    assert told(signature, request) == METADATA


def test_the_status_is_read_and_written() -> None:
    request = asked(bytes.fromhex("0a050a016d1200"), f"{MODELS}GetModelStatus")
    assert (request.operation, request.model, request.version) == (Operation.MODEL_READY, "m", "")
    request = asked(bytes.fromhex("0a0b0a016d2206737461626c65"), f"{MODELS}GetModelStatus")
    assert (request.model, request.version) == ("m", "stable")
    assert sent(Request(Operation.MODEL_READY, "m", "stable"))[1] == bytes.fromhex("0a0b0a016d2206737461626c65")
    assert sent(Request(Operation.MODEL_READY, "m", "0"))[1] == bytes.fromhex("0a050a016d1200")
    assert answered(STATUS, Request(Operation.MODEL_READY, "m")) is True
    assert told(True, Request(Operation.MODEL_READY, "m", "2")) == STATUS


WHOLE = {
    "Predict": PREDICT,
    "Classify": CLASSIFY,
    "Regress": REGRESS_IN_CONTEXT,
    "MultiInference": MULTI,
    "GetModelMetadata": METADATA_ASKED,
}


@pytest.mark.parametrize("method", WHOLE)
def test_a_message_that_ends_early_is_refused_or_says_less(method: str) -> None:
    """At each byte. What is left can be a message only where a whole field is missing."""
    whole = asked(WHOLE[method], f"{PREDICTION}{method}")
    for end in range(len(WHOLE[method])):
        try:
            found = asked(WHOLE[method][:end], f"{PREDICTION}{method}")
        except (DecodeError, GatewayError):
            continue
        assert found != whole
        assert len(found.inputs) <= len(whole.inputs)


@pytest.mark.parametrize("method", WHOLE)
@pytest.mark.parametrize("tail", [b"\x0a", b"\x07", b"\x12\xff\xff\xff\xff\x0fx", b"\x0b", b"\x00\x00"])
def test_a_message_with_something_behind_it_is_refused(method: str, tail: bytes) -> None:
    with pytest.raises((DecodeError, GatewayError)):
        asked(WHOLE[method] + tail, f"{PREDICTION}{method}")


@pytest.mark.parametrize("method", WHOLE)
def test_fields_of_later_versions_are_ignored(method: str) -> None:
    later = bytes.fromhex("9a06020102" + "980601")  # 99: two bytes; 99 as a number
    assert asked(WHOLE[method] + later, f"{PREDICTION}{method}") == asked(WHOLE[method], f"{PREDICTION}{method}")


def test_replies_cut_short_are_refused() -> None:
    request = asked(CLASSIFY, f"{PREDICTION}Classify")
    for body, asked_for in ((PREDICTED, infer(X)), (CLASSIFIED, request)):
        for end in range(1, len(body)):
            try:
                found = answered(body[:end], asked_for)
            except DecodeError:
                continue
            assert found != answered(body, asked_for)


def test_views_of_a_large_message_are_not_copied() -> None:
    large = tensor("x", np.arange(10_000, dtype=np.float32))
    body = sent(infer(large))[1]
    [found] = asked(body).inputs
    assert isinstance(found.data, memoryview)
    assert found.data.obj is body
    assert found == Tensor("x", Datatype.FP32, (10_000,), found.data)
    assert bytes(found.data) == bytes(large.data)
