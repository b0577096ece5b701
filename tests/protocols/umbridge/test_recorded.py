"""What umbridge 1.2.10 really sends, read and written: tests/wire/umbridge/record.py says how it was recorded."""

import json
from math import inf, nan
from typing import Any

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Request, Response
from gateway.core.tensors import Tensor
from tests.protocols.umbridge.wire import (
    LISTENER,
    TARGET,
    UMBRIDGE,
    floats,
    index,
    integers,
    numbers,
    recorded_reply,
    recorded_request,
)

A, B = floats(1.5, 2, 3), floats(0.1, 1e-300)


def call(
    operation: Operation, *inputs: Tensor, model: str = "toy", part: str = "", config: str = "", **positions: int
) -> Request:
    """A request: its inputs, then the positions, then the tensors that have names (`sens`, `vec`)."""
    indexes = [index(name, position) for name, position in positions.items()]
    tensors = (*(each for each in inputs if not each.name), *indexes, *(each for each in inputs if each.name))
    return Request(operation, model, inputs=tensors, parameters={"config": config} if config else {}, part=part)


REQUESTS = {
    "info": call(Operation.MODELS, model=""),
    "model_info": call(Operation.METADATA, part="ModelInfo"),
    "input_sizes": call(Operation.METADATA, part="InputSizes"),
    "output_sizes": call(Operation.METADATA, part="OutputSizes"),
    "input_sizes_config": call(
        Operation.METADATA, part="InputSizes", config='{"level":2,"a":{"z":[1,2.0],"b":null},"µ":"ß"}'
    ),
    "evaluate": call(Operation.INFER, A, B),
    "evaluate_integers": call(Operation.INFER, integers(2**62, -2, 3), integers(1, 4)),
    "gradient": call(Operation.GRADIENT, A, B, floats(1.0, -2.5, name="sens"), out_wrt=0, in_wrt=1),
    "apply_jacobian": call(Operation.APPLY_JACOBIAN, A, B, integers(1, 0, 0, name="vec"), out_wrt=1, in_wrt=0),
    "apply_hessian": call(
        Operation.APPLY_HESSIAN, A, B, floats(2.0, 3.0, name="sens"), integers(5, 6, 7, name="vec"),
        out_wrt=0, in_wrt1=1, in_wrt2=0,
    ),
    "error_index": call(Operation.GRADIENT, A, B, floats(1.0, name="sens"), out_wrt=-1, in_wrt=0),
    "error_not_found": call(Operation.INFER, integers(1), model="größe"),
    "no_inputs_evaluate": call(Operation.INFER, model="no_inputs"),
    "empty_vector_evaluate": call(Operation.INFER, integers(), model="empty_vector"),
    "scaled_evaluate": call(
        Operation.INFER, integers(1, 2), model="scaled", config='{"scale":2.5,"input":{"vec":[1,"a"]}}'
    ),
    "test_shmem": call(Operation.LIVE, model="", part="TestShMem"),
}  # fmt: skip


def request_of(name: str) -> Request:
    return decoded(recorded_request(name), UMBRIDGE, LISTENER)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_the_real_client_is_understood(name: str) -> None:
    request, expected = request_of(name), REQUESTS[name]
    assert (request.operation, request.part, request.model) == (expected.operation, expected.part, expected.model)
    assert (request.inputs, request.parameters) == (expected.inputs, expected.parameters)


def ordered(body: Any) -> Any:
    """The document, to be compared with the order of its keys."""
    return json.loads(bytes(body), object_pairs_hook=list)


WITH_BODY = sorted(REQUESTS.keys() - {"info", "test_shmem"})


@pytest.mark.parametrize("name", sorted(set(WITH_BODY) - {"error_not_found"}))
def test_a_request_is_written_as_the_real_client_writes_it(name: str) -> None:
    original = recorded_request(name)
    request = decoded(original, UMBRIDGE, LISTENER)
    written = UMBRIDGE.encode_request(request, TARGET)
    assert (written.method, written.path) == (original.method, original.path)
    assert written.headers.get("content-type") == original.headers.get("content-type")
    assert ordered(written.body) == ordered(original.body)


