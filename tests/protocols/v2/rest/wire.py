"""Messages as the HTTP transport hands them to the codec, and short ways to decode requests and replies."""

from typing import Any

from gateway.core.datatypes import Datatype
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_REST

LISTENER = ListenerSettings("http")
TARGET = Target("models", "127.0.0.1:8000")
AS_IS = Translate()
Y = Tensor("y", Datatype.FP64, (1, 2), b"\x00\x00\x00\x00\x00\x00\xf8?\x00\x00\x00\x00\x00\x00\x00\xc0")  # 1.5 and -2
INFER = "POST /v2/models/{model}/infer"


def headers(header_length: object = None) -> Headers:
    """The headers of an inference, with that of the binary tensor data extension if a length is given."""
    length = () if header_length is None else ((b"inference-header-content-length", str(header_length).encode()),)
    return Headers(((b"host", b"gateway"), *length))


def infer_message(body: Buffer, header_length: object = None, **changes: Any) -> Message:
    captures = {"model": "m"}
    message = Message("POST", "/v2/models/m/infer", headers(header_length), (body,), pattern=INFER, captures=captures)
    return replace(message, **changes)


def infer(body: Buffer, header_length: object = None, **changes: Any) -> Request:
    return decoded(infer_message(body, header_length, **changes), V2_REST, LISTENER)


def one_input(members: bytes, tensors: bytes | None = None) -> Request:
    """A request whose only input has these JSON members and a name; `tensors` are the bytes behind the JSON header."""
    header = b'{"inputs":[{"name":"x",' + members + b"}]}"
    return infer(header) if tensors is None else infer(header + tensors, len(header))


def reply(body: Buffer, header_length: object = None, status: int = 200) -> Message:
    return Message(status=status, headers=headers(header_length), parts=(body,) if body else ())


def decode(answer: Message, request: Request | None = None) -> Response:
    response = V2_REST.decode_response(answer, request or Request(Operation.INFER, "m"), TARGET)
    assert isinstance(response, Response)
    return response


def received(message: Message) -> Message:
    """The message as its receiver gets it, its body in one buffer."""
    return replace(message, parts=(message.body,), pattern=INFER, captures={"model": "m"})


def values(tensor: Tensor) -> object:
    return tensor.array.tolist()
