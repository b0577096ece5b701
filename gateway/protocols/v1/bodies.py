"""The JSON object that holds tensors: `instances` or `inputs` of a request, `predictions` or `outputs` of a reply.

Each form is bare, which is one tensor without a name, or named, which are objects. Numbers go straight into arrays
where that is possible; only what holds bytes, or is no rectangular array, is read as Python values first.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.types import Buffer, Tensor, Translate
from gateway.json import INT64_MAX, Array, ArrayForm, Json, read, write
from gateway.json.document import AllBut
from gateway.protocols.v1 import b64, values
from gateway.protocols.v1.words import REQUEST, Form, Keys

_EVERY = AllBut(())
_NAMED_ROWS = re.compile(rb'"(?:instances|predictions|explanations)"\s*:\s*\[\s*\{')
_NAMED_COLUMNS = re.compile(rb'"(?:inputs|outputs|predictions)"\s*:\s*\{')
_HEAD = 64 * 2**10
"""Bytes in which the member that holds the tensors begins; where it comes later it is read as Python values first."""
_ROW_LEVEL, _COLUMN_LEVEL = 3, 2  # {"instances": [{"x": here}]}, {"inputs": {"x": here}}


@frozen
class Body:
    """What a body holds: tensors in one of the two forms, and its other `members`. `flaw` says why rows are their
    JSON texts and not numbers; empty if they are no texts."""

    form: Form
    tensors: tuple[Tensor, ...]
    members: dict[str, Json] = field(default_factory=dict)
    flaw: str = ""


# --- Reading ---


def read_body(raw: Buffer, keys: Keys, limit: int, *, any_json: bool) -> Body:
    """The tensors in `raw`, and what stands beside them. `limit` is `limits.json_values`. NaN and Infinity are numbers.
    `any_json`: what is no rectangular array becomes BYTES of its JSON texts.

    Raises:
        DecodeError: not JSON, neither or both of the two members, or a value that is no tensor.
    """
    text = raw if isinstance(raw, bytes) else bytes(raw)
    try:
        marked = b64.marked(text)
        body = _read_bulk(marked, keys, limit, b64.unmarked if marked is not text else _as_it_is)
        if body and body.members and marked is not text:
            body = replace(body, members=b64.restored(body.members))
    except DecodeError as error:
        return _read_plain(text, keys, limit, any_json, error)
    return body or _read_plain(text, keys, limit, any_json, None)


_Unmark: TypeAlias = Callable[[Tensor, str], Tensor]


def _as_it_is(tensor: Tensor, what: str) -> Tensor:
    return tensor


def _read_bulk(text: bytes, keys: Keys, limit: int, unmark: _Unmark) -> Body | None:
    """The body with its numbers read in bulk; None where this form of it cannot be. `unmark` makes bytes of what stands
    for `b64` in the text."""
    has_objects = text.find(b"{", text.find(b"{") + 1) >= 0
    if has_objects and _NAMED_ROWS.search(text, 0, _HEAD):
        return _read_named_rows(text, keys, limit, unmark)
    if has_objects and _NAMED_COLUMNS.search(text, 0, _HEAD):
        return _read_named_columns(text, keys, limit, unmark)
    wanted = {keys.rows: ArrayForm.ARRAY, keys.columns: ArrayForm.ARRAY}
    document = read(text, wanted, values=limit, literals=True, level=1)
    form = _form(document, keys)
    array = document.pop(keys.of(form))
    if form is Form.ROWS and not array.shape and keys.role == REQUEST.role:
        raise _no_list(keys)
    return Body(form, (unmark(values.from_array("", array), f"the {keys.role}"),), document)


def _read_named_rows(text: bytes, keys: Keys, limit: int, unmark: _Unmark) -> Body | None:
    document = read(text, _EVERY, values=limit, literals=True, level=_ROW_LEVEL)
    rows = document.pop(keys.rows, None)
    if type(rows) is not list or keys.columns in document or _holds_objects(document) or not _are_objects(rows):
        return None
    names = [*rows[0]]
    if not names or "" in names or any(row.keys() != rows[0].keys() for row in rows):
        return None
    labels = {name: f"{keys.role} {name!r}" for name in names}
    stacked = (_stacked(name, [row[name] for row in rows], label) for name, label in labels.items())
    return Body(Form.ROWS, tuple(map(unmark, stacked, labels.values())), document)


def _read_named_columns(text: bytes, keys: Keys, limit: int, unmark: _Unmark) -> Body | None:
    document = read(text, _EVERY, values=limit, literals=True, level=_COLUMN_LEVEL)
    form = _form(document, keys)
    columns = document.pop(keys.of(form))
    if type(columns) is not dict or "" in columns or not all(map(_has_scalars, document.values())):
        return None
    document = {name: _with_scalars(each) for name, each in document.items()}
    tensors = (unmark(values.from_array(name, each), f"{keys.role} {name!r}") for name, each in columns.items())
    return Body(form, tuple(tensors), document)


def _has_scalars(member: Json) -> bool:
    """Whether a member is a scalar, or an object of scalars, which were read as arrays."""
    if type(member) is dict:
        return all(type(each) is Array and not each.shape for each in member.values())
    return type(member) is not list


def _with_scalars(member: Json) -> Json:
    return {name: values.scalar(each) for name, each in member.items()} if type(member) is dict else member


def _are_objects(rows: list[Json]) -> bool:
    return bool(rows) and all(type(row) is dict for row in rows)


def _holds_objects(document: dict[str, Json]) -> bool:
    """Whether a member may hold keys as deep as those of rows are, which were read as arrays."""
    return any(_is_container(inner) for each in document.values() if _is_container(each) for inner in _inner(each))


def _inner(container: Json) -> Iterable[Json]:
    return container.values() if type(container) is dict else container


def _is_container(each: Json) -> bool:
    return type(each) in (dict, list)


def _stacked(name: str, rows: Sequence[Array], what: str) -> Tensor:
    """The values of one name in all rows as one tensor.

    Raises:
        DecodeError: they differ in shape or sort.
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
    return values.from_array(name, Array(b"".join(texts) if texts else _joined(numbers, what), shape))


