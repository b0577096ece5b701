"""Which JSON texts say nothing else than the gtensors that were read from them.

Numbers then keep their digits: `1e3` and `0.10` are not written as `1000.0` and `0.1`. Every other text is written
anew: one with members that grps does not have or that have their default, with null, with a dtype by its number, with
numbers of another kind than the dtype's, escapes, a byte order mark, or blanks around the document, except the newline
with which the C++ server ends its replies. So are those with numbers in quotes, as INT64, NaN and infinities are
written, since the quotes are gone when the numbers are read; and DT_FLOAT16, which is rounded the most.
"""

from math import isfinite
from typing import Any

from gateway.core.datatypes import Datatype, Kind
from gateway.core.original import Original
from gateway.core.types import Buffer, Tensor
from gateway.json import Array, Numbers
from gateway.protocols.grps.generic_tensor import DTYPES
from gateway.protocols.grps.schema import GrpsMessage, Payload
from gateway.protocols.grps.verbatim import MessageForm, as_it_came, of_message

_LARGE = 8192
"""Bytes of a text from which on it is looked at at once, so that what was read from it need not be kept. That takes a
small part of the time that reading it took; a smaller one is looked at when it is to be sent."""


def original_of(text: bytes, document: dict[str, Any], grps: GrpsMessage) -> Original | None:
    """The Original of `grps`, read from `document`, which is the JSON in `text`; None if it cannot go on."""
    if grps.payload is not Payload.GTENSORS:
        return None
    if len(text) <= _LARGE:
        return of_message(MessageForm.JSON, text, grps, document)
    return of_message(MessageForm.JSON, text, grps) if _is_plain(text, document, grps.tensors) else None


def text_as_it_came(original: Original | None, written: GrpsMessage) -> tuple[Buffer, ...] | None:
    """The text of `original`, if it says what the gateway would write for `written`, and nothing else."""
    return None if original is None else as_it_came(original, MessageForm.JSON, written, _says_no_more)


def _says_no_more(original: Original) -> bool:
    document = original.evidence[1]
    return document is None or _is_plain(original.parts[0], document, original.tensors)


# --- whether a text says nothing else ---
#
# This is asked of texts that the decoder has accepted: no key occurs twice in an object, dtype and shape match the
# elements, and numbers are JSON's.

_MEMBERS = frozenset({"status", "model", "gtensors"})
_GTENSORS = {"tensors"}
_STATUS = {"code": 200, "msg": "OK", "status": "SUCCESS"}
_ENDS = (b"}", b"}\n")
_OPENING = b"{"


def _is_plain(text: Any, document: dict[str, Any], tensors: tuple[Tensor, ...]) -> bool:
    gtensors = document["gtensors"]
    if (
        not document.keys() <= _MEMBERS
        or not all(document.values())
        or document.get("status", _STATUS) != _STATUS
        or gtensors.keys() != _GTENSORS
        or not text.startswith(_OPENING)
        or not text.endswith(_ENDS)
        or b"\\" in text
    ):
        return False
    for entry, tensor in zip(gtensors["tensors"], tensors, strict=True):
        if not _is_plain_tensor(entry, tensor):
            return False
    return bool(tensors)


def _is_plain_tensor(entry: dict[str, Any], tensor: Tensor) -> bool:
    """Whether the entry of a tensor has dtype and elements, name and shape where they are not the default, and nothing
    else."""
    dtype, kinds = DTYPES[tensor.datatype], _KINDS[tensor.datatype]
    if len(entry) != 2 + bool(tensor.name) + bool(tensor.shape) or entry["dtype"] != dtype.name:
        return False
    array = entry.get(dtype.member)
    if not isinstance(array, Array) or not len(array.values):
        return False
    values = array.values
    return (kinds == "S") if isinstance(values, bytes) else values.dtype.kind in kinds and _are_finite(values)


def _kinds(datatype: Datatype) -> str:
    """The kinds of numpy's dtypes that a text's numbers may have: 1.0 is no integer. `S` are strings."""
    if datatype is Datatype.BYTES:
        return "S"
    if datatype in (Datatype.INT64, Datatype.FP16):
        return ""
    return "iuf" if datatype.kind is Kind.FLOAT else "iu"


_KINDS = {datatype: _kinds(datatype) for datatype in DTYPES}


_FEW = 32
"""The number of elements up to which Python finds out whether all are finite faster than numpy."""


def _are_finite(values: Numbers) -> bool:
    # NaN and infinities are read as numbers, but are none in JSON
    if values.dtype.kind != "f":
        return True
    if values.size <= _FEW:
        return isfinite(sum(values.tolist()))
    return isfinite(values.min()) and isfinite(values.max())
