"""Reads and writes a GrpsMessage in JSON: "the members of the protobuf message under their own names", without
defaults. The reader accepts every name and value that protobuf's JSON mapping allows.

The fast reader, by type, decodes a message with gtensors in the form that the gateway writes. The full reader decodes
every other message, for example a message with another payload or with numbers in quotes. Both readers return the same
value.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from reprlib import repr as shown
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core import bytes_elements, json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.json import CUT_FROM, Text, TypedReader, array, packed
from gateway.core.messages import Buffer, as_bytes
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor
from gateway.protocols.grps import payload
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.json.tensors import (
    ARRAYS,
    Entry,
    read_base64,
    read_gmap,
    read_integer,
    read_members,
    read_ndarray,
    read_tensors,
    spellings,
    write_gmap,
    write_ndarray,
    write_tensor,
)
from gateway.protocols.grps.schema import (
    DTYPES,
    FAILURE,
    SUCCESS,
    UNKNOWN,
    GrpsMessage,
    GrpsStatus,
    Payload,
    read_shape,
)

_FLAGS: dict[object, int] = {"UNKNOWN": UNKNOWN, "SUCCESS": SUCCESS, "FAILURE": FAILURE, 0: 0, 1: 1, 2: 2}
_FLAG_NAMES = {flag: name for name, flag in _FLAGS.items() if isinstance(name, str)}


def read_message(body: Buffer, role: str, limits: Limits, *, flag: str = "", unless: str = "") -> GrpsMessage:
    """Return the message in `body`.

    - `role`: The word for its tensors in error messages (input, output).
    - `flag`: An additional member of a message that requests a stream.
    - `unless`: An explanation of how to request a stream. If it is set, the reader rejects a message with `flag`, and
      the error contains this explanation.

    Raises:
        DecodeError: the body is not JSON, or not a GrpsMessage. For example, it has data in two members, an unknown
            member (in or instead of the data), or a member of the wrong type. A tensor whose elements do not match its
            dtype and shape is also an error.
        GatewayError: RESOURCE_EXHAUSTED if a tensor exceeds the limit.
    """
    body = body if isinstance(body, bytes) else as_bytes(body)
    grps = read_by_type(body, limits)
    if grps is not None:
        return grps
    document = json.read(unquote(body), ARRAYS, values=limits.json_values, literals=True)
    if unless and document.get(flag) not in (None, False):
        raise DecodeError(f"member {flag!r} does not request a stream; use {unless}")
    # A message with data or a status can contain additional members for other programs.
    more = any(_MEMBERS.get(key, "model") != "model" for key in document)
    document = read_members(document, _MEMBERS | {flag: flag}, "the message", more=more)
    members = [key for key in _READERS if key in document]
    if len(members) > 1:
        raise DecodeError(f"the message has data in {' and '.join(members)}, expected one of them")
    model = document.get("model", "")
    if not isinstance(model, str):
        raise DecodeError(f"model must be a string, not {shown(model)}")
    status = _read_status(document.get("status"))
    if not members:
        return GrpsMessage(model, status)
    [member] = members
    return GrpsMessage(model, status, _PAYLOADS[member], _READERS[member](document[member], role, limits.message))


def check_json(body: Buffer, limits: Limits) -> None:
    """Raise DecodeError if `body` is not JSON. The function does not check the members of the JSON object."""
    json.read(unquote(bytes(body)), ARRAYS, values=limits.json_values, literals=True)


def _read_status(status: object) -> GrpsStatus | None:
    if status is None:
        return None
    if not isinstance(status, dict):
        raise DecodeError(f"status must be an object, not {shown(status)}")
    status = read_members(status, _STATUS_MEMBERS, "status", more=True)
    code, text, flag = read_integer(status.get("code", 0)), status.get("msg", ""), status.get("status", UNKNOWN)
    if type(code) is not int or not isinstance(text, str) or type(flag) not in (int, str) or flag not in _FLAGS:
        raise DecodeError(
            f"status is {shown(status)}, expected an integer as code, a string as msg and, as status, one of "
            f"{', '.join(_FLAG_NAMES.values())}"
        )
    return GrpsStatus(code, text, _FLAGS[flag])


def _read_str_data(value: object, role: str, limit: int) -> tuple[Tensor, ...]:
    if not isinstance(value, str):
        raise DecodeError(f"str_data must be a string, not {shown(value)}")
    return (payload.str_data(value),)


def _read_bin_data(value: object, role: str, limit: int) -> tuple[Tensor, ...]:
    """Return the bytes of a response's base64 bin_data.

    The Python server writes only empty bin_data in this form. In all other responses, servers send the bytes as the
    body."""
    if role == "input":
        raise DecodeError("bin_data should use application/octet-stream format.")  # the message of both servers
    return (payload.bin_data(read_base64(value, "bin_data")),)


def _read_ndarray(value: Any, role: str, limit: int) -> tuple[Tensor, ...]:
    return (read_ndarray(value),)


def _read_gmap(value: object, role: str, limit: int) -> tuple[Tensor, ...]:
    return read_gmap(value)


_READERS: dict[str, Callable[[Any, str, int], tuple[Tensor, ...]]] = {
    "str_data": _read_str_data,
    "bin_data": _read_bin_data,
    "gtensors": read_tensors,
    "gmap": _read_gmap,
    "ndarray": _read_ndarray,
}
_PAYLOADS = {each.value: each for each in Payload}
_MEMBERS = spellings(("model", "status", *_READERS))
_STATUS_MEMBERS = spellings(("code", "msg", "status"))


def write_message(grps: GrpsMessage, role: str, nan: str, *, flag: str = "") -> tuple[bytes, ...]:
    """Return the JSON text, in parts, of a message with any payload except bin_data.

    - `nan` (`translate.nan`): How NaN and infinities are written.
    - `role`: The word for the tensors in error messages (input, output).
    - `flag`: An additional member with the value true.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent a tensor (the message says which).
    """
    document: Entry = {flag: True} if flag else {}
    if grps.status is not None:
        document["status"] = _OK if grps.status is OK else _write_status(grps.status)
    if grps.model:
        document["model"] = grps.model
    if grps.payload is not None:
        document[grps.payload.value] = _WRITERS[grps.payload](grps.tensors, role, nan)
    try:
        return json.write_message(document)
    except (TypeError, UnicodeEncodeError) as error:
        raise invalid_input("a model or tensor name is not UTF-8; use another name") from error


def _write_status(status: GrpsStatus) -> Entry:
    members: Entry = {"code": status.code, "msg": status.text, "status": _FLAG_NAMES[status.flag]}
    return {key: value for key, value in members.items() if value not in (0, "", "UNKNOWN")}


_OK = _write_status(OK)
"""The status of almost every response, encoded once."""


def _write_str_data(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    [element] = bytes_elements.unpack(tensors[0].data)
    return element.decode()


def _write_gtensors(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    entries = [write_tensor(each, nan, f"{role} {each.name or at!r}") for at, each in enumerate(tensors)]
    return {"tensors": entries} if entries else {}


def _write_gmap(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    return write_gmap(tensors, nan)


def _write_ndarray(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    return write_ndarray(tensors[0], nan)


_WRITERS: dict[Payload, Callable[[tuple[Tensor, ...], str, str], object]] = {
    Payload.STR_DATA: _write_str_data,
    Payload.GTENSORS: _write_gtensors,
    Payload.GMAP: _write_gmap,
    Payload.NDARRAY: _write_ndarray,
}


# --- Reading by type ---

# The types have their names in `grps.proto`. `Raw` is the text of a tensor's elements.
#
#   {"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1.5, 2.5]}]}}


class _GenericTensor(Struct):
    """`GenericTensor`, except INT64 (written in quotes) and FP16 (most affected by rounding)."""

    dtype: str
    name: str | UnsetType = UNSET
    shape: list[int] | UnsetType = UNSET
    flat_uint8: Raw | UnsetType = UNSET
    flat_int8: Raw | UnsetType = UNSET
    flat_int16: Raw | UnsetType = UNSET
    flat_int32: Raw | UnsetType = UNSET
    flat_float32: Raw | UnsetType = UNSET
    flat_float64: Raw | UnsetType = UNSET
    flat_string: Raw | UnsetType = UNSET


class _GenericTensors(Struct):
    """`GenericTensorArray`."""

    tensors: list[_GenericTensor]


class _SuccessStatus(Struct):
    """The `Status` of a success, with all its members."""

    code: int
    msg: str
    status: str


class _GtensorsMessage(Struct):
    """`GrpsMessage` with gtensors."""

    gtensors: _GenericTensors
    model: str | UnsetType = UNSET
    status: _SuccessStatus | UnsetType = UNSET


_TYPED = TypedReader(_GtensorsMessage, entries=lambda message: message.gtensors.tensors)
_DATATYPES = {
    dtype.name: (datatype, dtype.member)
    for datatype, dtype in DTYPES.items()
    if dtype.member in _GenericTensor.__struct_fields__
}
_SUCCESS = _SuccessStatus(200, "OK", "SUCCESS")
_ELEMENTS = re.compile(rb'"(flat_[a-z0-9]++)"')


def read_by_type(text: bytes, limits: Limits) -> GrpsMessage | None:
    """Return the message in `text`, or None if the typed reader might miss a part of it.

    In a large message, the text of the first tensor's elements is cut out before parsing."""
    if b"gtensors" not in text:
        return None
    elements = _ELEMENTS.search(text) if len(text) > CUT_FROM else None
    try:
        message = _TYPED.read(text, limits.json_values, elements[1] if elements else b"")
        if message.model == "" or message.status not in (UNSET, _SUCCESS):
            return None
        tensors = tuple([_typed_tensor(each, limits) for each in message.gtensors.tensors])
    except DecodeError:
        return None
    model = "" if message.model is UNSET else message.model
    return GrpsMessage(model, None if message.status is UNSET else OK, Payload.GTENSORS, tensors) if tensors else None


