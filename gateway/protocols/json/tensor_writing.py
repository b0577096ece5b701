"""Writes one tensor as JSON text, in the spellings that templates can use. `writing` calls this module."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from gateway.core import bytes_elements, json, npy
from gateway.core.casting import cast
from gateway.core.datatypes import BOOL, BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, ElementError, invalid_input
from gateway.core.frozen import replace_struct
from gateway.core.messages import Buffer
from gateway.core.requests import DEFAULT_TRANSLATE, Translate
from gateway.core.tensors import Shape, Tensor
from gateway.protocols.json.templates import Spelling
from gateway.protocols.json.tensor_form import TensorForm, filled, fits, text_with_commas, texts_of_numbers


class ElementStyle(Struct, frozen=True):
    """The style of the written elements.

    `nan` determines how NaN and infinities are written (see `number_pieces`), and `translate` determines how BYTES are
    written."""

    nan: str = "error"
    translate: Translate = DEFAULT_TRANSLATE


def write_tensor(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    """Return the JSON text of a tensor outside of rows, in pieces.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor does not match the form's declaration, or its placeholder cannot
            represent it. The message contains the tensor's name.
    """
    if form.spec is not None:
        tensor = _as_declared(form, tensor)
    return _WRITERS[form.place.spelling](form, tensor, style)


def _write_nested(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    if len(tensor.shape) < form.rows:
        raise invalid_input(f"{form.label} has the shape {list(tensor.shape)}, expected rows")
    return _nested(tensor, style, form.label)


def _write_items(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    if not tensor.shape:
        raise invalid_input(f"{form.label} has the shape [], expected a list of items")
    return _nested(tensor, style, form.label)


def _write_texts(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    if tensor.datatype is not BYTES or len(tensor.shape) != 1:
        raise invalid_input(f"{form.label} is {tensor.datatype} {list(tensor.shape)}, expected a list of texts")
    return _flat(tensor, style, form.label)


def _write_row(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    if len(tensor.shape) != 2 or tensor.shape[0] != 1 or tensor.datatype is BYTES:
        raise invalid_input(f"{form.label} is {tensor.datatype} {list(tensor.shape)}, expected one row of numbers")
    return _flat(tensor, style, form.label)


def _check_flat(form: TensorForm, tensor: Tensor) -> None:
    """Raise GatewayError (INVALID_ARGUMENT) if the body would lose the tensor's shape, because the form does not
    declare the shape and has no placeholder for it."""
    if form.has_shape:
        return
    shape = tensor.shape
    told = len(shape) == form.rows + 1 if form.spec is None else filled(form.spec.shape, tensor.elements) == shape
    if not told:
        raise invalid_input(
            f"{form.label} has the shape {list(shape)}, which nothing in a flat list would tell: declare it in"
            f" `tensors`, or add a place for ${form.place.name}|shape"
        )


def _write_flat(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    _check_flat(form, tensor)
    return _flat(tensor, style, form.label)


def _write_numbers(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    text = b"".join(_write_nested(form, _numbers(form, tensor), _as_words(style)))
    return (texts_of_numbers(text),)


def _write_commas(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    _check_flat(form, tensor)
    style = replace_struct(style, nan="literal") if style.nan == "null" else _as_words(style)  # null is not a number
    return (text_with_commas(b"".join(_flat(_numbers(form, tensor), style, form.label))),)


def _numbers(form: TensorForm, tensor: Tensor) -> Tensor:
    if tensor.datatype in (BYTES, BOOL):
        raise invalid_input(f"{form.label} is {tensor.datatype}, expected numbers")
    return tensor


def _as_words(style: ElementStyle) -> ElementStyle:
    """Return the style for numbers within quotes. This style does not write NaN as a string, because a string would add
    a second pair of quotes."""
    return replace_struct(style, nan="literal") if style.nan == "string" else style


def _write_shape(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    return (orjson.dumps(tensor.shape),)


def _write_bare(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    return (_bare(form, tensor, 1, (), style)[0],)


def _write_base64(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    _check_flat(form, tensor)
    return (_base64(_elements(form, tensor).data),)


def _write_npy(form: TensorForm, tensor: Tensor, style: ElementStyle) -> tuple[bytes, ...]:
    return (_npy(tensor, form.label),)


_WRITERS: Mapping[Spelling, Callable[[TensorForm, Tensor, ElementStyle], tuple[bytes, ...]]] = {
    Spelling.NESTED: _write_nested,
    Spelling.FLAT: _write_flat,
    Spelling.SHAPE: _write_shape,
    Spelling.ITEMS: _write_items,
    Spelling.TEXTS: _write_texts,
    Spelling.ROW: _write_row,
    Spelling.NUMBERS: _write_numbers,
    Spelling.COMMAS: _write_commas,
    Spelling.SCALAR: _write_bare,
    Spelling.TEXT: _write_bare,
    Spelling.BYTES: _write_bare,
    Spelling.BASE64: _write_base64,
    Spelling.NPY: _write_npy,
}


def write_rows(form: TensorForm, tensor: Tensor, lead: Shape, style: ElementStyle) -> list[bytes]:
    """Return the JSON text of each part of a tensor in rows, for all indices of its first dimensions. `lead` contains
    the sizes of these dimensions.

    Raises:
        GatewayError: the errors of `write_tensor`; INVALID_ARGUMENT if the tensor's first dimensions differ from
        `lead`.
    """
    if form.spec is not None:
        tensor = _as_declared(form, tensor)
    what, spelling, count = form.label, form.place.spelling, prod(lead)
    if tensor.shape[: len(lead)] != lead:
        raise invalid_input(f"{what} has the shape {list(tensor.shape)}, expected {list(lead)} rows as the others have")
    if spelling in _BARE:
        return _bare(form, tensor, count, lead, style)
    if len(tensor.shape) < form.rows:
        raise invalid_input(f"{what} has the shape {list(tensor.shape)}, expected {form.rows} dimensions of rows")
    if spelling in (Spelling.BASE64, Spelling.FLAT, Spelling.COMMAS):
        _check_flat(form, tensor)
    if spelling in _OF_NUMBERS:
        tensor, style = _numbers(form, tensor), _as_words(style)
    if spelling is Spelling.BASE64:
        return _base64_rows(_elements(form, tensor), count)
    if spelling is Spelling.NPY:
        return [_npy(each, what) for each in _parts(tensor, lead)]
    shape = (count, *tensor.shape[len(lead) :])
    if spelling in (Spelling.FLAT, Spelling.COMMAS):
        shape = (count, prod(shape[1:]))
    if not count:
        return []
    whole = Tensor(tensor.name, tensor.datatype, shape, tensor.data)
    if tensor.datatype is BYTES:
        return json.string_rows(_texts_in_pieces(whole, style, what), shape)
    if not whole.elements:
        texts = [b"".join(json.number_pieces(row, style.nan, what)) for row in whole.array]
    else:
        texts = json.number_rows(b"".join(_nested(whole, style, what)), len(shape))
    written = _OF_NUMBERS.get(spelling)
    return texts if written is None else list(map(written, texts))


_BARE = frozenset({Spelling.SCALAR, Spelling.TEXT, Spelling.BYTES})
_OF_NUMBERS = {Spelling.NUMBERS: texts_of_numbers, Spelling.COMMAS: text_with_commas}


def _as_declared(form: TensorForm, tensor: Tensor) -> Tensor:
    """Return the tensor in the declared shape. The elements are integers if the form declares integers."""
    spec, what = form.spec, form.label
    assert spec is not None
    shape = tensor.shape
    if not fits(shape, spec.shape):
        fixed = filled(spec.shape, tensor.elements) if form.place.spelling in _BARE else None
        if fixed is None:
            raise invalid_input(f"{what} has the shape {list(shape)}, but the form declares {list(spec.shape)}")
        shape = fixed
    datatype, data = tensor.datatype, tensor.data
    if datatype is not spec.datatype and (spec.datatype.kind is not Kind.FLOAT or datatype in (BYTES, BOOL)):
        # a number of any datatype can be written as a float without loss of digits
        datatype, data = spec.datatype, _cast(tensor, spec.datatype, what)
    return tensor if data is tensor.data and shape == tensor.shape else Tensor(tensor.name, datatype, shape, data)


def _cast(tensor: Tensor, datatype: Datatype, what: str) -> "bytes | bytearray | memoryview":
    """Return the elements of a tensor in another datatype.

    Floats are rounded to the nearest number. Raise GatewayError if an element is out of the datatype's range, or if it
    must be an integer but is not."""
    own = tensor.datatype
    if own is datatype or not tensor.elements:
        return tensor.data
    if BYTES in (own, datatype) or BOOL in (own, datatype):
        raise invalid_input(f"{what} is {own}, but the form has {datatype}")
    values = tensor.array.reshape(-1)
    kind = values.dtype.kind
    wide = values.astype(np.int64 if kind == "i" else np.uint64 if kind == "u" else np.float64)
    try:
        return np.ascontiguousarray(cast(wide, datatype, what)).view(np.uint8).data
    except DecodeError as error:
        raise ElementError(str(error)) from error


def _elements(form: TensorForm, tensor: Tensor) -> Tensor:
    """Return the tensor in the datatype that its placeholder sets for raw elements. Floats of other datatypes are
    rounded."""
    datatype = form.place.datatype or (form.spec.datatype if form.spec else tensor.datatype)
    return Tensor(tensor.name, datatype, tensor.shape, _cast(tensor, datatype, form.label))


_PIECE = 2**20 // 3 * 3
"""Number of bytes that one call into C encodes in base64.

