import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.exchange import decoded
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.by_hand import field
from tests.protocols.v2.grpc.wire import AS_IS, LISTENER, SERVICE, TARGET, exchanged, message, reply

FREE = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP32, (-1, 3)),),
    (TensorSpec("y", Datatype.BYTES, ()),),
    name="m",
    versions=("1", "v2"),
    platform="p",
)
METADATA = (
    field(1, "m")
    + field(2, "1")
    + field(2, "v2")
    + field(3, "p")
    + field(4, field(1, "x") + field(2, "FP32") + field(3, FREE + b"\x03"))
    + field(5, field(1, "y") + field(2, "BYTES"))
)
INFO = ServerInfo("s", "1.0", ("e",))
COMPANIONS_ONLY = Signature(name="m", operations=frozenset())
MODELS = (ModelEntry("a", "1", "READY"), ModelEntry("b", "", "UNAVAILABLE", "why"), ModelEntry("c"))
A = field(1, field(1, "a") + field(2, "1") + field(3, "READY"))
B = field(1, field(1, "b") + field(3, "UNAVAILABLE") + field(4, "why"))
C = field(1, field(1, "c"))

ANSWERS: list[tuple[Operation, str, Answer, bytes]] = [
    (Operation.LIVE, "ServerLive", True, b"\x08\x01"),
    (Operation.LIVE, "ServerLive", False, b""),
    (Operation.READY, "ServerReady", True, b"\x08\x01"),
    (Operation.READY, "ServerReady", False, b""),
    (Operation.MODEL_READY, "ModelReady", True, b"\x08\x01"),
    (Operation.MODEL_READY, "ModelReady", False, b""),
    (Operation.SERVER_METADATA, "ServerMetadata", INFO, field(1, "s") + field(2, "1.0") + field(3, "e")),
    (Operation.METADATA, "ModelMetadata", SIGNATURE, METADATA),
    (Operation.METADATA, "ModelMetadata", Signature(name="m"), field(1, "m")),
    (Operation.METADATA, "ModelMetadata", COMPANIONS_ONLY, field(1, "m") + b"\xc0\x3e\x01"),
    (Operation.CONFIG, "ModelConfig", {}, field(1, b"")),
    (Operation.MODELS, "RepositoryIndex", MODELS, A + B + C),
    (Operation.MODELS, "RepositoryIndex", (), b""),
]


@pytest.mark.parametrize(("operation", "method", "answer", "body"), ANSWERS)
def test_answers_are_written_and_read(operation: Operation, method: str, answer: Answer, body: bytes) -> None:
    request = Request(operation, "m" if "Model" in method else "")
    written = V2_GRPC.encode_response(answer, request, AS_IS)
    assert (written.status, written.body) == (0, body)
    assert V2_GRPC.decode_response(reply(body), request, TARGET) == answer


@pytest.mark.parametrize(("operation", "method", "answer", "body"), ANSWERS)
def test_a_damaged_answer_is_refused(operation: Operation, method: str, answer: Answer, body: bytes) -> None:
    with pytest.raises(DecodeError, match=f"no inference.{method}Response message"):
        V2_GRPC.decode_response(reply(body + b"\x0a\x05"), Request(operation, "m"), TARGET)


QUESTIONS = [
    (Operation.LIVE, "ServerLive", b""),
    (Operation.READY, "ServerReady", b""),
    (Operation.SERVER_METADATA, "ServerMetadata", b""),
    (Operation.MODELS, "RepositoryIndex", b""),
    (Operation.MODEL_READY, "ModelReady", field(1, "m") + field(2, "v1")),
    (Operation.METADATA, "ModelMetadata", field(1, "m") + field(2, "v1")),
    (Operation.CONFIG, "ModelConfig", field(1, "m") + field(2, "v1")),
]


@pytest.mark.parametrize(("operation", "method", "body"), QUESTIONS)
def test_requests_are_read_and_written(operation: Operation, method: str, body: bytes) -> None:
    sent = message(body, SERVICE + method)
    request = decoded(sent, V2_GRPC, LISTENER)
    assert (request.operation, request.model, request.version) == (operation, *(("m", "v1") if body else ("", "")))
    assert (request.headers, request.origin) == (sent.headers, sent)
    written = V2_GRPC.encode_request(request, TARGET)
    assert (written.path, written.pattern, written.body) == (SERVICE + method, SERVICE + method, body)


@pytest.mark.parametrize(("operation", "method", "body"), QUESTIONS)
def test_a_damaged_request_is_refused(operation: Operation, method: str, body: bytes) -> None:
    with pytest.raises(DecodeError, match=f"no inference.{method}Request message"):
        decoded(message(body + b"\x0a", SERVICE + method), V2_GRPC, LISTENER)


def test_metadata_has_the_clients_model_name_and_the_wires_extensions() -> None:
    written = V2_GRPC.encode_response(SIGNATURE, Request(Operation.METADATA, "alias"), AS_IS)
    assert bytes(written.body).startswith(field(1, "alias"))
    written = V2_GRPC.encode_response(ServerInfo("s", ""), Request(Operation.SERVER_METADATA), AS_IS)
    assert written.body == field(1, "s") + field(3, "parameters")


def test_the_index_leaves_out_what_is_not_ready_if_asked() -> None:
    request = decoded(message(field(2, 1), SERVICE + "RepositoryIndex"), V2_GRPC, LISTENER)
    assert V2_GRPC.encode_response(MODELS, request, AS_IS).body == A + C


@pytest.mark.parametrize("value", [field(1, "a") + field(2, "text"), field(1, "a") + field(2, b"\x10\x05")])
def test_field_6_is_not_read(value: bytes) -> None:
    """It is a map of properties (strings) in the specification, of parameters in MLServer: an integer is no string."""
    request = Request(Operation.METADATA, "m")
    assert V2_GRPC.decode_response(reply(METADATA + field(6, value)), request, TARGET) == SIGNATURE


@pytest.mark.parametrize(
    "spec",
    [field(2, "FP8"), b"", field(2, "FP32") + field(3, b"\xfe" + FREE[1:])],  # the last is -2
)
def test_refuses_metadata_with_wrong_datatypes_or_dimensions(spec: bytes) -> None:
    with pytest.raises(DecodeError, match="input 'x'"):
        V2_GRPC.decode_response(reply(field(4, field(1, "x") + spec)), Request(Operation.METADATA, "m"), TARGET)


@pytest.mark.parametrize("server", ["triton", "mlserver"])
def test_states_are_the_same_at_every_server(server: str) -> None:
    _, _, (index_reply,) = exchanged(server, "index")
    index = V2_GRPC.decode_response(index_reply, Request(Operation.MODELS), TARGET)
    assert isinstance(index, tuple)
    assert {each.state for each in index} == {"READY"}
