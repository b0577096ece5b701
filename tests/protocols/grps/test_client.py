"""Facing backends, on every wire."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import NO_HEADERS, Headers
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.grps import client, errors, gmap
from gateway.protocols.grps.payload import str_data
from gateway.protocols.grps.schema import GrpsMessage, Payload
from tests.protocols.grps.values import asked, inference, numbers, texts

FP32 = numbers("x", Datatype.FP32, 1, 2)
HELLO = texts("text", "hello")
BINARY = texts("image", b"\xff\xd8")


def read(grps: GrpsMessage, operation: Operation = Operation.INFER, headers: Headers = NO_HEADERS) -> Answer:
    return client.decode_response(grps, headers, Request(operation, "m"))


# --- Requests ---


@pytest.mark.parametrize(
    ("payload", "inputs", "kind"),
    [
        ("", (FP32, HELLO), Payload.GTENSORS),
        ("gtensors", (HELLO,), Payload.GTENSORS),
        ("str_data", (HELLO,), Payload.STR_DATA),
        ("bin_data", (BINARY,), Payload.BIN_DATA),
        ("ndarray", (FP32,), Payload.NDARRAY),
    ],
)
def test_tensors_have_the_payload_that_the_route_names(payload: str, inputs: tuple[Tensor, ...], kind: Payload) -> None:
    assert client.encode_request(inference(*inputs, payload=payload)) == GrpsMessage("m", payload=kind, tensors=inputs)


def test_gmap_takes_named_scalars_of_the_datatypes_that_it_has() -> None:
    inputs = (
        numbers("a", Datatype.UINT8, 255),
        numbers("b", Datatype.INT16, -3),
        numbers("c", Datatype.INT64, 2**53 + 1),
        numbers("d", Datatype.FP16, 0.5),
        replace(numbers("e", Datatype.FP64, 0.1), shape=(1, 1)),
        texts("f", "é"),
        texts("g", b"\xff"),
    )
    grps = client.encode_request(inference(*inputs, payload="gmap"))
    assert list(gmap.entries(grps.tensors)) == [
        ("s_i32", "a", 255),
        ("s_i32", "b", -3),
        ("s_i64", "c", 2**53 + 1),
        ("s_f", "d", 0.5),
        ("s_d", "e", 0.1),
        ("s_s", "f", "é"),
        ("s_b", "g", b"\xff"),
    ]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            inference(FP32, payload="str_data"),
            r"input 'x' is FP32 of shape \[2\]; translate.payload: str_data takes one",
        ),
        (
            inference(texts("t", "a", "b"), payload="bin_data"),
            "input 't' is BYTES .*payload: bin_data takes one element",
        ),
        (inference(HELLO, BINARY, payload="str_data"), "payload: str_data takes one input, got 2: 'text', 'image'"),
        (
            inference(BINARY, payload="str_data"),
            "input 'image' holds bytes that are not UTF-8.*translate.bytes: base64",
        ),
        (inference(BINARY), "input 'image' holds bytes that are not UTF-8"),
        (inference(texts("t", "x" * 9, b"\xff")), "input 't' holds bytes"),
        (inference(FP32, payload="gmap"), r"input 'x' .*payload: gmap takes a name and one element"),
        (inference(texts("", "a"), payload="gmap"), "payload: gmap takes a name"),
        (inference(HELLO, payload="ndarray"), "input 'text' is BYTES .*payload: ndarray takes numbers"),
        (inference(numbers("n", Datatype.INT64, 1), payload="ndarray"), "numbers that FP32 holds exactly"),
        (inference(FP32, FP32, payload="ndarray"), "payload: ndarray takes one input, got 2"),
        (
            replace(inference(FP32), parameters={"config": "{}"}),
            "parameter 'config' is not supported: grps has no parameters",
        ),
        (replace(inference(FP32), parameters={"": 1}), "parameter '' is not supported"),
        (inference(replace(FP32, parameters={"k": 1})), "parameter 'k' of input 'x' is not supported"),
        (replace(inference(FP32), outputs=(RequestedOutput("y", {"k": 1}),)), "parameter 'k' of output 'y'"),
        (inference(HELLO, model="\ud800"), None),
    ],
)
def test_what_does_not_fit_is_refused_by_name(request_: Request, expected: str | None) -> None:
    if expected is None:
        request_ = replace(request_, operation=Operation.METADATA)
    with pytest.raises(GatewayError, match=expected or "not UTF-8") as refused:
        client.encode_request(request_)
    assert refused.value.reason is Reason.INVALID_INPUT


def test_the_datatype_that_a_tensor_had_is_left_out() -> None:
    widened = replace(FP32, parameters={"gateway_datatype": "BF16"})
    assert client.encode_request(inference(widened)).tensors == (widened,)


def test_base64_is_of_every_element() -> None:
    grps = client.encode_request(inference(texts("t", b"\xff", "a"), form="base64"))
    assert grps.tensors == (texts("t", "/w==", "YQ=="),)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [(Payload.STR_DATA, (HELLO,)), (Payload.BIN_DATA, (HELLO,)), (Payload.GMAP, (gmap.entry("s_d", "a", 0.5),))],
)
def test_the_payload_of_a_grps_client_is_kept(kind: Payload, inputs: tuple[Tensor, ...]) -> None:
    assert client.encode_request(asked(kind, *inputs)).payload is kind


def test_the_payload_of_the_route_goes_before_the_clients() -> None:
    request = asked(Payload.STR_DATA, HELLO)
    wanted = replace(request, translate=replace(request.translate, payload="gtensors"))
    assert client.encode_request(wanted).payload is Payload.GTENSORS
    assert client.encode_request(replace(request, inputs=(FP32,))).payload is Payload.GTENSORS
    assert client.encode_request(asked(Payload.NDARRAY, replace(FP32, name=""))).payload is Payload.GTENSORS


@pytest.mark.parametrize(
    ("model", "version", "expected"), [("m", "1.0.0", "m-1.0.0"), ("m", "", "m"), ("", "", ""), ("", "1", "")]
)
def test_a_model_and_its_version_are_one_name(model: str, version: str, expected: str) -> None:
    assert client.encode_request(replace(inference(FP32, model=model), version=version)).model == expected


def test_other_operations() -> None:
    asked = client.encode_request(Request(Operation.METADATA, "m", "1"))
    assert asked == GrpsMessage(payload=Payload.STR_DATA, tensors=(str_data("m"),))
    for operation in (Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.MODELS):
        assert client.encode_request(Request(operation, "m")) == GrpsMessage()


@pytest.mark.parametrize("payload", ["", "gmap"])
def test_the_maps_of_a_gmap_stay(payload: str) -> None:
    entries = (gmap.entry("s_b", "b", b"abc"), gmap.entry("s_s", "s", "abc"), gmap.entry("s_i32", "n", 1))
    request = replace(asked(Payload.GMAP, *entries), translate=Translate(payload=payload))
    assert client.encode_request(request).tensors == entries


# --- Replies ---


def test_a_reply_without_data_has_no_outputs() -> None:
    answer = read(GrpsMessage("m", errors.OK))
    assert isinstance(answer, Response)
    assert (answer.outputs, answer.model) == ((), "m")


@pytest.mark.parametrize(
    ("operation", "grps", "expected"),
    [
        (Operation.INFER, GrpsMessage(), "no data"),
        (Operation.INFER, GrpsMessage("", errors.OK, Payload.GTENSORS, (FP32, FP32)), "output 'x' occurs"),
        (Operation.METADATA, GrpsMessage(status=errors.OK), "no str_data, expected metadata"),
        (Operation.MODELS, GrpsMessage(status=errors.OK, payload=Payload.GTENSORS), "no str_data"),
    ],
)
def test_invalid_replies(operation: Operation, grps: GrpsMessage, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        read(grps, operation)
