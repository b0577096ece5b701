"""Which bodies of calls can go on as they came: those that say what the gateway would write, and nothing else.

Numbers then keep their digits: `1e3` and `0.10` are not written as `1000.0` and `0.1`. Every other body is written
anew: one with members that the interface does not have, without `config` or with another empty one than `{}`, with a
bare number for a vector, NaN, an infinity, a position that is no integer, a byte order mark, or blanks around the
document; and one whose numbers were converted, as integers are for a model that takes doubles.
"""

from math import isfinite

from gateway.core.frozen import frozen
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, INFER, Operation
from gateway.core.original import Original
from gateway.core.types import Message, Parameters, Request, Response, Tensor
from gateway.json import Array, Json, Numbers
from gateway.protocols.umbridge.schema import KEYS


@frozen
class CallForm:
    """The members of one kind of body.

    - `keys`: all of them.
    - `lists`: those that are lists of vectors; `vectors`: those that are one vector; `positions`: those that are the
      position of a vector.
    """

    keys: frozenset[str]
    lists: tuple[str, ...]
    vectors: tuple[str, ...]
    positions: tuple[str, ...]


def _request_form(operation: Operation) -> CallForm:
    names = DERIVATIVES.get(operation, ())
    vectors = tuple([KEYS[name] for name in names if name not in INDEX_TENSORS])
    positions = tuple([KEYS[name] for name in names if name in INDEX_TENSORS])
    return CallForm(frozenset({"name", "input", "config", *vectors, *positions}), ("input",), vectors, positions)


REQUESTS = {operation: _request_form(operation) for operation in (INFER, *DERIVATIVES)}
"""The form of the bodies of calls."""
_OUTPUT = frozenset({"output"})
_DERIVATIVE = CallForm(_OUTPUT, (), ("output",), ())
RESPONSES = {INFER: CallForm(_OUTPUT, ("output",), (), ()), **dict.fromkeys(DERIVATIVES, _DERIVATIVE)}
"""The form of the bodies of their replies."""


# --- noting where a value came from ---


def of_request(
    operation: Operation, body: dict[str, Json], message: Message, inputs: tuple[Tensor, ...], parameters: Parameters
) -> Original:
    """The Original of a call that was read from `body`, the JSON in `message`."""
    form = REQUESTS[operation]
    return Original(form, message.parts, inputs, (), parameters, None, body["name"], None, body)


def of_response(operation: Operation, body: dict[str, Json], message: Message, outputs: tuple[Tensor, ...]) -> Original:
    """The Original of a backend's reply to a call that was read from `body`, the JSON in `message`."""
    return Original(RESPONSES[operation], message.parts, outputs, (), _NO_PARAMETERS, evidence=body)


_NO_PARAMETERS: Parameters = {}


# --- sending it on ---


def request_as_it_came(request: Request) -> Original | None:
    """The Original of `request`, if it says what the gateway would write to a backend. Whether a backend takes its
    parameters is not looked at."""
    original, form = request.original, REQUESTS[request.operation]
    if (
        original is None
        or original.form is not form
        or original.model != request.model
        or original.parameters is not request.parameters
        or not original.has_data_of(request.inputs)
    ):
        return None
    return original if request_says_no_more(original) else None


def response_as_it_came(response: Response, request: Request) -> Original | None:
    """The Original of `response`, if it says what the gateway would write to the client of `request`."""
    original, form = response.original, RESPONSES[request.operation]
    if original is None or original.form is not form or not original.has_data_of(response.outputs):
        return None
    return original if response_says_no_more(original) else None


# --- whether a body says nothing else than its value ---
#
# This is asked of documents that the decoder has accepted: no key occurs twice in an object, vectors hold numbers,
# positions are integers of 64 bits, or floats that are whole, and numbers outside vectors are JSON's.

_OPENING, _CLOSING = b"{}"
_FEW = 32
"""The number of elements up to which Python finds out whether all are finite faster than numpy."""


def request_says_no_more(original: Original) -> bool:
    """Whether the body of a call says nothing else than its value. Without evidence that is known already."""
    return original.evidence is None or (_says_no_more(original) and _has_own_config(original))


def response_says_no_more(original: Original) -> bool:
    """Whether the body of a reply says nothing else than its value. Without evidence that is known already."""
    return original.evidence is None or _says_no_more(original)


def _says_no_more(original: Original) -> bool:
    body, form = original.evidence, original.form
    assert isinstance(form, CallForm)
    if body.keys() != form.keys or len(original.parts) != 1:
        return False
    [text] = original.parts
    if text[0] != _OPENING or text[-1] != _CLOSING:
        return False
    for key in form.positions:
        if type(body[key]) is not int:
            return False
    for key in form.vectors:
        if not _is_plain(body[key]):
            return False
    for key in form.lists:
        for vector in body[key]:
            if not _is_plain(vector):
                return False
    return True


def _is_plain(vector: Array) -> bool:
    """Whether a vector is a list of numbers that are JSON's."""
    return len(vector.shape) == 1 and not isinstance(vector.values, bytes) and are_finite(vector.values)


def are_finite(values: Numbers) -> bool:
    """Whether all are numbers of JSON: NaN and infinities are read as numbers, but are none."""
    if values.size <= _FEW:
        return isfinite(sum(values.tolist()))
    return isfinite(values.min()) and isfinite(values.max())


def _has_own_config(original: Original) -> bool:
    """Whether `config` is written as it is in the body: null and an empty list become `{}`."""
    return bool(original.parameters) or type(original.evidence["config"]) is dict
