"""Messages of the tests: those recorded from the real client and server, and short ones written by hand."""

from pathlib import Path
from struct import pack

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.exchange import decoded
from gateway.core.messages import Headers, Message
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Request, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.umbridge import PROTOCOLS

RECORDED = Path(__file__).parents[2] / "wire" / "umbridge"
NAMES = sorted(path.stem for path in RECORDED.glob("*.request"))
UMBRIDGE = PROTOCOLS[0]
LISTENER = ListenerSettings("http")
TARGET = Target("science", "http://127.0.0.1:4242")


def recorded_request(name: str) -> Message:
    """A request of the real client, as the HTTP listener passes it on."""
    line, headers, body = _http((RECORDED / f"{name}.request").read_bytes())
    method, path, _ = line.split(" ")
    return Message(method, path, headers, (body,), pattern=f"{method} {path}")


def recorded_reply(name: str) -> Message:
    """A reply of the real server, as the HTTP connector passes it on."""
    line, headers, body = _http((RECORDED / f"{name}.reply").read_bytes())
    return Message(headers=headers, parts=(body,), status=int(line.split(" ")[1]))


def _http(data: bytes) -> tuple[str, Headers, bytes]:
    header, _, body = data.partition(b"\r\n\r\n")
    line, *fields = header.split(b"\r\n")
    pairs = [field.split(b": ", 1) for field in fields]
    return line.decode(), Headers([(name.lower(), text) for name, text in pairs]), body


def call(path: str, body: bytes | str) -> Message:
    """`POST path`."""
    raw = body.encode() if isinstance(body, str) else body
    return Message("POST", path, parts=(raw,), pattern=f"POST {path}")


def asked(path: str, body: bytes | str) -> Request:
    """The Request of `POST path`."""
    return decoded(call(path, body), UMBRIDGE, LISTENER)


def reply(body: bytes | str, status: int = 200, headers: Headers | None = None) -> Message:
    """A reply without Content-Type."""
    raw = body.encode() if isinstance(body, str) else body
    return Message(headers=headers or Headers(), parts=(raw,), status=status)


def answered(body: str, request: Request) -> Answer:
    """What a backend's reply with this body says."""
    return UMBRIDGE.decode_response(reply(body), request, TARGET)


def written(answer: Answer, request: Request, translate: Translate = DEFAULT_TRANSLATE) -> bytes:
    """The body of the reply to a client."""
    message = UMBRIDGE.encode_response(answer, request, translate)
    assert (message.status, message.headers.get("content-type")) == (200, "application/json")
    return bytes(message.body)


def floats(*numbers: float, name: str = "") -> Tensor:
    """An untyped FP64 vector."""
    return Tensor(name, Datatype.FP64, (len(numbers),), pack(f"<{len(numbers)}d", *numbers), untyped=True)


def integers(*numbers: int, name: str = "") -> Tensor:
    """An untyped INT64 vector."""
    return Tensor(name, Datatype.INT64, (len(numbers),), pack(f"<{len(numbers)}q", *numbers), untyped=True)


def index(name: str, position: int) -> Tensor:
    """A typed index tensor."""
    return Tensor(name, Datatype.INT64, (1,), pack("<q", position))


def numbers(tensor: Tensor) -> list[float]:
    """Its elements as Python has them."""
    return [element.item() for element in np.asarray(tensor.array).reshape(-1)]
