"""What clients ask, and what backends are asked, in whichever wire form."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Request, RequestedOutput, Tensor, Translate
from gateway.protocols.grps import client as requests
from gateway.protocols.grps import gmap
from gateway.protocols.grps.message import GrpsMessage
from gateway.protocols.grps.schema import Kind
from tests.protocols.grps.values import LISTENER, asked, inference, numbers, texts

FP32 = numbers("x", Datatype.FP32, 1, 2)
HELLO = texts("text", "hello")
BINARY = texts("image", b"\xff\xd8")


def decoded(grps: GrpsMessage, operation: Operation = Operation.INFER, model: str = "", own: str = "") -> Request:
    listener = ListenerSettings("any", model=own)
    return requests.decode(grps, operation, Message(), listener, model=model)


# --- From clients ---


@pytest.mark.parametrize(
    ("in_payload", "in_query", "of_listener", "expected"),
    [("p-1.0.0", "q", "l", "p-1.0.0"), ("", "q", "l", "q"), ("", "", "l", "l"), ("", "", "", "")],
)
def test_the_model_of_the_payload_goes_before_others(
    in_payload: str, in_query: str, of_listener: str, expected: str
) -> None:
    grps = GrpsMessage(in_payload, kind=Kind.GTENSORS, tensors=(FP32,))
    assert decoded(grps, model=in_query, own=of_listener).model == expected


def test_metadata_are_asked_for_by_name_in_str_data() -> None:
    grps = GrpsMessage(kind=Kind.STR_DATA, tensors=(requests.text("echo-1.0.0"),))
    assert decoded(grps, Operation.METADATA).model == "echo-1.0.0"
    assert decoded(GrpsMessage("echo"), Operation.METADATA).model == "echo"


@pytest.mark.parametrize(
    ("grps", "expected"),
    [
        (GrpsMessage("m"), "no data, expected str_data, bin_data, gtensors, gmap or ndarray"),
        (GrpsMessage(kind=Kind.NDARRAY), "ndarray holds its numbers in JSON only"),
        (GrpsMessage(kind=Kind.GTENSORS, tensors=(FP32, HELLO, FP32)), "input 'x' is given twice"),
        (
            GrpsMessage(
                kind=Kind.GMAP,
                tensors=(gmap.entry("s_i32", "a", 1), gmap.entry("s_f", "a", 1.0), gmap.entry("s_i64", "s_i32.a", 1)),
            ),
            "'s_i32.a' is a key, and what",
        ),
    ],
)
def test_data_that_no_model_can_have_is_refused(grps: GrpsMessage, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        decoded(grps)


def test_tensors_may_have_no_names() -> None:
    unnamed = replace(FP32, name="")
    assert decoded(GrpsMessage(kind=Kind.GTENSORS, tensors=(unnamed, unnamed))).inputs == (unnamed, unnamed)


# --- Towards backends ---


@pytest.mark.parametrize(
    ("payload", "inputs", "kind"),
    [
        ("", (FP32, HELLO), Kind.GTENSORS),
        ("gtensors", (HELLO,), Kind.GTENSORS),
        ("str_data", (HELLO,), Kind.STR_DATA),
        ("bin_data", (BINARY,), Kind.BIN_DATA),
        ("ndarray", (FP32,), Kind.NDARRAY),
    ],
)
def test_tensors_go_out_in_the_form_that_the_route_wants(payload: str, inputs: tuple[Tensor, ...], kind: Kind) -> None:
    assert requests.encode(inference(*inputs, payload=payload)) == GrpsMessage("m", kind=kind, tensors=inputs)


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
    grps = requests.encode(inference(*inputs, payload="gmap"))
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
        (replace(inference(FP32), parameters={"config": "{}"}), "parameter 'config' has no place in grps"),
        (replace(inference(FP32), parameters={"": 1}), "parameter '' has no place in grps"),
        (inference(replace(FP32, parameters={"k": 1})), "parameter 'k' of input 'x' has no place"),
        (replace(inference(FP32), outputs=(RequestedOutput("y", {"k": 1}),)), "parameter 'k' of output 'y'"),
        (inference(HELLO, model="\ud800"), None),
    ],
)
def test_what_does_not_fit_is_refused_by_name(request_: Request, expected: str | None) -> None:
    if expected is None:
        request_ = replace(request_, operation=Operation.METADATA)
    with pytest.raises(GatewayError, match=expected or "not UTF-8") as refused:
        requests.encode(request_)
    assert refused.value.reason is Reason.INVALID_INPUT


def test_the_datatype_that_a_tensor_had_is_left_out() -> None:
    widened = replace(FP32, parameters={"gateway_datatype": "BF16"})
    assert requests.encode(inference(widened)).tensors == (widened,)


def test_base64_is_of_every_element() -> None:
    grps = requests.encode(inference(texts("t", b"\xff", "a"), form="base64"))
    assert grps.tensors == (texts("t", "/w==", "YQ=="),)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [(Kind.STR_DATA, (HELLO,)), (Kind.BIN_DATA, (HELLO,)), (Kind.GMAP, (gmap.entry("s_d", "a", 0.5),))],
)
def test_between_grps_and_grps_the_form_is_kept(kind: Kind, inputs: tuple[Tensor, ...]) -> None:
    assert requests.encode(asked(kind, *inputs)).kind is kind


def test_what_the_route_says_goes_before_what_the_client_sent() -> None:
    request = asked(Kind.STR_DATA, HELLO)
    wanted = replace(request, translate=replace(request.translate, payload="gtensors"))
    assert requests.encode(wanted).kind is Kind.GTENSORS
    assert requests.encode(replace(request, inputs=(FP32,))).kind is Kind.GTENSORS
    assert requests.encode(asked(Kind.NDARRAY, replace(FP32, name=""))).kind is Kind.GTENSORS


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [("m", "1.0.0", "m-1.0.0"), ("m", "", "m"), ("", "", ""), ("", "1", "")],
)
def test_a_model_and_its_version_are_one_name(model: str, version: str, expected: str) -> None:
    assert requests.encode(replace(inference(FP32, model=model), version=version)).model == expected


def test_other_questions() -> None:
    assert requests.encode(Request(Operation.METADATA, "m", "1")) == GrpsMessage(
        kind=Kind.STR_DATA, tensors=(requests.text("m"),)
    )
    for operation in (Operation.LIVE, Operation.READY, Operation.MODEL_READY, Operation.MODELS):
        assert requests.encode(Request(operation, "m")) == GrpsMessage()


def test_the_message_is_kept_for_the_reply() -> None:
    message = Message(peer="192.0.2.1:4242", deadline=3.0)
    grps = GrpsMessage(kind=Kind.GTENSORS, tensors=(FP32,))
    assert requests.decode(grps, Operation.INFER, message, LISTENER).origin is message


@pytest.mark.parametrize("payload", ["", "gmap"])
def test_the_maps_of_a_gmap_stay(payload: str) -> None:
    entries = (gmap.entry("s_b", "b", b"abc"), gmap.entry("s_s", "s", "abc"), gmap.entry("s_i32", "n", 1))
    request = replace(asked(Kind.GMAP, *entries), translate=Translate(payload=payload))
    assert requests.encode(request).tensors == entries
