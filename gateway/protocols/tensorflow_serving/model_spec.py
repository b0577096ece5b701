"""Reads and writes a ModelSpec: the model, the version or its label, and the signature of a message."""

from functools import lru_cache

from gateway.core.errors import DecodeError, not_found
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Buffer
from gateway.core.protobuf.schema import not_utf8, parse
from gateway.protocols.tensorflow_serving import schema

MISSING = "Missing ModelSpec"
"""The error message for a request without a ModelSpec."""

LATEST = "0"
"""The version that OpenVINO's client requests by default, and that its server treats as the latest version."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MOST_DIGITS = 20
"""Maximum length of a 64-bit number with its sign, in characters."""
_SHORT = 256
"""Maximum size of a cached ModelSpec, in bytes. The cache works because clients send few distinct ModelSpecs."""


@frozen
class Servable:
    """The fields of a ModelSpec.

    `version` contains the digits of a version, a label, or nothing. `signature` is the signature in the message, or
    empty if the server selects the signature."""

    model: str = ""
    version: str = ""
    signature: str = ""


def as_number(version: str) -> int | None:
    """Return a version as a number, or None for a label. Raise ValueError if a number does not fit in 64 bits."""
    if not _is_number(version):
        return None
    if len(version) > _MOST_DIGITS or not _INT64_MIN <= int(version) <= _INT64_MAX:
        raise ValueError(f"version {version[:40]!r} is beyond 64 bits; TensorFlow Serving needs a 64-bit integer")
    return int(version)


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdecimal()


def is_version(version: str) -> bool:
    """Return whether `version` is a valid version or label."""
    try:
        as_number(version)
    except ValueError:
        return False
    return bool(version)


def read_spec(message: Buffer | None) -> Servable:
    """Return the fields of a request's ModelSpec. `message` is None if the ModelSpec is missing.

    The version LATEST becomes empty.

    Raises:
        DecodeError: the ModelSpec is missing, contains no name, or contains a number as its label.
    """
    if message is None:
        raise DecodeError(MISSING)
    found = read_any_spec(message)
    if not found.model:
        raise DecodeError("ModelSpec has no name specified.")
    return replace(found, version="") if found.version == LATEST else found


def read_any_spec(message: Buffer) -> Servable:
    """Return the fields of a ModelSpec with or without a name.

    Raises:
        DecodeError: the message is not a ModelSpec, or contains a number as its label.
    """
    return _read_short(bytes(message)) if len(message) <= _SHORT else _read(message)


def _read(message: Buffer) -> Servable:
    spec = parse(schema.ModelSpec, message)
    choice = spec.WhichOneof("version_choice")
    if choice is None:
        return Servable(spec.name, "", spec.signature_name)
    if choice == "version":
        return Servable(spec.name, str(spec.version.value), spec.signature_name)
    label = spec.version_label
    if not label or _is_number(label):
        raise DecodeError(
            f"version_label is {label[:40]!r}; expected a text that is not a number (for a number, use `version`)"
        )
    return Servable(spec.name, label, spec.signature_name)


_read_short = lru_cache(256)(_read)


def write_spec(servable: Servable) -> bytes:
    """Return the bytes of a ModelSpec.

    Raises:
        GatewayError: NOT_FOUND if the version does not fit in 64 bits; INVALID_ARGUMENT if a string is not valid
            Unicode.
    """
    write = _write_short if len(servable.model) + len(servable.version) + len(servable.signature) <= _SHORT else _write
    return write(servable)


def _write(servable: Servable) -> bytes:
    try:
        spec = schema.ModelSpec(name=servable.model, signature_name=servable.signature)
        number = as_number(servable.version)
        if number is not None:
            spec.version.value = number
        elif servable.version:
            spec.version_label = servable.version
    except UnicodeEncodeError as error:
        raise not_utf8(error, "model_spec") from error
    except ValueError as error:
        raise not_found(f"model {servable.model!r}: {error}") from error
    written: bytes = spec.SerializeToString()
    return written


_write_short = lru_cache(256)(_write)


def response_spec(model: str, version: str, signature: str = "") -> Servable:
    """Return the ModelSpec of a response.

    The ModelSpec includes `version` only if it is a number, because servers report the number of the version that they
    ran."""
    return Servable(model, version if is_version(version) and as_number(version) is not None else "", signature)