def _typed_tensor(entry: _GenericTensor, limits: Limits) -> Tensor:
    """Return the tensor of `entry`. Raise DecodeError if the entry is not in the form that the gateway writes."""
    datatype, member = _DATATYPES.get(entry.dtype, (Datatype.BYTES, ""))
    elements = getattr(entry, member, UNSET)
    others = sum([getattr(entry, other) is not UNSET for _, other in _DATATYPES.values()])
    # members with their default value are never written
    if elements is UNSET or others > 1 or entry.name == "" or entry.shape == []:
        raise DecodeError
    shape = () if entry.shape is UNSET else read_shape(entry.shape, "")
    text = elements if isinstance(elements, Text) else bytes(elements)
    data = _typed_data(text, datatype, prod(shape), limits)
    return Tensor("" if entry.name is UNSET else entry.name, datatype, shape, data)


def _typed_data(text: bytes | Text, datatype: Datatype, count: int, limits: Limits) -> Buffer:
    if count * (datatype.size or 4) > limits.message:
        raise DecodeError
    if datatype is not Datatype.BYTES:
        data = packed(text, datatype, count)
    else:
        found = array(text, values=limits.json_values, literals=False)
        data = found.values if isinstance(found.values, bytes) and found.shape == (count,) and count else None
    if data is None:
        raise DecodeError
    return data


