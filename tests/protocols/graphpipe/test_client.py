import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Target
from gateway.core.types import Parameters, Request, RequestedOutput, Tensor, tensor
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.flatbuffer_reader import Flatbuffer
from gateway.protocols.graphpipe.flatbuffer_writer import Writer
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked

X = tensor("x", np.array([1, 2], np.float32))


@pytest.mark.parametrize(
    ("address", "model", "path"),
    [
        ("127.0.0.1:9000", "m", "/graphpipe/m"),
        ("127.0.0.1:9000", "", "/"),
        ("http://models:9000", "a/b ü", "/graphpipe/a%2Fb%20%C3%BC"),
        ("http://models:9000/", "m", "/"),
        # the connector writes the prefix, without a trailing slash
        ("http://models:9000/api/squeezenet", "m", ""),
        ("http://models:9000/api/squeezenet/", "m", "/"),
    ],
)
def test_an_endpoints_url_is_used_as_it_is_given(address: str, model: str, path: str) -> None:
    message = GRAPHPIPE.encode_request(Request(Operation.METADATA, model), Target("b", address))
    assert (message.method, message.path) == ("POST", path)


@pytest.mark.parametrize("model", [".", ".."])
def test_a_model_that_is_no_path(model: str) -> None:
    with pytest.raises(GatewayError, match="has no URL"):
        GRAPHPIPE.encode_request(Request(Operation.INFER, model), TARGET)


def test_metadata_and_readiness_are_the_same_question() -> None:
    messages = [GRAPHPIPE.encode_request(Request(each), TARGET) for each in (Operation.METADATA, Operation.MODEL_READY)]
    assert messages[0].parts == messages[1].parts
    assert asked(messages[0].body).operation is Operation.METADATA


def test_names_are_written_only_if_there_are_any() -> None:
    named = GRAPHPIPE.encode_request(Request(Operation.INFER, inputs=(X, Tensor("", X.datatype, (0,), b""))), TARGET)
    assert [each.name for each in asked(named.body).inputs] == ["x", ""]
    unnamed = GRAPHPIPE.encode_request(Request(Operation.INFER, inputs=(Tensor("", X.datatype, (2,), X.data),)), TARGET)
    question = Flatbuffer(unnamed.body).root().table(schema.Request.REQ)
    assert question is not None
    assert question.count(schema.InferRequest.INPUT_NAMES) == 0  # Go's `Serve` refuses a name that it does not know


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(Operation.INFER, parameters={"other": 1}), "parameter 'other' has no place in GraphPipe"),
        (Request(Operation.INFER, parameters={"config": 1}), "parameter 'config' is 1, expected text"),
        (Request(Operation.INFER, parameters={"config": "\ud800"}), "config '\\\\ud800' is not UTF-8"),
        (
            Request(Operation.INFER, inputs=(Tensor("x", Datatype.FP32, (0,), b"", parameters={"p": 1}),)),
            "parameter 'p' of input 'x'",
        ),
        (
            Request(Operation.INFER, outputs=(RequestedOutput("y", {"classification": 3}),)),
            "parameter 'classification' of output 'y'",
        ),
        (Request(Operation.INFER, inputs=(Tensor("x", Datatype.BF16, (0,), b""),)), "input 'x' is BF16"),
        (Request(Operation.GRADIENT), "no words for 'gradient'"),
        (Request(Operation.MODELS), "no words for 'models'"),
    ],
)
def test_what_has_no_form_is_refused_by_name(request_: Request, text: str) -> None:
    with pytest.raises(GatewayError, match=text):
        GRAPHPIPE.encode_request(request_, TARGET)


def test_the_mark_of_a_widened_datatype_is_the_gateways_own() -> None:
    parameters: Parameters = {"gateway_datatype": "BOOL"}
    message = GRAPHPIPE.encode_request(
        Request(Operation.INFER, inputs=(Tensor("x", Datatype.UINT8, (1,), b"\1", parameters=parameters),)), TARGET
    )
    assert asked(message.body).inputs == (Tensor("x", Datatype.UINT8, (1,), b"\1"),)


def test_a_long_config_names_the_limit_of_the_backend() -> None:
    with pytest.raises(GatewayError, match="of backend 'b' allows no more") as caught:
        GRAPHPIPE.encode_request(
            Request(Operation.INFER, parameters={"config": "abcd"}), Target("b", limits=Limits(config=3))
        )
    assert caught.value.reason is Reason.TOO_LARGE


def test_two_gigabytes_are_too_many() -> None:
    writer = Writer()
    writer.payload(writer.table(layouts.NUMBERS) + layouts.NUMBERS.place[schema.Tensor.DATA], 1, 2**31 - 64)
    with pytest.raises(GatewayError, match="smaller than 2 GiB"):
        writer.gaps()


def test_structures_are_remembered_by_all_that_is_in_them() -> None:
    def written(inputs: tuple[Tensor, ...], config: str = "", outputs: tuple[str, ...] = ()) -> Request:
        request = Request(
            Operation.INFER, inputs=inputs, parameters={"config": config}, outputs=tuple(map(RequestedOutput, outputs))
        )
        return asked(GRAPHPIPE.encode_request(request, TARGET).body)

    again = tensor("x", np.array([3, 4], np.float32))
    other = tensor("x", np.array([[3, 4]], np.int32))
    assert written((X,)).inputs == (X,)
    assert written((again,)).inputs == (again,)
    assert written((other,)).inputs == (other,)
    assert written((X,), "c", ("y",)).parameters == {"config": "c"}
    assert written((X,), "", ("y",)).parameters == {}
