"""Recorded messages of a real KServe 0.21 and its InferenceRESTClient, read and written byte for byte."""

import json
import re

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.models import ModelEntry, ServerInfo, Signature
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Request, Translate
from tests.protocols.v1.wire import LISTENER, TARGET, V1, recorded, recorded_reply, recorded_request


def asked(name: str) -> Request:
    return V1.decode_request(recorded_request(name), LISTENER)


def sent(message: Message) -> bytes:
    return b"".join(message.parts)


@pytest.mark.parametrize("name", ["any_json", "bytes", "named_rows", "client_rows"])
def test_a_request_of_v1_goes_out_to_v1_byte_for_byte(name: str) -> None:
    first, _, expected = recorded(f"{name}.request")
    message = V1.encode_request(asked(name), TARGET)
    if name == "client_rows":
        expected = b'{"instances":[[1.0,2.0],[3.0,4.0]]}'  # numbers of one tensor are of one sort
    if name == "named_rows":
        expected = expected.replace(b"[1,2.5]", b"[1.0,2.5]").replace(b"[3,4.0]", b"[3.0,4.0]")
    assert sent(message) == expected
    assert f"{message.method} {message.path} HTTP/1.1".encode() == first
    assert message.headers.raw == ((b"content-type", b"application/json"),)


def test_other_members_keep_their_place() -> None:
    request = asked("members")
    assert request.parameters == {"signature_name": "s", "k": 2.5, "other": '{"deep":[1,"x"]}'}
    body = b'{"instances":[1],"signature_name":"s","parameters":{"k":2.5},"other":{"deep":[1,"x"]}}'
    assert sent(V1.encode_request(request, TARGET)) == body


def test_columns_stay_columns() -> None:
    assert sent(V1.encode_request(asked("columns"), TARGET)) == b'{"inputs":{"a":[[1.0,2.5]],"b":[3]}}'


def test_the_tensors_of_requests() -> None:
    found = asked("named_rows").inputs
    assert [(each.name, each.datatype, each.shape, each.array.tolist()) for each in found] == [
        ("x", Datatype.FP64, (2, 2), [[1, 2.5], [3, 4]]),
        ("y", Datatype.BYTES, (2,), [b"a", "é".encode()]),
    ]
    [found_bytes] = asked("bytes").inputs
    assert found_bytes.array.tolist() == [b"\0\1\2", b"\xff"]
    [rows] = asked("client_rows").inputs
    assert (rows.name, rows.shape, rows.untyped) == ("", (2, 2), True)


@pytest.mark.parametrize(
    "name",
    ["any_json", "bytes", "columns", "event_binary", "event_structured", "members", "named_rows", "client_rows"],
)
def test_a_reply_of_the_server_goes_out_as_it_came(name: str) -> None:
    request = asked(name)
    _, headers, body = recorded(f"{name}.reply")
    read = recorded_reply(name)
    if name.startswith("event"):  # towards the backend there are no events
        document = json.loads(body)
        read = replace(read, parts=(json.dumps(document.get("data", document)).encode(),))
    answer = V1.decode_response(read, request, TARGET)
    reply = V1.encode_response(answer, request, DEFAULT_TRANSLATE)
    expected = body.replace(b"[3,4.0]", b"[3.0,4.0]").replace(b"[1,2.5]", b"[1.0,2.5]")
    assert without_time(sent(reply)) == without_time(expected)
    assert reply.status == 200
    mine = {name: without_time(text) for name, text in reply.headers.raw}
    real = {name: without_time(text) for name, text in headers.raw}
    assert mine == {name: text for name, text in real.items() if name not in (b"date", b"server", b"content-length")}


