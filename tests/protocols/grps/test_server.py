"""Answers to clients, and replies of backends, in whichever wire form."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import (
    DEFAULT_TRANSLATE,
    NO_HEADERS,
    Answer,
    BytesForm,
    Headers,
    ModelEntry,
    Request,
    Response,
    Signature,
    Tensor,
    Translate,
)
from gateway.protocols.grps import client as requests
from gateway.protocols.grps import errors, gmap
from gateway.protocols.grps import payload as forms
from gateway.protocols.grps import server as responses
from gateway.protocols.grps.message import GrpsMessage, GrpsStatus
from gateway.protocols.grps.schema import FAILURE, SUCCESS, UNKNOWN, Kind
from tests.protocols.grps.values import asked, numbers, texts

FP32 = numbers("y", Datatype.FP32, 1, 2)
HELLO = texts("upper", "HELLO")
BINARY = texts("image", b"\xff\xd8")
SCALAR = numbers("n", Datatype.INT64, 7)
QUESTION = asked(Kind.GTENSORS, numbers("x", Datatype.FP32, 1))
OF = {kind: asked(kind, texts("x", "a")) for kind in (Kind.GTENSORS, Kind.STR_DATA, Kind.BIN_DATA, Kind.GMAP)}

CPP_UNKNOWN = "[ExecutorException] Not found model: nobody-1.0.0"
PYTHON_UNKNOWN = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3/grps_framework/handler/grps_handler.py", line 53, in Predict\n'
    "    grpc_response = self.__tp.submit(...).result()\n"
    "RuntimeError: Model nobody-1.0.0 not found.\n"
)


def answered(*outputs: Tensor, request: Request = QUESTION, form: BytesForm = "text", model: str = "") -> GrpsMessage:
    return responses.encode(Response(outputs, model), request, Translate(bytes=form))


def read(grps: GrpsMessage, operation: Operation = Operation.INFER, headers: Headers = NO_HEADERS) -> Answer:
    return responses.decode(grps, headers, Request(operation, "m"))


# --- To clients ---


@pytest.mark.parametrize(
    ("sent", "outputs", "kind"),
    [
        (Kind.GTENSORS, (FP32, HELLO), Kind.GTENSORS),
        (Kind.GTENSORS, (HELLO,), Kind.GTENSORS),
        (Kind.GTENSORS, (BINARY,), Kind.BIN_DATA),
        (Kind.GTENSORS, (), Kind.GTENSORS),
        (Kind.STR_DATA, (HELLO,), Kind.STR_DATA),
        (Kind.STR_DATA, (BINARY,), Kind.BIN_DATA),
        (Kind.STR_DATA, (HELLO, FP32), Kind.GTENSORS),
        (Kind.STR_DATA, (texts("t", "a", "b"),), Kind.GTENSORS),
        (Kind.STR_DATA, (FP32,), Kind.GTENSORS),
        (Kind.BIN_DATA, (HELLO,), Kind.BIN_DATA),
        (Kind.BIN_DATA, (FP32,), Kind.GTENSORS),
        (Kind.GMAP, (SCALAR, HELLO, BINARY), Kind.GMAP),
        (Kind.GMAP, (SCALAR, FP32), Kind.GTENSORS),
        (Kind.GMAP, (SCALAR, SCALAR), Kind.GTENSORS),
        (Kind.GMAP, (replace(SCALAR, name=""),), Kind.GTENSORS),
    ],
)
def test_the_reply_has_the_form_of_the_request_if_it_fits(sent: Kind, outputs: tuple[Tensor, ...], kind: Kind) -> None:
    grps = answered(*outputs, request=OF[sent])
    assert (grps.kind, grps.status) == (kind, GrpsStatus(200, "OK", SUCCESS))
    assert [bytes(each.data) for each in grps.tensors] == [bytes(each.data) for each in outputs]


OCTETS, TEXT = gmap.entry("s_b", "b", b"abc"), gmap.entry("s_s", "s", "abc")


@pytest.mark.parametrize("sent", list(OF))
@pytest.mark.parametrize(
    "told",
    [
        GrpsMessage(status=errors.OK, kind=Kind.STR_DATA, tensors=(requests.text("abc"),)),
        GrpsMessage(status=errors.OK, kind=Kind.BIN_DATA, tensors=(requests.octets(b"abc"),)),
        GrpsMessage(status=errors.OK, kind=Kind.BIN_DATA, tensors=(requests.octets(b"\xff\0"),)),
        GrpsMessage(status=errors.OK, kind=Kind.GMAP, tensors=(OCTETS, TEXT, gmap.entry("s_b", "c", b"\0\xff"))),
        GrpsMessage(status=errors.OK, kind=Kind.GMAP),
        GrpsMessage(status=errors.OK, kind=Kind.GTENSORS, tensors=(texts("s", "abc"),)),
        GrpsMessage(status=errors.OK, kind=Kind.GTENSORS, tensors=(texts("", "abc"),)),
        GrpsMessage(status=errors.OK, kind=Kind.GTENSORS),
        GrpsMessage(status=errors.OK),
    ],
    ids=["text", "text as bytes", "bytes", "gmap", "empty gmap", "named", "unnamed", "no tensors", "no data"],
)
def test_a_model_behind_grps_has_the_word_over_the_form(sent: Kind, told: GrpsMessage) -> None:
    answer = read(told)
    assert isinstance(answer, Response)
    assert responses.encode(answer, OF[sent], DEFAULT_TRANSLATE) == told


@pytest.mark.parametrize(
    ("told", "sent", "left", "kind"),
    [
        (Kind.STR_DATA, Kind.BIN_DATA, (FP32,), Kind.GTENSORS),
        (Kind.GMAP, Kind.STR_DATA, (HELLO,), Kind.GMAP),
        (Kind.GMAP, Kind.STR_DATA, (replace(HELLO, name=""),), Kind.STR_DATA),
        (Kind.GMAP, Kind.GTENSORS, (FP32,), Kind.GTENSORS),
        (Kind.STR_DATA, Kind.GTENSORS, (BINARY,), Kind.BIN_DATA),
        (Kind.GTENSORS, Kind.STR_DATA, (BINARY,), Kind.BIN_DATA),
        (None, Kind.STR_DATA, (HELLO,), Kind.STR_DATA),
        (Kind.NDARRAY, Kind.NDARRAY, (FP32,), Kind.GTENSORS),
    ],
)
def test_what_the_route_made_of_it_may_fit_another_form(
    told: Kind | None, sent: Kind, left: tuple[Tensor, ...], kind: Kind
) -> None:
    request = asked(sent, FP32 if sent is Kind.NDARRAY else texts("x", "a"))
    response = Response(left, origin=forms.told(told, names_model=False, keys={}))
    assert responses.encode(response, request, DEFAULT_TRANSLATE).kind is kind


@pytest.mark.parametrize("sent", [kind for kind in OF if kind is not Kind.NDARRAY])
def test_where_the_route_chose_the_payload_the_form_is_the_clients(sent: Kind) -> None:
    response = Response((replace(HELLO, shape=(1,)),), origin=forms.told(Kind.BIN_DATA, names_model=False, keys={}))
    assert responses.encode(response, OF[sent], Translate(payload="bin_data")).kind is sent


def test_an_array_that_is_asked_for_goes_before_the_form_of_the_model() -> None:
    answer = read(GrpsMessage(status=errors.OK, kind=Kind.GTENSORS, tensors=(FP32,)))
    request = asked(Kind.GTENSORS, FP32, returns_ndarray=True)
    assert responses.encode(answer, request, DEFAULT_TRANSLATE).kind is Kind.NDARRAY


def test_a_gmap_is_widened_exactly() -> None:
    outputs = (numbers("a", Datatype.INT8, -1), numbers("b", Datatype.FP16, 0.1), BINARY)
    grps = answered(*outputs, request=OF[Kind.GMAP])
    assert list(gmap.entries(grps.tensors)) == [
        ("s_i32", "a", -1),
        ("s_f", "b", 0.0999755859375),
        ("s_b", "image", b"\xff\xd8"),
    ]


def test_ndarray_only_if_asked() -> None:
    ask = asked(Kind.NDARRAY, replace(FP32, name=""), returns_ndarray=True)
    assert answered(FP32, request=ask) == GrpsMessage("", errors.OK, Kind.NDARRAY, (FP32,))
    assert answered(FP32, request=asked(Kind.NDARRAY, FP32)).kind is Kind.GTENSORS


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ((), "No tensors in output. Cannot convert to ndarray."),
        ((FP32, SCALAR), "NDArray only support one tensor, got 2: 'y', 'n'"),
        ((HELLO,), "NDArray only support numbers, output 'upper' is BYTES"),
    ],
)
def test_what_is_no_ndarray_is_told_in_the_words_of_the_servers(outputs: tuple[Tensor, ...], expected: str) -> None:
    with pytest.raises(GatewayError, match=expected):
        answered(*outputs, request=asked(Kind.GTENSORS, FP32, returns_ndarray=True))


def test_bytes_in_strings_are_refused_by_name_or_base64() -> None:
    several = texts("images", b"\xff", "a")
    with pytest.raises(GatewayError, match="output 'images' holds bytes that are not UTF-8") as refused:
        answered(several)
    assert refused.value.reason is Reason.INVALID_INPUT
    assert answered(several, form="base64").tensors == (texts("images", "/w==", "YQ=="),)
    assert answered(BINARY, form="base64").kind is Kind.GTENSORS


def test_the_model_is_named_as_the_client_did_where_the_model_names_itself() -> None:
    assert answered(FP32, model="identity").model == "m"
    assert answered(FP32).model == ""
    for told, named in (("", ""), ("own-1.0.0", "m")):
        answer = read(GrpsMessage(told, errors.OK, Kind.GTENSORS, (FP32,)))
        assert isinstance(answer, Response)
        # as it comes from the bridge, under the client's name
        assert responses.encode(replace(answer, model="m"), QUESTION, DEFAULT_TRANSLATE).model == named


@pytest.mark.parametrize("operation", [Operation.LIVE, Operation.READY, Operation.ONLINE, Operation.OFFLINE])
def test_health(operation: Operation) -> None:
    def told(answer: bool) -> GrpsMessage:
        return responses.encode(answer, Request(operation), DEFAULT_TRANSLATE)

    assert told(True) == GrpsMessage(status=GrpsStatus(200, "OK", SUCCESS))
    assert told(False) == GrpsMessage(status=GrpsStatus(503, "Service Unavailable", FAILURE))


def test_metadata_are_str_data() -> None:
    model = responses.encode(Signature(name="own"), Request(Operation.METADATA, "m"), DEFAULT_TRANSLATE)
    assert (model.kind, model.tensors) == (Kind.STR_DATA, (requests.text("name: m\ninputs: []\noutputs: []\n"),))
    server = responses.encode((ModelEntry("a"),), Request(Operation.MODELS), DEFAULT_TRANSLATE)
    assert server.tensors == (requests.text("models:\n- {name: a}\n"),)


# --- Of backends ---


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        (None, False),
        (GrpsStatus(), False),  # C++'s metadata over RPC
        (GrpsStatus(200, "OK", SUCCESS), False),
        (GrpsStatus(200, "", UNKNOWN), False),
        (GrpsStatus(0, "", FAILURE), True),
        (GrpsStatus(500, "", UNKNOWN), True),
    ],
)
def test_the_flag_decides_and_without_it_the_code(status: GrpsStatus | None, failed: bool) -> None:
    grps = GrpsMessage(status=status, kind=Kind.GTENSORS, tensors=(FP32,))
    if failed:
        with pytest.raises(GatewayError):
            read(grps)
    else:
        answer = read(grps)
        assert isinstance(answer, Response)
        assert answer.outputs == (FP32,)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (GrpsStatus(404, "Not Found", FAILURE), Reason.MODEL_NOT_FOUND, "Not Found"),
        (GrpsStatus(400, "No model name.", FAILURE), Reason.INVALID_INPUT, "No model name."),
        (GrpsStatus(500, "[ExecutorException] x", FAILURE), Reason.MODEL_ERROR, "[ExecutorException] x"),
        (GrpsStatus(500, CPP_UNKNOWN, FAILURE), Reason.MODEL_NOT_FOUND, CPP_UNKNOWN),
        (GrpsStatus(500, PYTHON_UNKNOWN, FAILURE), Reason.MODEL_NOT_FOUND, PYTHON_UNKNOWN),
        (GrpsStatus(500, PYTHON_UNKNOWN + "x", FAILURE), Reason.MODEL_ERROR, PYTHON_UNKNOWN + "x"),
        (GrpsStatus(500, "Model a not found.", FAILURE), Reason.MODEL_ERROR, "Model a not found."),
        (GrpsStatus(400, CPP_UNKNOWN, FAILURE), Reason.INVALID_INPUT, CPP_UNKNOWN),
        (GrpsStatus(503, "Service Unavailable", FAILURE), Reason.UNREACHABLE, "Service Unavailable"),
        (GrpsStatus(0, "", FAILURE), Reason.MODEL_ERROR, "status 0 without a message"),
    ],
)
def test_failures(status: GrpsStatus, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as told:
        read(GrpsMessage(status=status))
    assert (told.value.reason, told.value.message) == (reason, text)


@pytest.mark.parametrize("reason", list(Reason))
def test_between_gateways_no_reason_is_lost(reason: Reason) -> None:
    error = refusal(reason, "why \ud800")
    with pytest.raises(GatewayError) as told:
        read(errors.failure(error), headers=Headers((errors.reason_header(error),)))
    assert (told.value.reason, told.value.status, told.value.message) == (reason, reason.status, "why ?")


@pytest.mark.parametrize("code", [503, 403, 500])
def test_any_failure_is_not_ready(code: int) -> None:
    grps = GrpsMessage(status=GrpsStatus(code, "Service Unavailable", FAILURE))
    assert read(grps, Operation.READY) is False
    assert read(grps, Operation.MODEL_READY) is False
    assert read(GrpsMessage(status=errors.OK), Operation.READY) is True


def test_a_reply_without_data_has_no_outputs() -> None:
    answer = read(GrpsMessage("m", errors.OK))
    assert isinstance(answer, Response)
    assert (answer.outputs, answer.model) == ((), "m")


@pytest.mark.parametrize(
    ("operation", "grps", "expected"),
    [
        (Operation.INFER, GrpsMessage(), "no data"),
        (
            Operation.INFER,
            GrpsMessage(status=errors.OK, kind=Kind.GTENSORS, tensors=(FP32, FP32)),
            "output 'y' is given",
        ),
        (Operation.METADATA, GrpsMessage(status=errors.OK), "no str_data, expected metadata"),
        (Operation.MODELS, GrpsMessage(status=errors.OK, kind=Kind.GTENSORS), "no str_data"),
    ],
)
def test_replies_that_are_none(operation: Operation, grps: GrpsMessage, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        read(grps, operation)
