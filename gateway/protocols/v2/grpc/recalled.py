"""Inference messages like one that came before: equal to it in all but the contents of tensors.

Clients and servers send the same names, datatypes and shapes again and again. The first such message is parsed and
checked, and written again: if that gives the same bytes, they say what was read and nothing else. Then its layout is
remembered: the bytes around the raw contents, and what they say. The next message with these bytes at these places
needs no parsing, and can go on as it came.

Only raw contents of numbers are left out of the comparison, of which any bytes are valid. So messages with BYTES or
BOOL, whose contents must be looked at, and with an id or parameters, which differ from message to message, have none.
"""

from collections.abc import Sequence

from gateway.core.datatypes import Datatype
from gateway.core.frozen import frozen
from gateway.core.original import Original
from gateway.core.types import Buffer, Message, Parameters, Request, Response, Shape, Tensor
from gateway.protocols.v2.grpc.tensors import InferenceHead, MessageKind, write_inference

_LARGEST = 2**17
"""Bytes of a message up to which copies of the contents cost less than views of them."""
_LONGEST = 1024
"""Bytes of what comes before the first contents, that are remembered."""
_BEGINNING = 16
"""Bytes at the beginning of a message, most of them the model's name, that tell layouts of the same size apart."""
_MOST = 256
"""Kinds of layouts, of one size and beginning each, that are remembered."""
_ALIKE = 4
"""Layouts of one kind that are remembered, such as those of models whose long names begin alike."""


@frozen
class MessageLayout:
    """What messages of one size say and where, all but their contents.

    - `start`: the bytes before the first contents; `between`: those before each further one, with their places.
    - `tensors`: name, datatype, shape, and where the contents begin and end.
    """

    kind: MessageKind
    start: bytes
    between: tuple[tuple[int, bytes], ...]
    head: InferenceHead
    tensors: tuple[tuple[str, Datatype, Shape, int, int], ...]

    def read(self, body: bytes) -> tuple[Tensor, ...]:
        """The tensors in a message of this layout."""
        return tuple([Tensor(name, datatype, shape, body[at:end]) for name, datatype, shape, at, end in self.tensors])

    def original(self, message: Message, tensors: tuple[Tensor, ...], parameters: Parameters) -> Original:
        """That of what was read from `message`, which is of this layout."""
        head = self.head
        return Original(self.kind, message.parts, tensors, head.outputs, parameters, None, head.model, head.version)


_layouts: dict[tuple[str, int, bytes], tuple[MessageLayout, ...]] = {}


def recall(body: Buffer, kind: MessageKind) -> MessageLayout | None:
    """The layout of `body`, if it is known."""
    if type(body) is not bytes:
        return None
    for layout in _layouts.get((kind.role, len(body), body[:_BEGINNING]), ()):
        if not body.startswith(layout.start):
            continue
        for place, text in layout.between:
            if not body.startswith(text, place):
                break
        else:
            return layout
    return None


def remember(body: Buffer, kind: MessageKind, head: InferenceHead, tensors: Sequence[Tensor]) -> None:
    """Remember the layout of `body`, from which `head` and `tensors` were read, if it is as the gateway writes it."""
    if type(body) is not bytes or len(body) > _LARGEST or head.id or head.parameters or not tensors:
        return
    for each in tensors:
        if each.parameters or not each.data or each.datatype is Datatype.BYTES or each.datatype is Datatype.BOOL:
            return
    if any(each.parameters for each in head.outputs):
        return
    parts = write_inference(head, kind, tensors)
    # for each tensor the bytes before its contents, and these
    if not _BEGINNING <= len(parts[0]) <= _LONGEST or b"".join(parts) != body:
        return
    found, between, place = [], [], 0
    for tensor, before, data in zip(tensors, parts[::2], parts[1::2], strict=True):
        if place:
            between.append((place, bytes(before)))
        start, place = place + len(before), place + len(before) + len(data)
        found.append((tensor.name, tensor.datatype, tensor.shape, start, place))
    if len(_layouts) >= _MOST:
        _layouts.clear()
    layout = MessageLayout(kind, bytes(parts[0]), tuple(between), head, tuple(found))
    key = kind.role, len(body), body[:_BEGINNING]
    # It is none of those that are known: `recall` has not found it.
    _layouts[key] = (layout, *_layouts.get(key, ())[: _ALIKE - 1])


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
        or request.id
        or original.model != (request.model or response.model)
        or original.version != (request.version or response.version)
        or not original.is_of_response(response)
    ):
        return None
    return original