def without_time(text: bytes) -> bytes:
    """`text` without the id and the time, which differ in every event."""
    text = re.sub(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", b"ID", text)
    return re.sub(rb"\d{4}-\d\d-\d\dT[0-9:.]+\+00:00", b"TIME", text)


def test_an_event_of_an_unknown_version_is_refused() -> None:
    event = recorded_request("event_binary")
    fields = [(name, b"2.0" if name == b"ce-specversion" else text) for name, text in event.headers.raw]
    with pytest.raises(DecodeError, match=r"Cloud Event Exceptions: Invalid specversion '2\.0', expected 1\.0"):
        V1.decode_request(replace(event, headers=Headers(fields)), LISTENER)


def test_a_body_with_a_part_of_an_event_is_no_event() -> None:
    plain = recorded_request("client_rows")
    request = V1.decode_request(replace(plain, parts=(b'{"instances":[1],"specversion":"1.0"}',)), LISTENER)
    assert request.parameters == {"specversion": "1.0"}
    assert [each.array.tolist() for each in request.inputs] == [[1]]
    with pytest.raises(DecodeError, match="not JSON"):
        V1.decode_request(replace(plain, parts=(b'{"instances":[1],"specversion":',)), LISTENER)


ERRORS = {
    "error_refused": (Reason.INVALID_INPUT, "no ones, please"),
    "error_crash": (Reason.MODEL_ERROR, "RuntimeError : boom"),
    "error_unknown_model": (Reason.MODEL_NOT_FOUND, "Model with name nope does not exist."),
    "error_not_ready": (Reason.NOT_READY, "Model with name resting is not ready."),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_read_and_written_as_they_are(name: str) -> None:
    request = asked(name)
    with pytest.raises(GatewayError) as caught:
        V1.decode_response(recorded_reply(name), request, TARGET)
    assert (caught.value.reason, caught.value.message) == ERRORS[name]
    first, _, body = recorded(f"{name}.reply")
    reply = V1.encode_error(caught.value, request, recorded_request(name))
    assert (reply.status, sent(reply)) == (int(first.split()[1]), body)


def test_a_path_that_kserve_lacks_is_unsupported() -> None:
    request = asked("client_rows")
    for name in ("error_verb", "error_version"):
        with pytest.raises(GatewayError) as caught:
            V1.decode_response(recorded_reply(name), request, TARGET)
        assert caught.value.reason is Reason.UNSUPPORTED
    refused = refusal(Reason.METHOD_NOT_ALLOWED, "Method Not Allowed")
    reply = V1.encode_error(refused, None, recorded_request("client_rows"))
    assert (reply.status, sent(reply)) == (405, recorded("error_verb.reply")[2])


def test_an_explanation_passes_whole() -> None:
    request = asked("explain")
    assert request.operation is Operation.EXPLAIN
    assert V1.encode_request(request, TARGET).path == "/v1/models/double:explain"
    answer = V1.decode_response(recorded_reply("explain"), request, TARGET)
    reply = V1.encode_response(answer, request, DEFAULT_TRANSLATE)
    assert sent(reply) == recorded("explain.reply")[2]


QUESTIONS: dict[str, tuple[Operation, str, Answer]] = {
    "live": (Operation.LIVE, "", True),
    "models": (Operation.MODELS, "", tuple(map(ModelEntry, ("double", "echo", "fail", "resting")))),
    "ready": (Operation.MODEL_READY, "double", True),
    "client_ready": (Operation.MODEL_READY, "double", True),
    "client_live": (Operation.LIVE, "", True),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_are_answered_as_by_the_server(name: str) -> None:
    operation, model, answer = QUESTIONS[name]
    request = asked(name)
    assert (request.operation, request.model) == (operation, model)
    assert V1.decode_response(recorded_reply(name), request, TARGET) == answer
    reply = V1.encode_response(answer, request, DEFAULT_TRANSLATE)
    assert sent(reply) == recorded(f"{name}.reply")[2]
    message = V1.encode_request(request, TARGET)
    assert f"{message.method} {message.path} HTTP/1.1".encode() == recorded(f"{name}.request")[0]


def test_a_stopped_model_is_not_ready() -> None:
    request = asked("not_ready")
    assert V1.decode_response(recorded_reply("not_ready"), request, TARGET) is False
    reply = V1.encode_response(False, request, DEFAULT_TRANSLATE)
    assert (reply.status, sent(reply)) == (503, recorded("not_ready.reply")[2])


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(GatewayError) as caught:
        V1.decode_response(recorded_reply("ready_unknown"), asked("ready_unknown"), TARGET)
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


def test_a_real_server_is_known_by_its_answer() -> None:
    request = replace(asked("live"), operation=Operation.SERVER_METADATA)
    assert V1.decode_response(recorded_reply("live"), request, TARGET) == ServerInfo("kserve", "")


def test_kserve_has_no_metadata() -> None:
    assert V1.decode_response(recorded_reply("metadata"), asked("metadata"), TARGET) == Signature()


def test_nan_is_null_unless_the_route_says_otherwise() -> None:
    request = asked("client_rows")
    told = replace(recorded_reply("client_rows"), parts=(b'{"predictions":[NaN,1]}',))
    answer = V1.decode_response(told, request, TARGET)
    assert sent(V1.encode_response(answer, request, DEFAULT_TRANSLATE)) == b'{"predictions":[null,1.0]}'
    assert sent(V1.encode_response(answer, request, Translate(nan="literal"))) == b'{"predictions":[NaN,1.0]}'
