"""Reads one tensor of a body from its JSON text, in all spellings that templates can use. If the rows differ in length,
such as the tokens of several texts in `[[1, 2, 3], [4]]`, each row becomes a tensor. `places` calls this module.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from gateway.core import bytes_elements, json, npy
from gateway.core.casting import cast
from gateway.core.datatypes import BOOL, BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.json import Array
from gateway.core.json.contents import UNTYPED, shaped, untyped_numbers
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.core.requests import UnequalRows
from gateway.core.tensors import MAX_RANK, Shape, Tensor, can_exist
from gateway.protocols.json.misfit import STRUCTURE, MisfitError
from gateway.protocols.json.templates import Spelling
from gateway.protocols.json.tensor_form import TensorForm, filled, fits, numbers_of_lists, numbers_of_texts

_OPENING, _BRACE = ord("["), ord("{")
_WHOLE = 2**22
"""Maximum size of a list that simdjson reads in one step, in bytes. simdjson uses 14 bytes of memory per byte of text.
`array` reads larger lists in pieces."""
_MOST_BYTES = 8
"""Maximum size of an element in raw form, in bytes. The element's text has at least two bytes."""


def read_tensor(form: TensorForm, text: bytes, shape: Shape | None, limits: Limits) -> Tensor:
    """Return the tensor in `text`, a JSON value.

    For a tensor in rows, the text is the list of the values in all rows. `shape` is the value of the placeholder
    `|shape`, if the template contains one.

    Raises:
        DecodeError: the text is not a tensor, or does not have the declared datatype and shape. The message contains
            the tensor's name.
        GatewayError: RESOURCE_EXHAUSTED if the tensor exceeds `limits.message`.
    """
    try:
        tensor = _READERS[form.place.spelling](form, text, limits)
    except MisfitError as error:
        raise MisfitError(f"{form.label}: {error}", STRUCTURE) from error
    except DecodeError as error:
        raise DecodeError(f"{form.label}: {error}") from error
    found = in_declared_shape(form, tensor) if shape is None else _in_shape(form, tensor, shape)
    if not found.data and not can_exist(found.shape, found.datatype):
        raise DecodeError(f"{form.label}: shape {list(found.shape)} spans more than 2^63 bytes")
    return found


def in_declared_shape(form: TensorForm, tensor: Tensor) -> Tensor:
    """Return the tensor in the declared shape if the form declares one. Raise DecodeError if the tensor's datatype or
    shape does not match."""
    spec = form.spec
    if spec is None:
        return tensor
    if tensor.datatype is not spec.datatype:
        raise DecodeError(f"{form.label} is {tensor.datatype}, expected {spec.datatype}")
    return tensor if fits(tensor.shape, spec.shape) else _in_shape(form, tensor, spec.shape)


_FREE = frozenset({Spelling.FLAT, Spelling.COMMAS, Spelling.SCALAR, Spelling.TEXT, Spelling.BYTES, Spelling.BASE64})
"""The spellings that do not express the shape."""


_BARE = {
    Spelling.NESTED: "; write `${}|scalar` in the form for an element without a list",
    Spelling.NUMBERS: "; declare shape [] in the form for a number without a list",
}


def _in_shape(form: TensorForm, tensor: Tensor, wanted: Shape) -> Tensor:
    """Return the tensor in the shape `wanted`, in which -1 means any size. Raise DecodeError if the shape does not
    match."""
    shape = filled(wanted, tensor.elements) if form.place.spelling in _FREE else None
    if shape is None:
        bare = "" if tensor.shape else _BARE.get(form.place.spelling, "").format(form.place.name)
        raise DecodeError(f"{form.label} has shape {list(tensor.shape)}, expected {list(wanted)}{bare}")
    return Tensor(
        tensor.name, tensor.datatype, shape, tensor.data, tensor.content_type, tensor.parameters, tensor.untyped
    )


# --- as lists ---