def _joined(arrays: "list[np.ndarray[Any, Any]]", what: str) -> "np.ndarray[Any, Any]":
    kinds = {array.dtype.kind for array in arrays}
    if "b" in kinds and len(kinds) > 1:
        raise DecodeError(f"{what} is a boolean in some rows and a number in others")
    if kinds == {"i", "u"}:  # numpy would make doubles of them
        if any(array.dtype.kind == "i" and array.size and array.min() < 0 for array in arrays):
            raise DecodeError(f"{what} is above {INT64_MAX} in some rows and negative in others")
        return np.concatenate([array.astype(np.uint64).reshape(-1) for array in arrays])
    return np.concatenate([array.reshape(-1) for array in arrays])


def _read_plain(text: bytes, keys: Keys, limit: int, any_json: bool, obstacle: DecodeError | None) -> Body:
    """The body as Python values first. `obstacle` is why it could not be read in bulk."""
    try:
        document = read(text, {}, values=limit, literals=False)
    except DecodeError as error:
        raise _of_both(obstacle, error, limit) from error
    form = _form(document, keys)
    given = document.pop(keys.of(form))
    is_rows = form is Form.ROWS and type(given) is list
    if form is Form.ROWS and not is_rows and keys.role == REQUEST.role:
        raise _no_list(keys)
    pairs = _named_rows(given) if is_rows else _named_columns(given)
    found = [_tensor(name, each, keys.role, limit, is_rows) for name, each in pairs]
    flaw = next((flaw for _, flaw in found if flaw), "")
    if flaw and not any_json:
        raise obstacle or DecodeError(flaw)
    return Body(form, tuple(tensor for tensor, _ in found), document, str(obstacle or flaw) if flaw else "")


def _of_both(obstacle: DecodeError | None, error: DecodeError, limit: int) -> DecodeError:
    """Why the body is no tensor; and, if that is all, that it is too large to be anything else."""
    if obstacle is None or "limits.json_values" not in str(error):
        return obstacle or error
    return DecodeError(f"{obstacle}; JSON that is no array may have {limit} values (limits.json_values)")


def _named_rows(rows: list[Json]) -> list[tuple[str, Json]]:
    """The values of each name in all rows; without names the rows themselves."""
    is_named = _are_objects(rows) and _names_tensors(rows[0]) and all(row.keys() == rows[0].keys() for row in rows)
    if not is_named:
        return [("", rows)]
    return [(name, [row[name] for row in rows]) for name in rows[0]]


