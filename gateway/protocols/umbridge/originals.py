"""Bodies that are passed on byte for byte: those that say what the gateway would write, and nothing else.

Numbers then keep their digits: `1e3` and `0.10` are not written as `1000.0` and `0.1`. Every other body is written
anew: one with members that the interface does not have, without `config` or with another empty one than `{}`, with a
bare number for a vector, NaN, an infinity, a position that is no integer, a byte order mark, or blanks around the
document; and one whose numbers were converted, as integers are for a model that takes doubles.

The form of an Original is the type of the body. A body that was read by its type has only what the type has. One that
the general reader took has its document as evidence, which is looked at when it is to be sent.
"""

from math import isfinite
from typing import Any

from gateway.core.json import Array
from gateway.core.original import Original
from gateway.core.types import Buffer, Request, Response
from gateway.protocols.umbridge.config import CONFIG
from gateway.protocols.umbridge.messages import CALL_TYPES, REPLY_TYPES


def for_server(request: Request) -> tuple[Buffer, ...] | None:
    """The body that `request` was read from, if it says what the gateway would write to a backend. Whether a backend
    takes its parameters is not looked at."""
    original = request.original
    if (
        original is None
        or original.form is not CALL_TYPES[request.operation]
        or original.model != request.model
        or original.parameters is not request.parameters
        or not original.has_data_of(request.inputs)
    ):
        return None
    return original.parts if _says_no_more(original) else None


def for_client(response: Response, request: Request) -> tuple[Buffer, ...] | None:
    """The body that `response` was read from, if it says what the gateway would write to the client of `request`."""
    original = response.original
    if (
        original is None
        or original.form is not REPLY_TYPES[request.operation]
        or not original.has_data_of(response.outputs)
    ):
        return None
    return original.parts if _says_no_more(original) else None


_OPENING, _CLOSING = b"{}"


def _says_no_more(original: Original) -> bool:
    """Whether a body says nothing else than its value. The decoder has accepted it: no key occurs twice in an object,
    vectors hold numbers, positions are whole, and numbers outside vectors are JSON's."""
    text, document, kind = original.parts[0], original.evidence, original.form
    if text[0] != _OPENING or text[-1] != _CLOSING:
        return False
    if document is None:
        return True
    assert isinstance(kind, type)
    if len(original.parts) != 1 or document.keys() != {*kind.__struct_encode_fields__}:  # type: ignore[attr-defined]
        return False
    if CONFIG in document and not original.parameters and document[CONFIG] != {}:
        return False
    return all(_is_plain(member) for key, member in document.items() if key != CONFIG)


def _is_plain(member: Any) -> bool:
    """Whether a name, a position, a vector, or each in a list of vectors is written as the gateway writes it."""
    if isinstance(member, list):
        return all(map(_is_plain, member))
    if isinstance(member, Array):
        values = member.values
        assert not isinstance(values, bytes)
        return len(member.shape) == 1 and (not values.size or (isfinite(values.min()) and isfinite(values.max())))
    return not isinstance(member, float)
