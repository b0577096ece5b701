"""Reads and writes the JSON body of a request or a response with tensors. Each format has two layouts (named and
unnamed):

    format    key in requests / responses    unnamed, one tensor   named
    rows      "instances" / "predictions"    [row, ...]            [{name: row, ...}, ...]
    columns   "inputs" / "outputs"           value                 {name: value, ...}

_SHAPES lists the body layouts whose numbers the gateway reads without Python values. Typed readers, in which `Raw` is
the text of tensors, read small bodies. For other bodies, the JSON reader decodes the numbers directly into arrays. If
both ways fail, the gateway reads the body as Python values (`_read_json_values`). This way is slower, but also accepts
rows that are not rectangular, and reports errors.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import Any, TypeAlias, TypedDict

import numpy as np
from msgspec import Raw

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.json import INT64_MAX, MAX_DEPTH, Array, ArrayForm, Json, TypedReader, array, read, write
from gateway.core.json.contents import untyped_numbers
from gateway.core.json.document import AllBut
from gateway.core.messages import Buffer, as_bytes
from gateway.core.requests import Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v1 import b64
from gateway.protocols.v1.schema import REPLY, REQUEST, SIGNATURE_NAME, BodyKeys, TensorFormat
from gateway.protocols.v1.tensors import (
    from_array,
    from_value,
    rows_to_json,
    scalar,
    text_of_value,
    texts_of_rows,
    to_json,
)


@frozen
class Body:
    """The contents of a body: the tensors, in one of the two formats, and the other `members`.

    `tensor_error` explains why a value is JSON text and not a tensor, and is empty if all values are tensors."""

    tensor_format: TensorFormat
    tensors: tuple[Tensor, ...]
    members: dict[str, Json] = field(default_factory=dict)
    tensor_error: str = ""


# --- Reading ---


def read_body(raw: Buffer, keys: BodyKeys, limit: int, *, any_json: bool) -> Body:
    """Return the tensors and the other members of `raw`.

    `limit` is `limits.json_values`. NaN and Infinity count as numbers. If `any_json` is True, a value that is not a
    rectangular array becomes BYTES that contain JSON texts.

    Raises:
        DecodeError: the body is not JSON, contains both tensor keys or none of them, or contains a value that is not a
            tensor.
    """
    text = raw if isinstance(raw, bytes) else as_bytes(raw)
    try:
        marked = b64.mark(text)
        body = _read_arrays(marked, keys, limit, b64.decode_marked if marked is not text else _unchanged)
        if body and body.members and marked is not text:
            body = replace(body, members=b64.restore_objects(body.members))
    except DecodeError as error:
        return _read_json_values(text, keys, limit, any_json, error)
    return body or _read_json_values(text, keys, limit, any_json, None)


_Unmark: TypeAlias = Callable[[Tensor, str], Tensor]


def _unchanged(tensor: Tensor, what: str) -> Tensor:
    return tensor


def _read_arrays(text: bytes, keys: BodyKeys, limit: int, unmark: _Unmark) -> Body | None:
    """Return the body with its numbers read directly into tensors.

    Return None if the body's layout does not allow reading arrays. `unmark` decodes the strings that replaced `b64`
    objects in the text."""
    shape = _shape(text)
    try:
        if b'["' in text:  # array readers read lists of strings equally fast
            raise DecodeError
        found = shape.split(shape.types[keys].read(text, limit), keys)
        if found is None:
            raise DecodeError
        tensors = [_from_text(name, given, limit) for name, given in found.tensors]
    except DecodeError:  # the array readers accept the body or report the error
        wanted = _EVERY if shape.pattern else {keys.rows: ArrayForm.ARRAY, keys.columns: ArrayForm.ARRAY}
        found = shape.split(read(text, wanted, values=limit, literals=True, level=shape.level), keys)
        if found is None:
            return None
        tensors = [_from_arrays(name, given, _what(name, keys.role)) for name, given in found.tensors]
    if found.tensor_format is TensorFormat.ROWS and keys is REQUEST and not all(each.shape for each in tensors):
        raise _no_list(keys)
    unmarked = tuple([unmark(each, _what(each.name, keys.role)) for each in tensors])
    return Body(found.tensor_format, unmarked, found.members)


@frozen
class _Split:
    """A body before its values become tensors: the text or the array of each tensor by name, and the other members of
    the body. For named rows, each tensor is a list with one item per row."""

    tensor_format: TensorFormat
    tensors: Iterable[tuple[str, Any]]
    members: dict[str, Json]


@frozen
class _Shape:
    """A body layout.

    `pattern` recognizes the layout in a text. `types` are the readers for small bodies. In other bodies, the tensors
    are arrays at `level`. `split` separates the tensors from the other members, and returns None for a document with
    another layout."""

    pattern: re.Pattern[bytes] | None
    types: Mapping[BodyKeys, TypedReader[dict[str, Any]]]
    level: int
    split: Callable[[dict[str, Any], BodyKeys], _Split | None]


_LARGEST = 2**14
"""Maximum size of a body for a typed reader, in bytes.

