"""Messages like one that came before: equal to it in all but the contents of FP32 and FP64 tensors.

Clients and servers send the same names, datatypes and shapes again and again. The first such message is parsed and
checked, and written again: if that gives the same bytes, they say what was read and nothing else, neither unknown
fields nor members with their default, in the gateway's order. Then its layout is remembered: the bytes around the raw
contents, and what they say. The next message with these bytes at these places needs no parsing, and can go on as it
came.

Only raw contents are left out of the comparison, of which any bytes are valid. Integers are varints, whose bytes must
be looked at, so messages with them have no layout; nor have those with strings.
"""

from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen, replace
from gateway.core.layouts import BEGINNING, LONGEST, AlikeLayoutStore, PlacedTensor, ProofAttempts, cut_at_contents
from gateway.core.original import Original
from gateway.core.types import Buffer, Tensor
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.schema import GrpsMessage, GrpsStatus, Payload
from gateway.protocols.grps.verbatim import MessageForm, as_it_came, of_message

_RAW = frozenset({Datatype.FP32, Datatype.FP64})


@frozen
class GtensorsLayout:
    """What messages of one size say and where, all but their contents.

    - `start`: the bytes before the first contents; `between`: those before each further one, with their places.
    """

    start: bytes
    between: tuple[tuple[int, bytes], ...]
    model: str
    status: GrpsStatus | None
    tensors: tuple[PlacedTensor, ...]


_Key: TypeAlias = tuple[int, bytes]
"""The size and the beginning of a message."""

_layouts: AlikeLayoutStore[_Key, GtensorsLayout] = AlikeLayoutStore()
_attempts: ProofAttempts[_Key] = ProofAttempts()


def recall(body: bytes) -> GrpsMessage | None:
    """The message in `body`, if its layout is known."""
    for layout in _layouts.get((len(body), body[:BEGINNING]), ()):
        if not body.startswith(layout.start):
            continue
        for place, text in layout.between:
            if not body.startswith(text, place):
                break
        else:
            tensors = tuple([Tensor(name, each, shape, body[at:end]) for name, each, shape, at, end in layout.tensors])
            status = layout.status
            original = Original(
                MessageForm.PROTOBUF, (body,), tensors, (), {}, None, layout.model, None, (status, None)
            )  # fmt: skip
            return GrpsMessage(layout.model, status, Payload.GTENSORS, tensors, original)
    return None


def may_be_remembered(body: bytes, grps: GrpsMessage) -> bool:
    """Whether `body`, from which `grps` was read, is of a kind that has layouts, and is to be compared with what the
    gateway writes."""
    if grps.payload is not Payload.GTENSORS or not grps.tensors or (grps.status is not None and grps.status is not OK):
        return False
    if not all(each.datatype in _RAW and len(each.data) for each in grps.tensors):
        return False
    return _attempts.is_due((len(body), body[:BEGINNING]))


def remember(body: bytes, grps: GrpsMessage, parts: tuple[Buffer, ...]) -> GrpsMessage:
    """Remember the layout of `body`, from which `grps` was read, if it is as the gateway writes it, in `parts`.

    Returns:
        `grps`, with its Original if that is so.
    """
    if len(parts[0]) < BEGINNING or sum(map(len, parts[::2])) > LONGEST or b"".join(parts) != body:
        return grps
    key = len(body), body[:BEGINNING]
    _attempts.succeeded(key)
    start, between, tensors = cut_at_contents(grps.tensors, parts)
    layout = GtensorsLayout(start, between, grps.model, grps.status, tensors)
    # It is none of those that are known: `recall` has not found it.
    _layouts.remember_alike(key, layout)
    return replace(grps, original=of_message(MessageForm.PROTOBUF, body, grps))


def message_as_it_came(original: Original, written: GrpsMessage) -> tuple[Buffer, ...] | None:
    """The bytes of `original`, if they say what the gateway would write for `written`."""
    return as_it_came(original, MessageForm.PROTOBUF, written, _is_proven)


def _is_proven(original: Original) -> bool:
    return True
