"""Reads and writes the binary tensor data extension.

A message consists of a JSON header and the raw bytes of tensors, in the order of the header.

`Inference-Header-Content-Length` is the length of the JSON in bytes. If this header is missing, the entire body is
JSON, whatever the Content-Type is. tritonclient omits the header for plain JSON, and its asyncio client labels plain
JSON as an octet-stream.
"""

from functools import lru_cache

from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer, Headers, Message, as_bytes

HEADER_LENGTH = "inference-header-content-length"
HEADER_LENGTH_FIELD = HEADER_LENGTH.encode()

_OCTET_STREAM = (b"content-type", b"application/octet-stream")


class BinaryTensors:
    """The bytes after the JSON header. `take` returns them as views, tensor by tensor."""

    __slots__ = ("_bytes", "_offset")

    def __init__(self, tensors: Buffer) -> None:
        self._bytes = tensors
        self._offset = 0

    @property
    def left(self) -> int:
        """The remaining bytes."""
        return len(self._bytes) - self._offset

    def take(self, size: object, what: str) -> Buffer:
        """Return the next `size` bytes. Raise DecodeError if `size` is not an integer, is negative, or exceeds the
        remaining bytes."""
        if type(size) is not int or size < 0:
            raise DecodeError(f"{what}: binary_data_size must be an integer of at least 0, not {size!r}")
        start, left = self._offset, self.left
        if size > left:
            raise DecodeError(f"{what}: binary_data_size is {size}, but {left} bytes are left behind the JSON header")
        self._offset += size
        return self._bytes[start : start + size]

    def finish(self) -> None:
        """Raise DecodeError if bytes remain after the last tensor."""
        if self._offset != len(self._bytes):
            raise DecodeError(f"{self.left} bytes follow the last tensor; each must be counted in a binary_data_size")


def split_body(message: Message) -> tuple[bytes, Buffer]:
    """Return the JSON header of a message's body, as searchable bytes, and the bytes after it.

    Raises:
        DecodeError: Inference-Header-Content-Length is not a number, is 0, or exceeds the body.
    """
    body = message.body
    length = message.headers.first.get(HEADER_LENGTH_FIELD)
    if length is None:
        return body if isinstance(body, bytes) else as_bytes(body), b""
    end = header_length(length, len(body))
    return as_bytes(memoryview(body)[:end]), memoryview(body)[end:]


_LONGEST_SEARCHED = 2**20
"""Maximum size of a JSON header to search, in bytes. A longer header counts as a large message."""


def json_size(message: Message) -> int:
    """Return the number of bytes of a message's body that decoding inspects one by one: the JSON and the elements of
    BYTES tensors."""
    text, body = message.headers.get(HEADER_LENGTH), message.body
    if not (text.isdecimal() and len(text) <= 19):
        return len(body)
    length = int(text)
    if length > _LONGEST_SEARCHED:
        return length
    header = bytes(memoryview(body)[:length])
    # an escape could hide the datatype
    return len(body) if b"BYTES" in header or b"\\" in header else length


def header_length(text: bytes, size: int) -> int:
    """Return the size of the JSON according to Inference-Header-Content-Length, in a body of `size` bytes. Raise the
    errors of `split_body`."""
    # int() alone would accept "+5", "1_0" and digits of other scripts; Triton 2.51 reads "abc" as 0
    if not text.isdigit() or len(text) > 19:
        shown = text[:40].decode("latin-1")
        raise DecodeError(f"Inference-Header-Content-Length must be a number of bytes, not {shown!r}")
    length = int(text)
    if length > size:
        raise DecodeError(f"Inference-Header-Content-Length is {length}, but the body has {size} bytes")
    if length == 0:
        # Triton's raw binary request, in which the model's metadata determines the tensor's name, datatype and shape
        raise DecodeError(
            "Inference-Header-Content-Length 0 (a raw binary request) is not supported: "
            "name the input, its datatype and shape in a JSON header"
        )
    return length


@lru_cache(4096)
def binary_headers(length: int) -> Headers:
    """Return the headers of a body whose first `length` bytes are JSON."""
    return Headers((_OCTET_STREAM, (b"inference-header-content-length", b"%d" % length)))
