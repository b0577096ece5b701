"""Names and other texts, which the schema calls strings and the specification Unicode."""

from collections.abc import Iterable

from gateway.core.errors import DecodeError, invalid_input


def decode(raw: bytes, what: str) -> str:
    """The text in `raw`. Raises DecodeError, naming `what`, where it is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8: {raw[:40]!r}") from error


def encode(text: str, what: str) -> bytes:
    """`text` as UTF-8. Raises GatewayError, naming `what`, where it holds lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise invalid_input(f"{what} {text[:40]!r} is not UTF-8") from error


def encode_names(names: Iterable[str], what: str) -> tuple[bytes, ...]:
    """Names as UTF-8; none at all if none of them says anything."""
    encoded = tuple([encode(name, what) for name in names])
    return encoded if any(encoded) else ()