# --- Numbers in quotes ---

# Servers write int64, NaN and infinities in quotes, as in proto3's JSON mapping. The quotes are removed from the JSON
# text before the parser reads it, so the parser can read lists directly into arrays. A large text is processed in
# steps, because a single C call blocks all other threads while it scans the text.

_SMALL = 8192
"""Maximum size of a text for which one call of `bytes.find` is the fastest, in bytes."""

_STEP = 2**18
"""Number of bytes that one call scans or copies. In 64 MiB, finding a word takes 50 ms, and matching a pattern takes
0.1 s."""

_LIST = re.compile(rb'"flat_?(?![sS]tring)[A-Za-z0-9]++"[ \t\r\n]*+:[ \t\r\n]*+\[')
_IN_NUMBERS = b"0123456789+-.eE \t\r\n"

_NDARRAY = re.compile(rb'"ndarray"[ \t\r\n]*+:[ \t\r\n]*+(?=\[)')
_IN_NDARRAY = re.compile(rb'(?:[-+0-9.eE\[\], \t\r\n]++|"(?:NaN|-?Infinity)")++')


def unquote(body: bytes) -> bytes:
    """Return `body` without the quotes around numbers in its `flat_...` lists, in both spellings, and in its `ndarray`.

    `body` can be invalid JSON. Strings that are not numbers keep their quotes."""
    find = body.find if len(body) <= _SMALL else partial(_find, body)
    pieces, kept, at = [], 0, 0
    while (key := find(b'"flat', at)) >= 0:
        # A match is always a key: inside a string, a backslash would precede the second quote.
        match = _LIST.match(body, key)
        at = match.end() if match else key + 1
        if match:
            start, at = at, body.find(b"]", at)
            if at < 0:
                break
            if body.find(b'"', start, at) >= 0:
                pieces += [body[kept:start], _unquote_list(body, start, at)]
                kept = at
    is_ndarray = find(b'"ndarray"') >= 0
    body = b"".join([*pieces, body[kept:]]) if pieces else body
    # without these letters, the list contains neither NaN nor Infinity
    return _unquote_ndarray(body) if is_ndarray and (b"N" in body or b"I" in body) else body


