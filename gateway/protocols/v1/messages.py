"""Types for the bodies of `:predict` and of its response. `Raw` is the text of tensors.

    {"signature_name": "s", "instances": [[1.5, 2.5], [3.5, 4.5]]}

The typed reader decodes a body that has only these members, once each, and rectangular lists of numbers or strings. It
joins the values of one name in all rows to the text of one list. `json_bodies` decodes every other body, and large
bodies: it accepts more, and reports errors. Both readers return the same value.
"""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import Decoder

from gateway.core.errors import DecodeError
from gateway.core.json import MAX_DEPTH, Json, array
from gateway.core.json.untyped import untyped_numbers
from gateway.core.types import Tensor
from gateway.protocols.v1.schema import REPLY, REQUEST, SIGNATURE_NAME, BodyKeys, TensorFormat
from gateway.protocols.v1.tensors import from_array


class PredictRequest(Struct):
    """The body of a request: rows or columns."""

    signature_name: str | UnsetType = UNSET
    instances: Raw | UnsetType = UNSET
    inputs: Raw | UnsetType = UNSET


class PredictReply(Struct):
    """The body of a response: rows or columns."""

    predictions: Raw | UnsetType = UNSET
    outputs: Raw | UnsetType = UNSET


_LARGEST = 2**14
"""Maximum bytes of a body for the typed reader. In a longer body, skipping the numbers once to find the end of each
tensor costs more than cutting the tensors out of the text (0.7 us for each KiB)."""

_READERS: dict[BodyKeys, Callable[[bytes], Any]] = {
    REQUEST: Decoder(PredictRequest).decode,
    REPLY: Decoder(PredictReply).decode,
}
_read_columns = Decoder(dict[str, Raw]).decode
_read_rows = Decoder(list[dict[str, Raw]]).decode


def read_by_type(text: bytes, keys: BodyKeys, values: int) -> tuple[TensorFormat, list[Tensor], dict[str, Json]]:
    """Return the format, the tensors, and the other members of a body. `values` is `limits.json_values`.

    Raises:
        DecodeError: the typed reader cannot decode the body.
    """
    # Each value with its separator takes at least two bytes, so a short text does not have too many. `json_bodies`
    # reads lists of strings equally fast.
    if len(text) > _LARGEST or len(text) > 2 * values or b'["' in text:
        raise DecodeError
    try:
        body = _READERS[keys](text)
        tensor_format, content = _content(body, keys)
        members: dict[str, Json] = {}
        if getattr(body, SIGNATURE_NAME, UNSET) is not UNSET:
            members[SIGNATURE_NAME] = body.signature_name
        texts = _texts(content, tensor_format, keys)
    except (MsgspecError, UnicodeError, RecursionError) as error:
        raise DecodeError from error
    # Each member has one colon: there are more if a member is repeated or unknown, or if a string has a colon.
    if text.count(b":") != 1 + len(members) + sum([count for _, count, _ in texts]):
        raise DecodeError
    return tensor_format, [_tensor(name, each, values) for name, _, each in texts], members


def _content(body: Any, keys: BodyKeys) -> tuple[TensorFormat, bytes]:
    """Return the format and the text of the tensors."""
    rows, columns = getattr(body, keys.rows), getattr(body, keys.columns)
    if (rows is UNSET) is (columns is UNSET):
        raise DecodeError
    return (TensorFormat.ROWS, bytes(rows)) if columns is UNSET else (TensorFormat.COLUMNS, bytes(columns))


def _texts(content: bytes, tensor_format: TensorFormat, keys: BodyKeys) -> list[tuple[str, int, bytes]]:
    """Return for each tensor its name, the number of members that have it, and its text."""
    if b"{" not in content:
        return [("", 0, content)]
    if content.startswith(b"{"):
        if tensor_format is TensorFormat.ROWS and keys is REQUEST:
            raise DecodeError
        return [(name, 1, bytes(each)) for name, each in _names(_read_columns(content)).items()]
    if tensor_format is TensorFormat.COLUMNS:
        raise DecodeError
    rows = _read_rows(content)
    first = _names(rows[0])
    if any(row.keys() != first.keys() for row in rows):
        raise DecodeError
    return [(name, len(rows), b"[%b]" % b",".join([row[name] for row in rows])) for name in first]


def _names(tensors: dict[str, Raw]) -> dict[str, Raw]:
    if not tensors or "" in tensors:
        raise DecodeError
    return tensors


_DEEPEST = MAX_DEPTH - 3
"""Maximum levels of an array that are allowed at every position of the body."""


def _tensor(name: str, text: bytes, values: int) -> Tensor:
    if text[0] != _OPENING:
        raise DecodeError
    if b'"' in text:
        tensor = from_array(name, array(text, values=values, literals=False))
    else:
        datatype, data, shape = untyped_numbers(text)
        tensor = Tensor(name, datatype, shape, data, "", {}, True)
    if len(tensor.shape) > _DEEPEST:
        raise DecodeError
    return tensor


_OPENING = ord("[")