SPECS = {size: TensorSpec("", Datatype.FP64, (size,)) for size in (0, 1, 2, 3)}
UNCLAIMED: frozenset[Operation] = frozenset()
EVERY = frozenset({Operation.INFER, Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN})
ANSWERS: dict[str, Answer] = {
    "info": tuple(
        ModelEntry(name) for name in ("toy", "no_inputs", "empty_vector", "scaled", "infinite", "crash", "wrong")
    ),
    "model_info": Signature(operations=EVERY),
    "model_info_evaluate_only": Signature(operations=frozenset({Operation.INFER})),
    "input_sizes": Signature(inputs=(SPECS[3], SPECS[2]), operations=UNCLAIMED),
    "output_sizes": Signature(outputs=(SPECS[2], SPECS[1]), operations=UNCLAIMED),
    "no_inputs_sizes": Signature(operations=UNCLAIMED),
    "evaluate": Response((floats(0.15000000000000002, 2e-300), integers(9))),
    "evaluate_integers": Response((integers(2**62, -8), integers(9))),
    "gradient": Response((floats(0.1, 0.1, name="output"),)),
    "apply_jacobian": Response((floats(0.1, name="output"),)),
    "apply_hessian": Response((floats(1.0, 1.0, name="output"),)),
    "no_inputs_evaluate": Response((integers(7),)),
    "empty_vector_evaluate": Response((integers(),)),
    "scaled_evaluate": Response((floats(2.5, 5.0),)),
}


def answer_to(name: str) -> Answer:
    return UMBRIDGE.decode_response(recorded_reply(name), request_of(name), TARGET)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_reply_of_the_real_server_is_understood(name: str) -> None:
    assert answer_to(name) == ANSWERS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_reply_is_written_with_the_values_of_the_real_server(name: str) -> None:
    written = UMBRIDGE.encode_response(ANSWERS[name], request_of(name), DEFAULT_TRANSLATE)
    assert (written.status, written.headers.get("content-type")) == (200, "application/json")
    assert json.loads(bytes(written.body)) == json.loads(bytes(recorded_reply(name).body))


def test_python_s_nan_and_inf_arrive_as_numbers_and_leave_as_literals_that_clients_read() -> None:
    answer = answer_to("infinite_evaluate")
    assert isinstance(answer, Response)
    assert str(numbers(answer.outputs[0])) == str([nan, inf, -inf, 1.5])
    written = UMBRIDGE.encode_response(answer, request_of("infinite_evaluate"), DEFAULT_TRANSLATE)
    assert bytes(written.body) == b'{"output":[[NaN,Infinity,-Infinity,1.5]]}'


ERRORS = {
    "error_inputs": Reason.INVALID_INPUT,
    "error_length": Reason.INVALID_INPUT,
    "error_index": Reason.INVALID_INPUT,
    "error_sens_length": Reason.INVALID_INPUT,
    "error_not_found": Reason.MODEL_NOT_FOUND,
    "error_output": Reason.INVALID_OUTPUT,
    "error_unsupported": Reason.UNSUPPORTED,
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_real_server_comes_out_as_it_went_in(name: str) -> None:
    original, asked = recorded_reply(name), "gradient" if name == "error_unsupported" else name
    with pytest.raises(GatewayError) as caught:
        UMBRIDGE.decode_response(original, request_of(asked), TARGET)
    assert caught.value.reason is ERRORS[name]
    written = UMBRIDGE.encode_error(caught.value, None, recorded_request(asked))
    assert (written.status, json.loads(bytes(written.body))) == (original.status, json.loads(bytes(original.body)))


@pytest.mark.parametrize("name", ["error_crash", "error_hessian_text"])
def test_the_text_of_an_exception_becomes_a_model_error(name: str) -> None:
    with pytest.raises(GatewayError) as caught:
        answer_to(name)
    written = UMBRIDGE.encode_error(caught.value, None, recorded_request(name))
    text = "the server's error is only 'Server got itself in trouble'; read the exception in the server's output"
    assert written.status == 500
    assert json.loads(bytes(written.body)) == {"error": {"type": "ModelError", "message": text}}


@pytest.mark.parametrize("name", ["error_path", "error_method"])
def test_a_server_without_the_path_does_not_support_the_operation(name: str) -> None:
    with pytest.raises(GatewayError, match=r"^40[45]: ") as caught:
        UMBRIDGE.decode_response(recorded_reply(name), request_of("evaluate"), TARGET)
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("name", WITH_BODY)
def test_a_request_cut_anywhere_is_refused(name: str) -> None:
    whole = recorded_request(name)
    for length in range(len(whole.body)):
        with pytest.raises(DecodeError):
            decoded(replace(whole, parts=(bytes(whole.body)[:length],)), UMBRIDGE, LISTENER)


@pytest.mark.parametrize("name", [*ANSWERS, "infinite_evaluate"])
def test_a_reply_cut_anywhere_is_refused(name: str) -> None:
    request, whole = request_of(name), recorded_reply(name)
    for length in range(len(whole.body)):
        with pytest.raises(DecodeError):
            UMBRIDGE.decode_response(replace(whole, parts=(bytes(whole.body)[:length],)), request, TARGET)
