"""The binary tensor extension: a JSON header, then the raw bytes of tensors in the header's order.

`Inference-Header-Content-Length` says how long the JSON is. Without it the whole body is JSON, whatever the
Content-Type: tritonclient sends none, and its asyncio form calls plain JSON an octet-stream.
"""

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer, Headers, Message

HEADER = "inference-header-content-length"

JSON_HEADERS = Headers(((b"content-type", b"application/json"),))

_OCTET_STREAM = (b"content-type", b"application/octet-stream")
_ABSENT = "absent"


class BinaryTensors:
    """The bytes behind the JSON header, handed out tensor by tensor as views."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, tensors: memoryview) -> None:
        self._bytes = tensors
        self._at = 0

    def take(self, size: object, what: str) -> memoryview:
        """The next `size` bytes. Raises DecodeError where `size` is no integer, negative, or more than are left."""
        if type(size) is not int or size < 0:
            raise DecodeError(f"{what}: binary_data_size must be an integer of at least 0, not {size!r}")
        start, left = self._at, len(self._bytes) - self._at
        if size > left:
            raise DecodeError(f"{what}: binary_data_size is {size}, but {left} bytes are left behind the JSON header")
        self._at += size
        return self._bytes[start : start + size]

    def finish(self) -> None:
        """Raises DecodeError where bytes are left that no tensor owns."""
        left = len(self._bytes) - self._at
        if left:
            raise DecodeError(f"{left} bytes follow the last tensor; each must be counted in a binary_data_size")


def split(message: Message) -> tuple[Buffer, BinaryTensors]:
    """The JSON of a message's body, and the binary tensors behind it.

    Raises:
        DecodeError: the header is no number, or more than the body.
    """
    body = message.body
    length = message.headers.get(HEADER, _ABSENT)
    if length is _ABSENT:
        return body, BinaryTensors(memoryview(b""))
    end = _header_length(length, len(body))
    view = memoryview(body)
    return view[:end], BinaryTensors(view[end:])


def _header_length(text: str, size: int) -> int:
    # int() alone would take "+5", "1_0" and digits of other scripts; Triton 2.51 takes "abc" as 0
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise DecodeError(f"Inference-Header-Content-Length must be a number of bytes, not {text[:40]!r}")
    length = int(text)
    if length > size:
        raise DecodeError(f"Inference-Header-Content-Length is {length}, but the body has {size} bytes")
    if length == 0:
        # Triton's raw binary request. Its tensor's name, datatype and shape stand only in the model's metadata.
        raise DecodeError(
            "Inference-Header-Content-Length 0 (a raw binary request) is not supported: "
            "name the input, its datatype and shape in a JSON header"
        )
    return length


def binary_headers(length: int) -> Headers:
    """The headers of a body whose first `length` bytes are JSON."""
    return Headers((_OCTET_STREAM, (b"inference-header-content-length", b"%d" % length)))