In a longer body, skipping the numbers once to find the end of each tensor costs more than cutting the tensors out of
the text (0.7 us for each KiB)."""


def _types(tensors: Any) -> dict[BodyKeys, TypedReader[dict[str, Any]]]:
    """Return the typed readers of bodies. `tensors` is the type of the member that contains the tensors."""

    def kind(members: dict[str, Any]) -> Any:
        return TypedDict("Body", members, total=False)  # type: ignore[operator] # msgspec reads it

    request, reply = ({keys.rows: tensors, keys.columns: tensors} for keys in (REQUEST, REPLY))
    return {
        REQUEST: TypedReader(kind({SIGNATURE_NAME: str, **request}), largest=_LARGEST),
        REPLY: TypedReader(kind(reply), largest=_LARGEST),
    }


def _split_named_rows(document: dict[str, Any], keys: BodyKeys) -> _Split | None:
    rows = document.pop(keys.rows, None)
    if type(rows) is not list or keys.columns in document or _holds_objects(document) or not _are_objects(rows):
        return None
    names = [*rows[0]]
    if not names or "" in names or any(row.keys() != rows[0].keys() for row in rows):
        return None
    return _Split(TensorFormat.ROWS, ((name, [row[name] for row in rows]) for name in names), document)


def _split_named_columns(document: dict[str, Any], keys: BodyKeys) -> _Split | None:
    tensor_format = _tensor_format(document, keys)
    columns = document.pop(keys.of(tensor_format))
    if type(columns) is not dict or "" in columns or not all(map(_has_scalars, document.values())):
        return None
    return _Split(tensor_format, columns.items(), {name: _with_scalars(each) for name, each in document.items()})


def _split_unnamed(document: dict[str, Any], keys: BodyKeys) -> _Split:
    tensor_format = _tensor_format(document, keys)
    return _Split(tensor_format, (("", document.pop(keys.of(tensor_format))),), document)


_EVERY = AllBut(())
_NAMED_ROWS = re.compile(rb'"(?:instances|predictions|explanations)"\s*:\s*\[\s*\{')
_NAMED_COLUMNS = re.compile(rb'"(?:inputs|outputs|predictions)"\s*:\s*\{')
_HEAD = 64 * 2**10
"""Number of bytes at the beginning of the text to search for named tensors. If their key comes later, the gateway reads
the tensors as Python values."""
_SHAPES = (
    _Shape(_NAMED_ROWS, _types(list[dict[str, Raw]]), 3, _split_named_rows),  # {"instances": [{"x": here}]}
    _Shape(_NAMED_COLUMNS, _types(dict[str, Raw]), 2, _split_named_columns),  # {"inputs": {"x": here}}
    _Shape(None, _types(Raw), 1, _split_unnamed),  # {"instances": here}
)


def _shape(text: bytes) -> _Shape:
    has_objects = text.find(b"{", text.find(b"{") + 1) >= 0
    for shape in _SHAPES:
        if shape.pattern is None or (has_objects and shape.pattern.search(text, 0, _HEAD)):
            break
    return shape


_DEEPEST = MAX_DEPTH - 3
"""Maximum nesting depth of an array that is allowed at every position of the body."""


def _from_text(name: str, given: Raw | list[Raw], values: int) -> Tensor:
    """Return the tensor of one list, or of the values in all rows, from its JSON text.

    Raise DecodeError if the text is not a tensor."""
    text = b"[%b]" % b",".join(given) if isinstance(given, list) else bytes(given)
    if not text.startswith(b"["):
        raise DecodeError
    if b'"' in text:
        tensor = from_array(name, array(text, values=values, literals=False))
    else:
        datatype, data, shape = untyped_numbers(text)
        tensor = Tensor(name, datatype, shape, data, "", {}, True)
    if len(tensor.shape) > _DEEPEST:
        raise DecodeError
    return tensor


def _from_arrays(name: str, given: Array | list[Array], what: str) -> Tensor:
    return _stack(name, given, what) if isinstance(given, list) else from_array(name, given)


def _has_scalars(member: Json) -> bool:
    """Return True if a member is a scalar, or an object of scalars (each decoded as an array without dimensions)."""
    if type(member) is dict:
        return all(type(each) is Array and not each.shape for each in member.values())
    return type(member) is not list


def _with_scalars(member: Json) -> Json:
    return {name: scalar(each) for name, each in member.items()} if type(member) is dict else member


def _are_objects(rows: list[Json]) -> bool:
    return bool(rows) and all(type(row) is dict for row in rows)


def _holds_objects(document: dict[str, Json]) -> bool:
    """Return True if a member can have keys at the level of the rows' keys. The values of such keys are already
    arrays."""
    return any(_is_container(inner) for each in document.values() if _is_container(each) for inner in _inner(each))


def _inner(container: Json) -> Iterable[Json]:
    return container.values() if type(container) is dict else container


def _is_container(each: Json) -> bool:
    return type(each) in (dict, list)


def _stack(name: str, rows: Sequence[Array], what: str) -> Tensor:
    """Return the values of one name in all rows as one tensor.

    Raises:
        DecodeError: rows have different shapes, or mix numbers, strings and booleans.
    """
    first = rows[0]
    for at, row in enumerate(rows):
        if row.shape != first.shape:
            raise DecodeError(f"{what} has shape {list(row.shape)} in row {at} and {list(first.shape)} in row 0")
    shape = (len(rows), *first.shape)
    texts = [row.values for row in rows if isinstance(row.values, bytes)]
    numbers = [row.values for row in rows if not isinstance(row.values, bytes)]
    if texts and numbers:
        raise DecodeError(f"{what} is a string in some rows and not in others")
    return from_array(name, Array(b"".join(texts) if texts else _join(numbers, what), shape))


def _join(arrays: "list[np.ndarray[Any, Any]]", what: str) -> "np.ndarray[Any, Any]":
    kinds = {array.dtype.kind for array in arrays}
    if "b" in kinds and len(kinds) > 1:
        raise DecodeError(f"{what} is a boolean in some rows and a number in others")
    if kinds == {"i", "u"}:  # numpy would convert both to doubles
        if any(array.dtype.kind == "i" and array.size and array.min() < 0 for array in arrays):
            raise DecodeError(f"{what} is above {INT64_MAX} in some rows and negative in others")
        return np.concatenate([array.astype(np.uint64).reshape(-1) for array in arrays])
    return np.concatenate([array.reshape(-1) for array in arrays])


def _read_json_values(text: bytes, keys: BodyKeys, limit: int, any_json: bool, array_error: DecodeError | None) -> Body:
    """Return the body, read as Python values. `array_error` is the error that `_read_arrays` raised, if any."""
    try:
        document = read(text, {}, values=limit, literals=False)
    except DecodeError as error:
        raise _combined_error(array_error, error, limit) from error
    tensor_format = _tensor_format(document, keys)
    given = document.pop(keys.of(tensor_format))
    is_rows = tensor_format is TensorFormat.ROWS and type(given) is list
    if tensor_format is TensorFormat.ROWS and not is_rows and keys.role == REQUEST.role:
        raise _no_list(keys)
    pairs = _named_rows(given) if is_rows else _named_columns(given)
    found = [_tensor(name, each, keys.role, limit, is_rows) for name, each in pairs]
    tensor_error = next((tensor_error for _, tensor_error in found if tensor_error), "")
    if tensor_error and not any_json:
        raise array_error or DecodeError(tensor_error)
    return Body(
        tensor_format,
        tuple(tensor for tensor, _ in found),
        document,
        str(array_error or tensor_error) if tensor_error else "",
    )


def _combined_error(array_error: DecodeError | None, error: DecodeError, limit: int) -> DecodeError:
    """Return `array_error` if it is set, or else `error`.

    If the body was too large for arbitrary JSON, the message also states the limit."""
    if array_error is None or "limits.json_values" not in str(error):
        return array_error or error
    return DecodeError(f"{array_error}; JSON other than arrays may have {limit} values (limits.json_values)")


def _named_rows(rows: list[Json]) -> list[tuple[str, Json]]:
    """Return the values of each name in all rows.

    If the rows have no names, return the rows themselves, without a name."""
    is_named = _are_objects(rows) and _names_tensors(rows[0]) and all(row.keys() == rows[0].keys() for row in rows)
    if not is_named:
        return [("", rows)]
    return [(name, [row[name] for row in rows]) for name in rows[0]]


def _named_columns(given: Json) -> list[tuple[str, Json]]:
    if type(given) is not dict or (given and not _names_tensors(given)):
        return [("", given)]
    return [*given.items()]


def _names_tensors(given: dict[str, Json]) -> bool:
    """Return whether the keys can be tensor names.

    The object must have at least one key and no empty key, and must not be a `b64` object."""
    return bool(given) and "" not in given and given.keys() != {"b64"}


def _what(name: str, role: str) -> str:
    """Return the phrase for a tensor in error messages."""
    return f"{role} {name!r}" if name else f"the {role}"


def _tensor(name: str, given: Json, role: str, limit: int, is_rows: bool) -> tuple[Tensor, str]:
    """Return the tensor, and an explanation of why it is JSON text. The explanation is empty for an ordinary tensor."""
    try:
        return from_value(name, given, _what(name, role), limit), ""
    except DecodeError as error:
        return (texts_of_rows if is_rows else text_of_value)(name, given), str(error)


def _tensor_format(document: dict[str, Json], keys: BodyKeys) -> TensorFormat:
    has_rows, has_columns = keys.rows in document, keys.columns in document
    if has_rows and has_columns:
        raise DecodeError(f"both {keys.rows!r} and {keys.columns!r} are there, expected only one")
    if not (has_rows or has_columns):
        raise DecodeError(f"Missing {keys.columns!r} or {keys.rows!r} key")
    return TensorFormat.ROWS if has_rows else TensorFormat.COLUMNS


def _no_list(keys: BodyKeys) -> DecodeError:
    return DecodeError(f'Expected "{keys.rows}" to be a list')


# --- Writing ---


def are_rows(tensors: Sequence[Tensor]) -> bool:
    """Return True if the tensors can be rows, because their rank is 1 or more and their first dimensions are equal."""
    shapes = [tensor.shape for tensor in tensors]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        return False
    return len(shapes) == 1 or shapes[0][0] > 0


def write_body(body: Body, keys: BodyKeys, nan: str, translate: Translate, *, named: bool = False) -> tuple[bytes, ...]:
    """Return the JSON text of a body, in pieces.

    The body always contains the names of several tensors, but the name of a single tensor only if `named` is True. In
    the row format, tensors that cannot be rows are written as complete values under the key of the rows.

    Raises:
        GatewayError: INVALID_ARGUMENT if JSON cannot represent a tensor (the message says which).
    """
    tensors = body.tensors
    key = keys.of(body.tensor_format)
    if not named and len(tensors) == 1:
        content = to_json(tensors[0], nan, translate, _label(tensors[0], 0, keys))
    elif body.tensor_format is TensorFormat.ROWS and are_rows(tensors):
        content = _write_rows(tensors, keys, nan, translate)
    else:
        columns = [
            (_name(each, at, keys), to_json(each, nan, translate, _label(each, at, keys)))
            for at, each in enumerate(tensors)
        ]
        content = _object(columns)
    return _object([(key, content), *((name, (write(each),)) for name, each in body.members.items())])


def _write_rows(tensors: Sequence[Tensor], keys: BodyKeys, nan: str, translate: Translate) -> tuple[bytes, ...]:
    columns = [rows_to_json(each, nan, translate, _label(each, at, keys)) for at, each in enumerate(tensors)]
    names = [write(_name(each, at, keys)) for at, each in enumerate(tensors)]
    rows = (
        b",".join([b"%b:%b" % (name, text) for name, text in zip(names, row, strict=True)])
        for row in zip(*columns, strict=True)
    )
    return (b"[{%b}]" % b"},{".join(rows),)


def _object(members: Iterable[tuple[str, tuple[bytes, ...]]]) -> tuple[bytes, ...]:
    """Return a JSON object, in pieces, from its keys and the JSON texts of its values. The function does not copy large
    texts."""
    pieces = [*chain.from_iterable((b",%b:" % write(key), *texts) for key, texts in members)]
    if not pieces:
        return (b"{}",)
    pieces[0] = b"{" + pieces[0][1:]
    pieces.append(b"}")
    return (b"".join(pieces),) if sum(map(len, pieces)) <= _JOINED else tuple(pieces)


_JOINED = 64 * 2**10
"""Maximum size of texts that are joined into one piece, in bytes. Up to this size, a copy is cheaper than several
writes."""


def _name(tensor: Tensor, at: int, keys: BodyKeys) -> str:
    return tensor.name or f"{keys.role}{at}"


def _label(tensor: Tensor, at: int, keys: BodyKeys) -> str:
    return f"{keys.role} {_name(tensor, at, keys)!r}"
