"""Facing clients, on every wire."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import NO_HEADERS, Message
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, BytesForm, Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.grps import client, errors, gmap, server
from gateway.protocols.grps.payload import backend_message, bin_data, str_data
from gateway.protocols.grps.schema import FAILURE, SUCCESS, GrpsMessage, GrpsStatus, Payload
from tests.protocols.grps.values import asked, inference, numbers, texts

FP32 = numbers("y", Datatype.FP32, 1, 2)
HELLO = texts("upper", "HELLO")
BINARY = texts("image", b"\xff\xd8")
SCALAR = numbers("n", Datatype.INT64, 7)
REQUEST = asked(Payload.GTENSORS, numbers("x", Datatype.FP32, 1))
REQUESTS = {
    payload: asked(payload, texts("x", "a"))
    for payload in (Payload.GTENSORS, Payload.STR_DATA, Payload.BIN_DATA, Payload.GMAP)
}


def answered(*outputs: Tensor, request: Request = REQUEST, form: BytesForm = "text", model: str = "") -> GrpsMessage:
    return server.encode_response(Response(outputs, model), request, Translate(bytes=form))


def decoded(grps: GrpsMessage, operation: Operation = Operation.INFER, default_model: str = "") -> Request:
    return server.decode_request(grps, operation, Message(), default_model)


def from_backend(grps: GrpsMessage) -> Answer:
    return client.decode_response(grps, NO_HEADERS, inference(FP32))


# --- Requests ---


@pytest.mark.parametrize(
    ("model", "default_model", "expected"), [("p-1.0.0", "d", "p-1.0.0"), ("", "d", "d"), ("", "", "")]
)
def test_the_model_of_the_message_goes_before_the_default(model: str, default_model: str, expected: str) -> None:
    grps = GrpsMessage(model, payload=Payload.GTENSORS, tensors=(FP32,))
    assert decoded(grps, default_model=default_model).model == expected


def test_metadata_are_asked_for_by_name_in_str_data() -> None:
    grps = GrpsMessage(payload=Payload.STR_DATA, tensors=(str_data("echo-1.0.0"),))
    assert decoded(grps, Operation.METADATA).model == "echo-1.0.0"
    assert decoded(GrpsMessage("echo"), Operation.METADATA).model == "echo"


@pytest.mark.parametrize(
    ("grps", "expected"),
    [
        (GrpsMessage(payload=Payload.NDARRAY), "ndarray holds its numbers in JSON only"),
        (GrpsMessage(payload=Payload.GTENSORS, tensors=(FP32, HELLO, FP32)), "input 'y' occurs twice"),
        (
            GrpsMessage(
                payload=Payload.GMAP,
                tensors=(gmap.entry("s_i32", "a", 1), gmap.entry("s_f", "a", 1.0), gmap.entry("s_i64", "s_i32.a", 1)),
            ),
            "gmap: two tensors would have the name 's_i32.a'",
        ),
    ],
)
def test_requests_without_valid_data_are_refused(grps: GrpsMessage, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        decoded(grps)


def test_tensors_may_have_no_names() -> None:
    unnamed = replace(FP32, name="")
    assert decoded(GrpsMessage(payload=Payload.GTENSORS, tensors=(unnamed, unnamed))).inputs == (unnamed, unnamed)


def test_the_message_is_kept_for_the_reply() -> None:
    message = Message(peer="192.0.2.1:4242", deadline=3.0)
    grps = GrpsMessage(payload=Payload.GTENSORS, tensors=(FP32,))
    assert server.decode_request(grps, Operation.INFER, message, "").origin is message


# --- Replies ---


@pytest.mark.parametrize(
    ("sent", "outputs", "payload"),
    [
        (Payload.GTENSORS, (FP32, HELLO), Payload.GTENSORS),
        (Payload.GTENSORS, (HELLO,), Payload.GTENSORS),
        (Payload.GTENSORS, (BINARY,), Payload.BIN_DATA),
        (Payload.GTENSORS, (), Payload.GTENSORS),
        (Payload.STR_DATA, (HELLO,), Payload.STR_DATA),
        (Payload.STR_DATA, (BINARY,), Payload.BIN_DATA),
        (Payload.STR_DATA, (HELLO, FP32), Payload.GTENSORS),
        (Payload.STR_DATA, (texts("t", "a", "b"),), Payload.GTENSORS),
        (Payload.STR_DATA, (FP32,), Payload.GTENSORS),
        (Payload.BIN_DATA, (HELLO,), Payload.BIN_DATA),
        (Payload.BIN_DATA, (FP32,), Payload.GTENSORS),
        (Payload.GMAP, (SCALAR, HELLO, BINARY), Payload.GMAP),
        (Payload.GMAP, (SCALAR, FP32), Payload.GTENSORS),
        (Payload.GMAP, (SCALAR, SCALAR), Payload.GTENSORS),
        (Payload.GMAP, (replace(SCALAR, name=""),), Payload.GTENSORS),
    ],
)
def test_the_reply_has_the_payload_of_the_request_if_it_fits(
    sent: Payload, outputs: tuple[Tensor, ...], payload: Payload
) -> None:
    grps = answered(*outputs, request=REQUESTS[sent])
    assert (grps.payload, grps.status) == (payload, GrpsStatus(200, "OK", SUCCESS))
    assert [bytes(each.data) for each in grps.tensors] == [bytes(each.data) for each in outputs]


OCTETS, TEXT = gmap.entry("s_b", "b", b"abc"), gmap.entry("s_s", "s", "abc")


@pytest.mark.parametrize("sent", list(REQUESTS))
@pytest.mark.parametrize(
    "told",
    [
        GrpsMessage(status=errors.OK, payload=Payload.STR_DATA, tensors=(str_data("abc"),)),
        GrpsMessage(status=errors.OK, payload=Payload.BIN_DATA, tensors=(bin_data(b"abc"),)),
        GrpsMessage(status=errors.OK, payload=Payload.BIN_DATA, tensors=(bin_data(b"\xff\0"),)),
        GrpsMessage(status=errors.OK, payload=Payload.GMAP, tensors=(OCTETS, TEXT, gmap.entry("s_b", "c", b"\0\xff"))),
        GrpsMessage(status=errors.OK, payload=Payload.GMAP),
        GrpsMessage(status=errors.OK, payload=Payload.GTENSORS, tensors=(texts("s", "abc"),)),
        GrpsMessage(status=errors.OK, payload=Payload.GTENSORS, tensors=(texts("", "abc"),)),
        GrpsMessage(status=errors.OK, payload=Payload.GTENSORS),
        GrpsMessage(status=errors.OK),
    ],
    ids=["text", "text as bytes", "bytes", "gmap", "empty gmap", "named", "unnamed", "no tensors", "no data"],
)
def test_a_reply_keeps_the_payload_of_a_grps_backend(sent: Payload, told: GrpsMessage) -> None:
    answer = from_backend(told)
    assert isinstance(answer, Response)
    assert server.encode_response(answer, REQUESTS[sent], DEFAULT_TRANSLATE) == told


@pytest.mark.parametrize(
    ("told", "sent", "left", "payload"),
    [
        (Payload.STR_DATA, Payload.BIN_DATA, (FP32,), Payload.GTENSORS),
        (Payload.GMAP, Payload.STR_DATA, (HELLO,), Payload.GMAP),
        (Payload.GMAP, Payload.STR_DATA, (replace(HELLO, name=""),), Payload.STR_DATA),
        (Payload.GMAP, Payload.GTENSORS, (FP32,), Payload.GTENSORS),
        (Payload.STR_DATA, Payload.GTENSORS, (BINARY,), Payload.BIN_DATA),
        (Payload.GTENSORS, Payload.STR_DATA, (BINARY,), Payload.BIN_DATA),
        (None, Payload.STR_DATA, (HELLO,), Payload.STR_DATA),
        (Payload.NDARRAY, Payload.NDARRAY, (FP32,), Payload.GTENSORS),
    ],
)
def test_outputs_that_the_route_changed_may_fit_another_payload(
    told: Payload | None, sent: Payload, left: tuple[Tensor, ...], payload: Payload
) -> None:
    request = asked(sent, FP32 if sent is Payload.NDARRAY else texts("x", "a"))
    response = Response(left, origin=backend_message(told, names_model=False, keys={}))
    assert server.encode_response(response, request, DEFAULT_TRANSLATE).payload is payload


@pytest.mark.parametrize("sent", [payload for payload in REQUESTS if payload is not Payload.NDARRAY])
def test_a_reply_has_the_clients_payload_where_the_route_chose_the_requests(sent: Payload) -> None:
    response = Response((HELLO,), origin=backend_message(Payload.BIN_DATA, names_model=False, keys={}))
    assert server.encode_response(response, REQUESTS[sent], Translate(payload="bin_data")).payload is sent


def test_an_ndarray_that_is_asked_for_goes_before_the_payload_of_the_backend() -> None:
    answer = from_backend(GrpsMessage(status=errors.OK, payload=Payload.GTENSORS, tensors=(FP32,)))
    request = asked(Payload.GTENSORS, FP32, returns_ndarray=True)
    assert server.encode_response(answer, request, DEFAULT_TRANSLATE).payload is Payload.NDARRAY


def test_a_gmap_is_widened_exactly() -> None:
    outputs = (numbers("a", Datatype.INT8, -1), numbers("b", Datatype.FP16, 0.1), BINARY)
    grps = answered(*outputs, request=REQUESTS[Payload.GMAP])
    assert list(gmap.entries(grps.tensors)) == [
        ("s_i32", "a", -1),
        ("s_f", "b", 0.0999755859375),
        ("s_b", "image", b"\xff\xd8"),
    ]


@pytest.mark.parametrize(
    "entries",
    [
        [("s_b", "b", b"abc"), ("s_s", "s", "abc"), ("s_b", "c", b"\xff")],
        [("s_s", "k", "1"), ("s_b", "k", b"1"), *((name, "k", 1) for name in ("s_i32", "s_i64", "s_f", "s_d"))],
    ],
    ids=["text in s_b", "a key in all maps"],
)
def test_the_maps_of_a_gmap_stay_behind_a_model_that_tells_no_text_from_bytes(
    entries: list[tuple[str, str, object]],
) -> None:
    request = asked(Payload.GMAP, *(gmap.entry(*each) for each in entries))
    told = tuple(replace(each, content_type="") for each in request.inputs)
    grps = answered(*told, request=request)
    assert grps.payload is Payload.GMAP
    assert list(gmap.entries(grps.tensors)) == entries
    assert list(gmap.entries(client.encode_request(request).tensors)) == entries


def test_a_message_without_data_goes_on_as_it_is() -> None:
    request = decoded(GrpsMessage("m-1.0.0"))
    assert (request.inputs, client.encode_request(request)) == ((), GrpsMessage("m-1.0.0"))
    assert answered(request=request) == GrpsMessage(status=errors.OK)
    assert answered(FP32, request=request).payload is Payload.GTENSORS


@pytest.mark.parametrize("code", [422, 400, 500, 7])
def test_clients_get_the_code_that_a_model_chose(code: int) -> None:
    told = GrpsMessage(status=GrpsStatus(code, "too small", FAILURE))
    with pytest.raises(GatewayError) as failure:
        from_backend(told)
    assert errors.failure(failure.value) == told


def test_ndarray_only_if_asked() -> None:
    ask = asked(Payload.NDARRAY, replace(FP32, name=""), returns_ndarray=True)
    assert answered(FP32, request=ask) == GrpsMessage("", errors.OK, Payload.NDARRAY, (FP32,))
    assert answered(FP32, request=asked(Payload.NDARRAY, FP32)).payload is Payload.GTENSORS


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((), "No tensors in output. Cannot convert to ndarray."),
        ((FP32, SCALAR), "NDArray only support one tensor, got 2: 'y', 'n'"),
        ((HELLO,), "NDArray only support numbers, output 'upper' is BYTES"),
    ],
)
def test_outputs_that_are_no_ndarray_are_refused_with_the_servers_text(
    outputs: tuple[Tensor, ...], expected: str
) -> None:
    with pytest.raises(GatewayError, match=expected):
        answered(*outputs, request=asked(Payload.GTENSORS, FP32, returns_ndarray=True))


def test_bytes_in_strings_are_refused_by_name_or_base64() -> None:
    several = texts("images", b"\xff", "a")
    with pytest.raises(GatewayError, match="output 'images' holds bytes that are not UTF-8") as refused:
        answered(several)
    assert refused.value.reason is Reason.INVALID_INPUT
    assert answered(several, form="base64").tensors == (texts("images", "/w==", "YQ=="),)
    assert answered(BINARY, form="base64").payload is Payload.GTENSORS


def test_a_reply_names_the_model_as_the_client_did_if_the_model_names_itself() -> None:
    assert answered(FP32, model="identity").model == "m"
    assert answered(FP32).model == ""
    for told, named in (("", ""), ("own-1.0.0", "m")):
        answer = from_backend(GrpsMessage(told, errors.OK, Payload.GTENSORS, (FP32,)))
        assert isinstance(answer, Response)
        # as it comes from the bridge, under the client's name
        assert server.encode_response(replace(answer, model="m"), REQUEST, DEFAULT_TRANSLATE).model == named


def test_metadata_are_str_data() -> None:
    model = server.encode_response(Signature(name="own"), Request(Operation.METADATA, "m"), DEFAULT_TRANSLATE)
    assert (model.payload, model.tensors) == (Payload.STR_DATA, (str_data("name: m\ninputs: []\noutputs: []\n"),))
    models = server.encode_response((ModelEntry("a"),), Request(Operation.MODELS), DEFAULT_TRANSLATE)
    assert models.tensors == (str_data("models:\n- {name: a}\n"),)
