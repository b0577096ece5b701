"""Inference messages like one that came before: equal to it in all but the contents of tensors.

Clients and servers send the same names, datatypes and shapes again and again. The first such message is parsed and
checked, and written again: if that gives the same bytes, they say what was read and nothing else. Then its layout is
remembered: the bytes around the raw contents, and what they say. The next message with these bytes at these places
needs no parsing, and can go on as it came.

Only raw contents of numbers are left out of the comparison, of which any bytes are valid. So messages with BYTES or
BOOL, whose contents must be looked at, and with parameters, which differ from message to message, have none.

An id, which differs too, is cut out: what is left is the message without an id, and has the same layout. It stands
behind the names of the model and the version, as protobuf writes it; a message with an id elsewhere, or two, has none.
"""

from collections.abc import Sequence
from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen, replace
from gateway.core.layouts import (
    BEGINNING,
    LARGEST,
    LONGEST,
    AlikeLayoutStore,
    PlacedTensor,
    ProofAttempts,
    cut_at_contents,
)
from gateway.core.original import Original
from gateway.core.types import Buffer, Message, Parameters, Request, Response, Tensor
from gateway.protobuf.wire import key as field_key
from gateway.protocols.v2.grpc.tensors import InferenceHead, MessageKind, write_inference


@frozen
class MessageLayout:
    """What messages of one size say and where, all but their contents.

    - `start`: the bytes before the first contents; `between`: those before each further one, with their places.
    """

    start: bytes
    between: tuple[tuple[int, bytes], ...]
    head: InferenceHead
    tensors: tuple[PlacedTensor, ...]

    def has_between(self, body: bytes, skipped: int) -> bool:
        """Whether `body` has the same bytes between its contents, `skipped` bytes further behind."""
        return all(body.startswith(text, place + skipped) for place, text in self.between)


_Key: TypeAlias = tuple[str, int, bytes]
"""The role of a message without an id, its size and its beginning."""

_layouts: AlikeLayoutStore[_Key, MessageLayout] = AlikeLayoutStore()
_attempts: ProofAttempts[_Key] = ProofAttempts()


Recalled: TypeAlias = tuple[InferenceHead, str | None, tuple[Tensor, ...], Parameters, Original]
"""What a message says: its head without the id, the id, the tensors and the parameters, of which there are none; and
the Original of them."""


def recall(body: Buffer, kind: MessageKind, message: Message) -> Recalled | None:
    """What `body`, which came in `message`, says, if its layout is known."""
    if type(body) is not bytes:
        return None
    id, skipped = None, 0
    for layout in _layouts.get((kind.role, len(body), body[:BEGINNING]), ()):
        if body.startswith(layout.start) and (not layout.between or layout.has_between(body, 0)):
            break
    else:
        found = _layout_without_id(body, kind)
        if found is None:
            return None
        layout, id, skipped = found
    head, placed = layout.head, layout.tensors
    if len(placed) == 1:  # as most messages have it
        name, datatype, shape, at, end = placed[0]
        tensors: tuple[Tensor, ...] = (Tensor(name, datatype, shape, body[at + skipped : end + skipped]),)
    else:
        tensors = tuple(
            [
                Tensor(name, datatype, shape, body[at + skipped : end + skipped])
                for name, datatype, shape, at, end in placed
            ]
        )
    none: Parameters = {}
    original = Original(kind, message.parts, tensors, head.outputs, none, id, head.model, head.version)
    return head, id, tensors, none, original


def _layout_without_id(body: bytes, kind: MessageKind) -> tuple[MessageLayout, str, int] | None:
    """The layout of `body` without its id, if it has one and the layout is known; the id, and the bytes of its
    field."""
    if (field := _id_field(body)) is None:
        return None
    begin, end = field
    size = end - begin
    beginning = body[:begin] + body[end : end + BEGINNING] if begin < BEGINNING else body
    for layout in _layouts.get((kind.role, len(body) - size, beginning[:BEGINNING]), ()):
        start = layout.start
        # A `start` has all fields before the contents, so it does not end before the place of the id.
        if body.startswith(start[:begin]) and body.startswith(start[begin:], end) and layout.has_between(body, size):
            try:
                return layout, body[begin + _PREFIX : end].decode(), size
            except UnicodeDecodeError:
                return None
    return None


_MODEL_KEY, _VERSION_KEY, _ID_KEY = (field_key(number)[0] for number in (1, 2, 3))
_ONE_BYTE = 127
"""The largest length that is written in one byte."""
_PREFIX = 2
"""The bytes of the key and the length of such a field."""


def _id_field(body: bytes) -> tuple[int, int] | None:
    """Where the field of a message's id begins and ends; None if there is none behind model and version, or any of them
    is long."""
    if len(body) > LARGEST:
        return None
    at = 0
    try:
        for each in (_MODEL_KEY, _VERSION_KEY):
            if body[at] == each:
                if body[at + 1] > _ONE_BYTE:
                    return None
                at += _PREFIX + body[at + 1]
        size = body[at + 1]
        if body[at] != _ID_KEY or not 0 < size <= _ONE_BYTE:
            return None
        return at, at + _PREFIX + size
    except IndexError:
        return None


def remember(body: Buffer, kind: MessageKind, head: InferenceHead, tensors: Sequence[Tensor]) -> None:
    """Remember the layout of `body`, from which `head` and `tensors` were read, if it is as the gateway writes it."""
    if type(body) is not bytes or len(body) > LARGEST or head.parameters or not tensors:
        return
    for each in tensors:
        if each.parameters or not each.data or each.datatype is Datatype.BYTES or each.datatype is Datatype.BOOL:
            return
    if any(each.parameters for each in head.outputs):
        return
    if head.id:
        field = _id_field(body)
        if field is None or body[field[0] + _PREFIX : field[1]] != head.id.encode():
            return
        body, head = body[: field[0]] + body[field[1] :], replace(head, id=None)
    key = kind.role, len(body), body[:BEGINNING]
    if not _attempts.is_due(key):
        return
    parts = write_inference(head, kind, tensors)
    if not BEGINNING <= len(parts[0]) <= LONGEST or b"".join(parts) != body:
        return
    _attempts.succeeded(key)
    start, between, placed = cut_at_contents(tensors, parts)
    layout = MessageLayout(start, between, head, placed)
    # It is none of those that are known: `recall` has not found it.
    _layouts.remember_alike(key, layout)


def request_as_it_came(request: Request, kind: MessageKind, lacking: frozenset[Datatype] | None) -> Original | None:
    """The Original of `request`, if it says what would be written to a server without the datatypes in `lacking`."""
    original = request.original
    if (
        original is None
        or original.form is not kind
        or original.model != request.model
        or original.version != request.version
        or not original.is_of_request(request)
        or (lacking and any(each.datatype in lacking for each in request.inputs))
    ):
        return None
    return original


def response_as_it_came(response: Response, request: Request, kind: MessageKind) -> Original | None:
    """The Original of `response`, if it says what would be written to the client of `request`."""
    original = response.original
    if (
        original is None
        or original.form is not kind
        or original.id != request.id
        or original.model != (request.model or response.model)
        or original.version != (request.version or response.version)
        or not original.is_of_response(response)
    ):
        return None
    return original