def _read_nested(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read a list, nested by the tensor's shape. Outside of rows, the text can also be a single element of shape []."""
    if len(text) * _MOST_BYTES // 2 > limits.message:
        _check_count(text, limits)
    if text[0] == _OPENING and len(text) <= _WHOLE and b'"' not in text:
        try:
            tensor = _numbers(form, text)
        except DecodeError:
            pass  # `array` reads the text, or reports the error
        else:
            return _checked(form, tensor)
    if text[0] == _BRACE:
        raise MisfitError("an object, expected an array")
    array = json.array(text, values=limits.json_values, literals=True)
    return _checked(form, _of_array(form.name, array, form.spec.datatype if form.spec else None))


def _checked(form: TensorForm, tensor: Tensor) -> Tensor:
    rank = len(tensor.shape)
    # for zero rows, the text does not contain the lists within the rows
    if rank < form.rows and tensor.shape[-1:] == (0,):
        shape = (*tensor.shape, *[0] * (form.rows - rank))
        return Tensor(tensor.name, tensor.datatype, shape, tensor.data, "", {}, tensor.untyped)
    if rank < form.rows:
        raise MisfitError(f"nested {rank} deep, expected {form.rows} levels of lists for rows")
    if rank > MAX_RANK:
        raise DecodeError(f"nested {rank} deep, expected at most {MAX_RANK} dimensions")
    return tensor


def _numbers(form: TensorForm, text: bytes) -> Tensor:
    """Return the tensor in a list of numbers. Raise DecodeError for every other text."""
    if form.spec is None:
        datatype, data, shape = untyped_numbers(text)
        return Tensor(form.name, datatype, shape, data, "", {}, True)
    found = shaped(text, form.spec.datatype)
    if found is None:
        raise DecodeError
    data_of_spec, shape = found
    return Tensor(form.name, form.spec.datatype, shape, data_of_spec)


def _check_count(text: bytes, limits: Limits) -> None:
    count = text.count(b",") + 1
    if count * _MOST_BYTES > limits.message:
        raise refusal(
            Reason.TOO_LARGE,
            f"a tensor of about {count} elements is beyond {limits.message} bytes (limits.message); "
            "send less, or raise the limit",
        )


def _of_array(name: str, array: Array, datatype: Datatype | None) -> Tensor:
    values = array.values
    if isinstance(values, bytes):
        if datatype not in (None, BYTES):
            raise DecodeError(f"holds strings, expected {datatype}; `|numbers` in the form reads numbers as texts")
        return Tensor(name, BYTES, array.shape, values, untyped=datatype is None)
    if datatype is None:
        return Tensor(name, UNTYPED[values.dtype.kind], array.shape, _raw(values), untyped=True)
    if len(values) == 0:
        return Tensor(name, datatype, array.shape, b"")
    if datatype is BYTES:
        raise DecodeError("holds no strings, expected BYTES as strings")
    if values.dtype.kind == "b" and datatype.kind is not Kind.BOOL:
        raise DecodeError(f"holds true or false, expected {datatype}")
    try:
        return Tensor(name, datatype, array.shape, _raw(cast(values, datatype, "")))
    except DecodeError as error:
        if datatype.kind is Kind.FLOAT or values.dtype.kind != "f":
            raise
        raise DecodeError(f"{error}; FP64 in the form's `tensors` accepts decimals") from error


def _raw(values: "np.ndarray[Any, Any]") -> Buffer:
    return np.ascontiguousarray(values).view(np.uint8).data


def _read_flat(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    tensor = _read_nested(form, text, limits)
    if len(tensor.shape) != form.rows + 1:
        raise MisfitError(f"nested as {list(tensor.shape)}, expected one flat list")
    return tensor


def _read_row(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read the flat list of one row."""
    if text[0] != _OPENING or text.rfind(b"[") != 0 or b'"' in text:
        raise MisfitError("expected a flat list of numbers")
    tensor = _read_nested(form, text, limits)
    return Tensor(tensor.name, tensor.datatype, (1, *tensor.shape), tensor.data, "", {}, tensor.untyped)


def _read_items(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read a list, or a single element as a list of one."""
    return _read_nested(form, text if text[0] == _OPENING else b"[%b]" % text, limits)


def _read_texts(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read a list of strings, or one string as a list of one."""
    if b'"' not in text and text.strip(b"[] \t\r\n"):
        raise MisfitError("expected a text or a list of texts")
    return _of_texts(_read_items(form, text, limits))


# --- numbers as texts ---


def _read_numbers(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read nested lists of strings that contain numbers."""
    tensor = _only_numbers(_read_nested(form, numbers_of_texts(text), limits))
    if text.count(b'"') > 2 * tensor.elements:
        raise DecodeError("an empty text, expected a number")
    return tensor


def _read_commas(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read one string of numbers separated by commas, or in rows, one string for each row."""
    tensor = _only_numbers(_read_nested(form, numbers_of_lists(text), limits))
    if len(tensor.shape) != form.rows + 1 or text.count(b'"') != 2 * prod(tensor.shape[:-1]):
        raise MisfitError("expected a text of numbers with commas")
    return tensor


def _only_numbers(tensor: Tensor) -> Tensor:
    if tensor.datatype is BOOL:
        raise DecodeError("a text is true or false, expected a number")
    return tensor


# --- single elements ---


def _read_scalar(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read a single element, or in rows, one element for each row."""
    tensor = _read_nested(form, text if form.rows else b"[%b]" % text, limits)
    if len(tensor.shape) != max(form.rows, 1):
        raise MisfitError("a list, expected one element")
    return tensor


def _read_text(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    return _of_texts(_read_scalar(form, text, limits))


def _of_texts(tensor: Tensor) -> Tensor:
    if tensor.datatype is BYTES:
        return tensor
    if tensor.elements:
        raise MisfitError("a number or a boolean, expected a text")
    return Tensor(tensor.name, BYTES, tensor.shape, b"", untyped=tensor.untyped)


def _read_bytes(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read one element in base64, or in rows, one element in base64 for each row."""
    contents, shape = _decoded(form, text, limits)
    return Tensor(form.name, BYTES, shape, bytes_elements.pack(contents))


def _read_base64(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read raw little-endian elements in base64, or in rows, the elements of each row in base64."""
    contents, shape = _decoded(form, text, limits)
    datatype = form.place.datatype or (form.spec.datatype if form.spec else BYTES)
    sizes = set(map(len, contents))
    if len(sizes) > 1:
        raise DecodeError("ragged: the rows hold different numbers of bytes")
    size = sizes.pop() if sizes else 0
    if size % datatype.size:
        raise DecodeError(f"{size} bytes, expected a multiple of the {datatype.size} of {datatype}")
    data = b"".join(contents)
    if datatype is BOOL and data.strip(b"\0\1"):
        raise DecodeError("expected bytes 0 or 1 for BOOL")
    lead = shape if form.rows else ()
    return Tensor(form.name, datatype, (*lead, size // datatype.size), data)


def _read_npy(form: TensorForm, text: bytes, limits: Limits) -> Tensor:
    """Read a `.npy` file in base64, or in rows, one file in base64 for each row.

    All files have the same datatype and shape."""
    contents, lead = _decoded(form, text, limits)
    files = [npy.decode(each, "the file") for each in contents]
    if not form.rows:
        [file] = files
        return Tensor(form.name, file.datatype, file.shape, file.data)
    if not files:
        return Tensor(form.name, form.spec.datatype if form.spec else Datatype.FP64, lead, b"")
    first = files[0]
    for at, file in enumerate(files):
        if (file.datatype, file.shape) != (first.datatype, first.shape):
            found = f"{file.datatype} {list(file.shape)} in file {at}"
            raise DecodeError(f"{found} and {first.datatype} {list(first.shape)} in file 0")
    return Tensor(form.name, first.datatype, (*lead, *first.shape), b"".join([file.data for file in files]))


def _decoded(form: TensorForm, text: bytes, limits: Limits) -> tuple[list[bytes], Shape]:
    """Return the bytes in base64 strings, and the shape of the list of strings."""
    array = json.array(text if form.rows else b"[%b]" % text, values=limits.json_values, literals=False)
    if len(array.shape) != max(form.rows, 1):
        raise MisfitError("a list, expected base64 in a string")
    if not isinstance(array.values, bytes):
        if prod(array.shape):
            raise MisfitError("a number or a boolean, expected base64 in a string")
        return [], array.shape
    try:
        return [_decode(each) for each in bytes_elements.unpack(array.values)], array.shape
    except Base64Error as error:
        raise DecodeError(f"not base64: {error}") from error


_PIECE = 2**20
"""Number of bytes of base64 that one call into C decodes. No other thread runs during the call."""


def _decode(text: bytes) -> bytes:
    if len(text) <= _PIECE:
        return b64decode(text, validate=True)
    pieces = [b64decode(text[at : at + _PIECE], validate=True) for at in range(0, len(text), _PIECE)]
    if any(len(each) < _PIECE // 4 * 3 for each in pieces[:-1]):
        raise Base64Error("padding before the end")
    return b"".join(pieces)


_READERS: Mapping[Spelling, Callable[[TensorForm, bytes, Limits], Tensor]] = {
    Spelling.NESTED: _read_nested,
    Spelling.FLAT: _read_flat,
    Spelling.ITEMS: _read_items,
    Spelling.TEXTS: _read_texts,
    Spelling.ROW: _read_row,
    Spelling.NUMBERS: _read_numbers,
    Spelling.COMMAS: _read_commas,
    Spelling.SCALAR: _read_scalar,
    Spelling.TEXT: _read_text,
    Spelling.BYTES: _read_bytes,
    Spelling.BASE64: _read_base64,
    Spelling.NPY: _read_npy,
}


# --- Rows of unequal length, which the bridge can send one by one ---

_decode_rows = msgspec.json.Decoder(list[Raw]).decode


class UnequalTensors(Struct, frozen=True):
    """The tensors of a body whose rows differ in length.

    `rows` maps the position of each such tensor to the tensors of its rows, which have a first dimension of 1. `error`
    is the reason why the rows cannot be one tensor."""

    rows: Mapping[int, tuple[Tensor, ...]]
    error: str


def unequal_rows(form: TensorForm, text: bytes, error: DecodeError, limits: Limits) -> tuple[Tensor, ...]:
    """Return the tensors of the rows in the list `text` if `error` says that the list is ragged. Otherwise, raise
    `error`. Also raise `error` if the list has more than `limits.json_values` rows, or if a row is not a tensor."""
    is_free = form.spec is None or form.spec.shape[:1] == (-1,)
    if "ragged" not in str(error) or form.place.spelling is not Spelling.NESTED or not is_free:
        raise error
    if text.count(b"[") > limits.json_values:
        raise error
    try:
        found = tuple([read_tensor(form, b"[%b]" % row, None, limits) for row in _decode_rows(text)])
    except (msgspec.DecodeError, DecodeError) as other:
        raise error from other
    if len({len(each.shape) for each in found}) > 1:
        raise error
    return found


def flaw_of_rows(unequal: UnequalTensors, tensors: Sequence[Tensor], further: Sequence[Tensor]) -> UnequalRows:
    """Return the flaw of a request whose tensors are `further`, followed by the `tensors` of the body."""
    columns = [unequal.rows.get(at, (tensor,)) for at, tensor in enumerate(tensors)]
    return UnequalRows(f"{unequal.error}; {UnequalRows.REMEDY}", (*((each,) for each in further), *columns))