No other thread runs during the call. The size of a piece is a multiple of 3 bytes, so only the last piece is padded."""


def _base64(contents: Buffer) -> bytes:
    data = memoryview(contents)
    pieces = (b64encode(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE))
    return b'"%b"' % b"".join(pieces)


def _base64_rows(tensor: Tensor, count: int) -> list[bytes]:
    data = memoryview(tensor.data)
    size = len(data) // count if count else 0
    return [b'"%b"' % b64encode(data[at * size : (at + 1) * size]) for at in range(count)]


def _npy(tensor: Tensor, what: str) -> bytes:
    """Return a `.npy` file as a JSON string in base64."""
    if tensor.datatype is BYTES:
        raise invalid_input(f"{what} is BYTES, which a .npy file holds as pickles only")
    return _base64(b"".join(npy.encode(npy.storable(tensor))))


def _parts(tensor: Tensor, lead: Shape) -> list[Tensor]:
    """Return the parts of a tensor for all indices of its first dimensions. `lead` contains the sizes of these
    dimensions."""
    count, shape, data = prod(lead), tensor.shape[len(lead) :], memoryview(tensor.data)
    size = len(data) // count if count else 0
    return [Tensor("", tensor.datatype, shape, data[at * size : (at + 1) * size]) for at in range(count)]


_FEW = 64
"""Maximum count for which Python nests numbers faster than numpy writes them."""


def _nested(tensor: Tensor, style: ElementStyle, what: str) -> tuple[bytes, ...]:
    shape, datatype = tensor.shape, tensor.datatype
    if len(shape) == 1:
        return _flat(tensor, style, what)
    if datatype is BYTES and not shape:
        return (orjson.dumps(_nested_texts(tensor, style, what)),)
    if datatype is BYTES:
        return tuple(json.nested_string_pieces(_texts_in_pieces(tensor, style, what), shape))
    if len(shape) == 2 and shape[0] == 1:
        return (b"[", *json.written(tensor.data, datatype, style.nan, what), b"]")
    if len(shape) == 2 and 0 < tensor.elements <= _FEW:
        return (_in_rows(b"".join(json.written(tensor.data, datatype, style.nan, what)), shape[1]),)
    return tuple(json.number_pieces(tensor.array, style.nan, what))


def _in_rows(text: bytes, columns: int) -> bytes:
    """Split a flat JSON list of numbers into a list of rows."""
    numbers = text[1:-1].split(b",")
    rows = [b",".join(numbers[at : at + columns]) for at in range(0, len(numbers), columns)]
    return b"[[%b]]" % b"],[".join(rows)


def _flat(tensor: Tensor, style: ElementStyle, what: str) -> tuple[bytes, ...]:
    if tensor.datatype is BYTES:
        if style.translate.bytes == "base64":
            return tuple(json.string_pieces(_texts_in_pieces(tensor, style, what)))
        try:
            return tuple(json.utf8_pieces(bytes_elements.pieces(tensor.data)))
        except UnicodeDecodeError as error:
            raise _not_utf8(what) from error
    return tuple(json.written(tensor.data, tensor.datatype, style.nan, what))


def _bare(form: TensorForm, tensor: Tensor, count: int, lead: Shape, style: ElementStyle) -> list[bytes]:
    """Return the JSON texts of `count` single elements."""
    what, spelling = form.label, form.place.spelling
    if tensor.elements != count or len(tensor.shape) > len(lead) + 1:
        raise invalid_input(f"{what} has the shape {list(tensor.shape)}, expected one element at each place")
    if tensor.datatype is not BYTES:
        if spelling is not Spelling.SCALAR:
            raise invalid_input(f"{what} is {tensor.datatype}, expected BYTES")
        return (
            json.number_rows(b"".join(json.written(tensor.data, tensor.datatype, style.nan, what)), 1) if count else []
        )
    elements = bytes_elements.unpack(tensor.data)
    if spelling is Spelling.BYTES:
        return [b'"%b"' % b64encode(each) for each in elements]
    return [json.kept(orjson.dumps(each)) for each in _texts(elements, style, what)]


def _nested_texts(tensor: Tensor, style: ElementStyle, what: str) -> Any:
    flat = np.empty(tensor.elements, object)
    flat[:] = list(chain.from_iterable(_texts_in_pieces(tensor, style, what)))
    return flat.reshape(tensor.shape).tolist()


def _texts_in_pieces(tensor: Tensor, style: ElementStyle, what: str) -> Iterator[list[str]]:
    return (_texts(each, style, what) for each in bytes_elements.pieces(tensor.data))


def _texts(elements: Iterable[bytes], style: ElementStyle, what: str) -> list[str]:
    if style.translate.bytes == "base64":
        return [b64encode(each).decode() for each in elements]
    try:
        return [each.decode() for each in elements]
    except UnicodeDecodeError as error:
        raise _not_utf8(what) from error


def _not_utf8(what: str) -> ElementError:
    return ElementError(
        f"{what} holds bytes that are not UTF-8, which JSON cannot carry: spell it `|bytes`, "
        "or set translate.bytes: base64 on the route"
    )
