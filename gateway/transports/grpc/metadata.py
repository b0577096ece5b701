"""Functions that convert headers to gRPC metadata and back.

Names are lowercase, and values are printable ASCII. If a name ends in `-bin`, its value consists of arbitrary bytes in
base64.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import Headers

_NAME = re.compile(rb"[0-9a-z_.-]+")
_TEXT = re.compile(rb"[ -~]*")

# Headers that gRPC itself writes, and connection-specific headers, which HTTP/2 does not allow (RFC 9113, section
# 8.2.2). Names that start with `grpc-` are also reserved.
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
    """Return the headers that gRPC can represent, with lowercase names."""
    pairs = [(name.lower(), text) for name, text in raw]
    return [(name, text) for name, text in pairs if _is_legal(name, text)]


def checked(raw: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """Return `raw`.

    Raises GatewayError if gRPC can represent a header's name but not its value. The message contains the name."""
    for name, text in raw:
        if not _TEXT.fullmatch(text) and not name.endswith(b"-bin") and _is_legal(name.lower(), b""):
            shown = name.decode("latin-1")
            raise invalid_input(f"header {shown!r} does not fit gRPC: its value is not printable ASCII; change it")
    return raw


def from_text(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of another transport. The values of names that end in `-bin` are decoded from base64, with or
    without padding.

    Raises:
        GatewayError: INVALID_ARGUMENT if the value of a `-bin` header is not base64. The message contains the header's
        name.
    """
    return [(name, _binary(name, text) if name.endswith(b"-bin") else text) for name, text in raw]


def _binary(name: bytes, text: bytes) -> bytes:
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        shown = name.decode("latin-1")
        what = f"header {shown!r} does not fit gRPC: its value is not base64"
        raise invalid_input(f"{what}; encode it in base64, or use a name without -bin") from error


def written(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of a header block for the `headers` that gRPC can represent."""
    for name, text in legal(headers.raw):
        yield name, (_armoured(text) if name.endswith(b"-bin") else text.strip())


def _armoured(text: bytes) -> bytes:
    """Return `text` in base64 without padding. According to "gRPC over HTTP2", "implementations MUST accept padded and
    un-padded values and should emit un-padded values"."""
    return base64.b64encode(text).rstrip(b"=")


def unarmoured(name: bytes, text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the values of one field whose name ends in `-bin`. The field is split at commas, and each value is decoded,
    with or without padding.

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
