"""What umbridge 1.2.10 really sends, read and written: tests/wire/umbridge/record.py says how it was recorded."""

import json
from math import inf, nan
from typing import Any

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import merge
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Response
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
REQUESTS: dict[str, tuple[Operation, str, str, tuple[Tensor, ...], dict[str, str]]] = {
    "info": (Operation.MODELS, "", "", (), {}),
    "model_info": (Operation.METADATA, "ModelInfo", "toy", (), {}),
    "input_sizes": (Operation.METADATA, "InputSizes", "toy", (), {}),
    "output_sizes": (Operation.METADATA, "OutputSizes", "toy", (), {}),
    "input_sizes_config": (
        Operation.METADATA,
        "InputSizes",
        "toy",
        (),
        {"config": '{"level":2,"a":{"z":[1,2.0],"b":null},"µ":"ß"}'},
    ),
    "evaluate": (Operation.INFER, "", "toy", (A, B), {}),
    "evaluate_integers": (Operation.INFER, "", "toy", (integers(2**62, -2, 3), integers(1, 4)), {}),
    "gradient": (
        Operation.GRADIENT,
        "",
        "toy",
        (A, B, index("out_wrt", 0), index("in_wrt", 1), floats(1.0, -2.5, name="sens")),
        {},
    ),
    "apply_jacobian": (
        Operation.APPLY_JACOBIAN,
        "",
        "toy",
        (A, B, index("out_wrt", 1), index("in_wrt", 0), integers(1, 0, 0, name="vec")),
        {},
    ),
    "apply_hessian": (
        Operation.APPLY_HESSIAN,
        "",
        "toy",
        (
            A,
            B,
            index("out_wrt", 0),
            index("in_wrt1", 1),
            index("in_wrt2", 0),
            floats(2.0, 3.0, name="sens"),
            integers(5, 6, 7, name="vec"),
        ),
        {},
    ),
    "error_index": (
        Operation.GRADIENT,
        "",
        "toy",
        (A, B, index("out_wrt", -1), index("in_wrt", 0), floats(1.0, name="sens")),
        {},
    ),
    "error_not_found": (Operation.INFER, "", "größe", (integers(1),), {}),
    "no_inputs_evaluate": (Operation.INFER, "", "no_inputs", (), {}),
    "empty_vector_evaluate": (Operation.INFER, "", "empty_vector", (integers(),), {}),
    "scaled_evaluate": (
        Operation.INFER,
        "",
        "scaled",
        (integers(1, 2),),
        {"config": '{"scale":2.5,"input":{"vec":[1,"a"]}}'},
    ),
    "test_shmem": (Operation.LIVE, "TestShMem", "", (), {}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_of_the_real_client_is_understood(name: str) -> None:
    request = decoded(recorded_request(name), UMBRIDGE, LISTENER)
    found = (request.operation, request.part, request.model, request.inputs, request.parameters)
    assert found == REQUESTS[name]


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
    request = decoded(recorded_request(name), UMBRIDGE, LISTENER)
    return UMBRIDGE.decode_response(recorded_reply(name), request, TARGET)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_reply_of_the_real_server_is_understood(name: str) -> None:
    assert answer_to(name) == ANSWERS[name]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_reply_is_written_with_the_values_of_the_real_server(name: str) -> None:
    request = decoded(recorded_request(name), UMBRIDGE, LISTENER)
    written = UMBRIDGE.encode_response(ANSWERS[name], request, DEFAULT_TRANSLATE)
    assert (written.status, written.headers.get("content-type")) == (200, "application/json")
    assert json.loads(bytes(written.body)) == json.loads(bytes(recorded_reply(name).body))


def test_python_s_nan_and_inf_arrive_as_numbers_and_leave_as_literals_that_clients_read() -> None:
    answer = answer_to("infinite_evaluate")
    assert isinstance(answer, Response)
    assert str(numbers(answer.outputs[0])) == str([nan, inf, -inf, 1.5])
    request = decoded(recorded_request("infinite_evaluate"), UMBRIDGE, LISTENER)
    written = UMBRIDGE.encode_response(answer, request, DEFAULT_TRANSLATE)
    assert bytes(written.body) == b'{"output":[[NaN,Infinity,-Infinity,1.5]]}'


def test_three_requests_make_one_signature() -> None:
    parts = tuple(answer_to(name) for name in ("input_sizes", "output_sizes", "model_info"))
    assert merge(tuple(part for part in parts if isinstance(part, Signature))) == Signature(
        (SPECS[3], SPECS[2]), (SPECS[2], SPECS[1]), EVERY
    )


ERRORS = {
    "error_inputs": (Reason.INVALID_INPUT, 400, "InvalidInput"),
    "error_length": (Reason.INVALID_INPUT, 400, "InvalidInput"),
    "error_index": (Reason.INVALID_INPUT, 400, "InvalidInput"),
    "error_sens_length": (Reason.INVALID_INPUT, 400, "InvalidInput"),
    "error_not_found": (Reason.MODEL_NOT_FOUND, 400, "ModelNotFound"),
    "error_output": (Reason.INVALID_OUTPUT, 500, "InvalidOutput"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_real_server_comes_out_as_it_went_in(name: str) -> None:
    with pytest.raises(GatewayError) as caught:
        answer_to(name)
    reason, status, type_ = ERRORS[name]
    assert caught.value.reason is reason
    written = UMBRIDGE.encode_error(caught.value, None, recorded_request(name))
    assert (written.status, json.loads(bytes(written.body))["error"]["type"]) == (status, type_)
    assert (written.status, json.loads(bytes(written.body))) == (
        recorded_reply(name).status,
        json.loads(bytes(recorded_reply(name).body)),
    )


def test_an_unsupported_operation_comes_out_as_it_went_in() -> None:
    request = decoded(recorded_request("gradient"), UMBRIDGE, LISTENER)
    original = recorded_reply("error_unsupported")
    with pytest.raises(GatewayError) as caught:
        UMBRIDGE.decode_response(original, request, TARGET)
    assert caught.value.reason is Reason.UNSUPPORTED
    written = UMBRIDGE.encode_error(caught.value, None, recorded_request("gradient"))
    assert written.status == original.status == 400
    assert json.loads(bytes(written.body)) == json.loads(bytes(original.body))


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
    request = decoded(recorded_request("evaluate"), UMBRIDGE, LISTENER)
    with pytest.raises(GatewayError, match=r"^40[45]: ") as caught:
        UMBRIDGE.decode_response(recorded_reply(name), request, TARGET)
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("name", WITH_BODY)
def test_a_request_cut_anywhere_is_refused(name: str) -> None:
    whole = recorded_request(name)
    body = bytes(whole.body)
    for length in range(len(body)):
        cut = type(whole)(whole.method, whole.path, whole.headers, (body[:length],), pattern=whole.pattern)
        with pytest.raises(DecodeError):
            decoded(cut, UMBRIDGE, LISTENER)


@pytest.mark.parametrize("name", [*ANSWERS, "infinite_evaluate"])
def test_a_reply_cut_anywhere_is_refused(name: str) -> None:
    request = decoded(recorded_request(name), UMBRIDGE, LISTENER)
    body = bytes(recorded_reply(name).body)
    for length in range(len(body)):
        with pytest.raises(DecodeError):
            UMBRIDGE.decode_response(type(recorded_reply(name))(parts=(body[:length],), status=200), request, TARGET)


def test_malformed_json_is_refused() -> None:
    with pytest.raises(DecodeError):
        decoded(recorded_request("error_malformed"), UMBRIDGE, LISTENER)
