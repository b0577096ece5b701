"""Converts headers to gRPC metadata and back.

Names are lower-case. Values are printable ASCII. If a name ends in `-bin`, its value is arbitrary bytes, in base64.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.types import Headers

_NAME = re.compile(rb"[0-9a-z_.-]+")
_TEXT = re.compile(rb"[ -~]*")

# Names that start with `grpc-` are reserved for gRPC. HTTP/2 has no connection-specific headers (RFC 9113, section
# 8.2.2). gRPC writes the others itself.
_RESERVED = frozenset(
    (
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"user-agent",
    )
)


def legal(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that gRPC can carry, with their names in lower case."""
    pairs = [(name.lower(), text) for name, text in raw]
    return [(name, text) for name, text in pairs if _is_legal(name, text)]


def checked(raw: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """Return `raw`.

    Raises GatewayError, with the header's name in the text, if gRPC could carry the name but not the value."""
    for name, text in raw:
        if not _TEXT.fullmatch(text) and not name.endswith(b"-bin") and _is_legal(name.lower(), b""):
            shown = name.decode("latin-1")
            raise invalid_input(f"header {shown!r} does not fit gRPC: its value is not printable ASCII")
    return raw


def from_text(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of another transport, with the values of `-bin` names decoded from base64, padded or not.

    Raises:
        GatewayError: INVALID_ARGUMENT if a header is not base64. The text has the header's name.
    """
    return [(name, _binary(name, text) if name.endswith(b"-bin") else text) for name, text in raw]


def _binary(name: bytes, text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        shown = name.decode("latin-1")
        raise invalid_input(f"header {shown!r} does not fit gRPC: its value is not base64") from error


def written(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    """Yield the `headers` that gRPC can carry, in the form of a header block."""
    for name, text in legal(headers.raw):
        yield name, (_armoured(text) if name.endswith(b"-bin") else text.strip())


def _armoured(text: bytes) -> bytes:
    """gRPC over HTTP/2: "implementations MUST accept padded and un-padded values and should emit un-padded values"."""
    return base64.b64encode(text).rstrip(b"=")


def unarmoured(name: bytes, text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the values of one field whose name ends in `-bin`, split at commas, and decoded whether they are padded or
    not.

    Raises:
        DecodeError: a value is not base64.
    """
    for each in text.split(b","):
        value = each.strip()
        try:
            yield name, base64.b64decode(value + b"=" * (-len(value) % 4), validate=True)
        except binascii.Error as error:
            raise DecodeError(f"metadata {name.decode('latin-1')!r} is not base64") from error


def _is_legal(name: bytes, text: bytes) -> bool:
    if name in _RESERVED or name.startswith(b"grpc-") or not _NAME.fullmatch(name):
        return False
    return name.endswith(b"-bin") or _TEXT.fullmatch(text) is not None