def _named_columns(given: Json) -> list[tuple[str, Json]]:
    if type(given) is not dict or (given and not _names_tensors(given)):
        return [("", given)]
    return [*given.items()]


def _names_tensors(given: dict[str, Json]) -> bool:
    """Whether the keys can be names of tensors: a tensor without a name is bare."""
    return bool(given) and "" not in given and given.keys() != {"b64"}


def _tensor(name: str, given: Json, role: str, limit: int, is_rows: bool) -> tuple[Tensor, str]:
    """The tensor, and why it is JSON text if it is."""
    try:
        return values.from_value(name, given, f"{role} {name!r}" if name else f"the {role}", limit), ""
    except DecodeError as error:
        return (values.texts_of_rows if is_rows else values.text_of_value)(name, given), str(error)


def _form(document: dict[str, Json], keys: Keys) -> Form:
    has_rows, has_columns = keys.rows in document, keys.columns in document
    if has_rows and has_columns:
        raise DecodeError(f"both {keys.rows!r} and {keys.columns!r} are there, expected one of them")
    if not (has_rows or has_columns):
        raise DecodeError(f"Missing {keys.columns!r} or {keys.rows!r} key")
    return Form.ROWS if has_rows else Form.COLUMNS


def _no_list(keys: Keys) -> DecodeError:
    return DecodeError(f'Expected "{keys.rows}" to be a list')


# --- Writing ---


def are_rows(tensors: Sequence[Tensor]) -> bool:
    """Whether a list with one entry for each row can hold the tensors."""
    shapes = [tensor.shape for tensor in tensors]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        return False
    return len(shapes) == 1 or shapes[0][0] > 0


def write_body(body: Body, keys: Keys, nan: str, translate: Translate, *, named: bool = False) -> tuple[bytes, ...]:
    """The JSON text of a body, in pieces. Several tensors are named, and one if `named` says so. Rows that are none
    stand as columns do, in the member of rows.

    Raises:
        GatewayError: INVALID_ARGUMENT naming a tensor that has no form.
    """
    tensors = body.tensors
    key = keys.of(body.form)
    if not named and len(tensors) == 1:
        held = values.to_json(tensors[0], nan, translate, _label(tensors[0], 0, keys))
    elif body.form is Form.ROWS and are_rows(tensors):
        held = _write_rows(tensors, keys, nan, translate)
    else:
        columns = [
            (_name(each, at, keys), values.to_json(each, nan, translate, _label(each, at, keys)))
            for at, each in enumerate(tensors)
        ]
        held = _object(columns)
    return _object([(key, held), *((name, (write(each),)) for name, each in body.members.items())])


def _write_rows(tensors: Sequence[Tensor], keys: Keys, nan: str, translate: Translate) -> tuple[bytes, ...]:
    columns = [values.rows_to_json(each, nan, translate, _label(each, at, keys)) for at, each in enumerate(tensors)]
    names = [write(_name(each, at, keys)) for at, each in enumerate(tensors)]
    rows = (
        b",".join([b"%b:%b" % (name, text) for name, text in zip(names, row, strict=True)])
        for row in zip(*columns, strict=True)
    )
    return (b"[{%b}]" % b"},{".join(rows),)


def _object(members: Iterable[tuple[str, tuple[bytes, ...]]]) -> tuple[bytes, ...]:
    """A JSON object of keys and texts in pieces: large ones are not copied to join them."""
    pieces = [*chain.from_iterable((b",%b:" % write(key), *texts) for key, texts in members)]
    if not pieces:
        return (b"{}",)
    pieces[0] = b"{" + pieces[0][1:]
    pieces.append(b"}")
    return (b"".join(pieces),) if sum(map(len, pieces)) <= _JOINED else tuple(pieces)


_JOINED = 64 * 2**10
"""Bytes up to which joining a text costs nothing."""


def _name(tensor: Tensor, at: int, keys: Keys) -> str:
    return tensor.name or f"{keys.role}{at}"


def _label(tensor: Tensor, at: int, keys: Keys) -> str:
    return f"{keys.role} {_name(tensor, at, keys)!r}"