def _find(body: bytes, word: bytes, at: int = 0) -> int:
    """Return the result of `body.find` for a word that begins with a quote, but search in steps.

    The search for the next quote needs no steps, because finding one byte takes a tenth of the time of finding a
    word."""
    while (at := body.find(b'"', at)) >= 0:
        found = body.find(word, at, at + _STEP)
        if found >= 0:
            return found
        at += _STEP - len(word) + 1
    return -1


def _unquote_list(body: bytes, start: int, end: int) -> bytes:
    """Return the elements of one list of numbers without quotes.

    Either all elements are in quotes, or only NaN and infinities are."""
    if end - start > _STEP:
        return _unquote_in_steps(body, start, end)
    elements = body[start:end]
    return elements.translate(None, b'"') if _are_quoted(elements) else _unquote_words(elements)


def _unquote_in_steps(body: bytes, start: int, end: int) -> bytes:
    spans = list(_spans(body, start, end))
    if any(to - at > 2 * _STEP for at, to in spans):
        return body[start:end]  # an element that is longer than any number
    if all(_are_quoted(body[at:to]) for at, to in spans):
        return b",".join([body[at:to].translate(None, b'"') for at, to in spans])
    return b",".join([_unquote_words(body[at:to]) for at, to in spans])


def _spans(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each part of a list. The parts take about _STEP bytes and end at commas."""
    while (comma := body.find(b",", start + _STEP, end)) >= 0:
        yield start, comma
        start = comma + 1
    yield start, end


def _are_quoted(elements: bytes) -> bool:
    """Return whether all elements are numbers in quotes."""
    punctuation = elements.translate(None, _IN_NUMBERS)
    return punctuation == b'"",' * (len(punctuation) // 3) + b'""'


def _unquote_ndarray(body: bytes) -> bytes:
    """Return `body` without the quotes around NaN and infinities in its `ndarray`."""
    pieces, kept, at = [], 0, 0
    while (key := _find(body, b'"ndarray"', at)) >= 0:
        match = _NDARRAY.match(body, key)
        at = match.end() if match else key + 1
        if match:
            pieces.append(body[kept:at])
            while part := _IN_NDARRAY.match(body, at, at + _STEP):
                pieces.append(_unquote_words(part[0]))
                at = part.end()
            kept = at
    return b"".join([*pieces, body[kept:]])


def _unquote_words(text: bytes) -> bytes:
    if b'"NaN"' not in text and b'Infinity"' not in text:
        return text
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        text = text.replace(b'"%b"' % word, word)
    return text
