"""Messages like one that came before: equal to it in all but the contents of tensors.

The first such message is read as ever, and all its bytes accounted for (`verbatim`). Then its layout is remembered: the
pieces between the contents of its tensors, and what they say. Of the next message with these pieces at these places
only the contents are taken, without following an offset, and it can go on as it came.

Of the contents of numbers any bytes are valid. Strings must be looked at, so messages with them have no layout.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.layouts import BEGINNING, LONGEST, AlikeLayoutStore, LayoutStore, PlacedTensor, ProofAttempts
from gateway.core.original import Original
from gateway.core.types import Buffer, Message, Parameters, RequestedOutput, Tensor
from gateway.protocols.graphpipe.strings import NO_PARAMETERS
from gateway.protocols.graphpipe.tensors import contents
from gateway.protocols.graphpipe.verbatim import BufferForm, contents_if_proven

Pieces: TypeAlias = tuple[bytes, ...]
"""The bytes before, between and behind the contents of the tensors of a message."""


@frozen
class BufferLayout:
    """What messages with the same pieces say.

    - `outputs`, `parameters`: those of a request; `config_size`: the bytes of the `config` in them.
    """

    form: BufferForm
    tensors: tuple[PlacedTensor, ...]
    outputs: tuple[RequestedOutput, ...]
    parameters: Parameters
    config_size: int

    def read(self, body: Buffer) -> tuple[Tensor, ...]:
        """The tensors in a message of this layout."""
        return tuple(
            [
                Tensor(name, datatype, shape, contents(body, at, end), "", NO_PARAMETERS)
                for name, datatype, shape, at, end in self.tensors
            ]
        )

    def original(self, message: Message, tensors: tuple[Tensor, ...]) -> Original:
        """That of what was read from `message`, which is of this layout."""
        return Original(
            self.form, message.parts, tensors, self.outputs, self.parameters, None, None, None, self.config_size
        )


_Key: TypeAlias = tuple[BufferForm, int, bytes]
"""The form, the size and the beginning of a message."""

Cut: TypeAlias = Callable[[bytes], Pieces]
"""What takes the pieces of a message with its contents at certain places."""

_cuts: AlikeLayoutStore[_Key, tuple[list[tuple[int, int]], Cut]] = AlikeLayoutStore()
"""Where messages have their contents, and what cuts them there."""
_layouts: LayoutStore[tuple[Cut, Pieces], BufferLayout] = LayoutStore()
"""By what cut the message as well: the same pieces may be those of contents at other places."""
_configs: LayoutStore[bytes, bool] = LayoutStore()
"""Each `config` that requests had: those with the same one again have layouts."""
_attempts: ProofAttempts[_Key] = ProofAttempts()


def recall(body: Buffer, form: BufferForm) -> BufferLayout | None:
    """The layout of `body`, if it is known."""
    if type(body) is not bytes:
        return None
    for _, cut in _cuts.get((form, len(body), body[:BEGINNING]), ()):
        layout = _layouts.get((cut, cut(body)))
        if layout is not None:
            return layout
    return None


def remember(
    body: Buffer,
    form: BufferForm,
    tensors: tuple[Tensor, ...],
    outputs: tuple[RequestedOutput, ...] = (),
    parameters: Parameters = NO_PARAMETERS,
    config: bytes = b"",
) -> BufferLayout | None:
    """Remember the layout of `body`, from which all this was read, if its bytes are accounted for.

    Returns:
        The layout, if it is remembered.
    """
    if config and config not in _configs:
        # It may be another one in each request: accounting for them takes longer than reading them.
        if len(config) <= LONGEST:
            _configs.remember(config, True)
        return None
    if type(body) is not bytes or not tensors or any(each.datatype is Datatype.BYTES for each in tensors):
        return None
    key = form, len(body), body[:BEGINNING]
    places = contents_if_proven(body, form) if _attempts.is_due(key) else None
    if places is None:
        return None
    _attempts.succeeded(key)
    layout = BufferLayout(
        form,
        tuple([(each.name, each.datatype, each.shape, *place) for each, place in zip(tensors, places, strict=True)]),
        outputs,
        parameters,
        len(config),
    )
    cut = next((cut for known, cut in _cuts.get(key, ()) if known == places), None)
    if cut is None:
        cut = _cut_at(places)
        _cuts.remember_alike(key, (places, cut))
    _layouts.remember((cut, cut(body)), layout)
    return layout


def _cut_at(places: list[tuple[int, int]]) -> Cut:
    """What takes the pieces around these places from a message."""
    at, pieces = 0, []
    for begin, end in sorted(places):
        pieces.append(slice(at, begin))
        at = end
    return itemgetter(*pieces, slice(at, None))
