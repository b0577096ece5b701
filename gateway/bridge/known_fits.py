"""Fits that were found before: tensors with the names, datatypes and shapes of earlier ones are fitted in the same way.

What fitting does depends on these alone, as long as it changes nothing but names, order and shapes. Such fits are
kept, and applied without being looked for again. Where elements are converted or checked one by one, where images are
decoded, tensors added or parameters involved, every request is fitted anew (`request`, `response`, `rows`).
"""

from collections.abc import Sequence
from typing import TypeAlias

from gateway.bridge.signature_cache import Key
from gateway.core.datatypes import Datatype
from gateway.core.frozen import copied, frozen, setter
from gateway.core.layouts import LONGEST
from gateway.core.operations import INFER
from gateway.core.types import Request, RequestedOutput, Response, Shape, Tensor

MOST_KEPT = 64
"""Fits of requests for one model: clients choose shapes."""
MOST_RESPONSES = 4
"""Fits of responses to the requests of one form."""

Form: TypeAlias = tuple[tuple[str, Datatype, Shape, str, bool], ...]
"""Of each tensor all that fitting looks at, but for its elements and parameters."""

_set_outgoing = setter(Request, "model", "version", "inputs", "outputs", "translate")


def form_of(tensors: Sequence[Tensor]) -> Form | None:
    """The form of `tensors`; None if one of them has parameters."""
    form = []
    for each in tensors:
        if each.parameters:
            return None
        form.append((each.name, each.datatype, each.shape, each.content_type, each.untyped))
    return tuple(form)


@frozen
class FittedPlace:
    """Where a fitted tensor has its data from: the position of the given tensor. The rest is known in advance."""

    at: int
    name: str
    datatype: Datatype
    shape: Shape
    content_type: str
    untyped: bool


def places(given: Sequence[Tensor], fitted: Sequence[Tensor]) -> tuple[FittedPlace, ...] | None:
    """How `fitted` was made of `given`; None if a tensor is not one of those given, with its very data and datatype."""
    at = {id(tensor.data): position for position, tensor in enumerate(given)}
    if len(at) < len(given):
        return None  # two share their data: nobody knows which of them is meant
    found = []
    for tensor in fitted:
        position = at.get(id(tensor.data))
        if position is None or tensor.datatype is not given[position].datatype or tensor.parameters:
            return None
        found.append(
            FittedPlace(position, tensor.name, tensor.datatype, tensor.shape, tensor.content_type, tensor.untyped)
        )
    return tuple(found)


def filled(found: Sequence[FittedPlace], given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors at these places, with the data of those given."""
    return tuple(
        [
            Tensor(each.name, each.datatype, each.shape, given[each.at].data, each.content_type, {}, each.untyped)
            for each in found
        ]
    )


class KnownFit:
    """How requests of one form are fitted, and the responses to them.

    - `rows`, `unbatched`: as a FittedRequest's.
    """

    __slots__ = ("_inputs", "_key", "_outputs", "_responses", "_settings", "rows", "unbatched")

    def __init__(
        self, inputs: tuple[FittedPlace, ...], key: Key, outgoing: Request, rows: int | None, *, unbatched: bool
    ) -> None:
        self._inputs = inputs
        self._key = key
        self._outputs: tuple[RequestedOutput, ...] = outgoing.outputs
        self._settings = outgoing.translate
        self._responses: dict[Form, tuple[FittedPlace, ...]] = {}
        self.rows = rows
        self.unbatched = unbatched

    def outgoing(self, request: Request) -> Request:
        """The request to the backend."""
        outgoing = copied(request)
        model, version, _ = self._key
        _set_outgoing(outgoing, model, version, filled(self._inputs, request.inputs), self._outputs, self._settings)
        return outgoing

    def outputs(self, response: Response) -> tuple[Tensor, ...] | None:
        """The outputs for the client; None if no response of this form was fitted before."""
        form = form_of(response.outputs)
        found = None if form is None else self._responses.get(form)
        return None if found is None else filled(found, response.outputs)

    def learn(self, response: Response, fitted: Sequence[Tensor]) -> None:
        """Keep how the outputs of a `response` were `fitted`, if others of this form can be fitted so."""
        form = form_of(response.outputs)
        if form is not None and not _is_long(form) and (found := places(response.outputs, fitted)) is not None:
            if len(self._responses) >= MOST_RESPONSES:
                del self._responses[next(iter(self._responses))]
            self._responses[form] = found


_Asked: TypeAlias = tuple[Key, tuple[str, ...], Form]


class KnownFits:
    """The known fits of requests for one model."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[_Asked, KnownFit] = {}

    def of(self, request: Request, key: Key) -> KnownFit | None:
        """How `request` is fitted; None if no request like it was fitted before."""
        asked = _asked(request, key) if self._kept else None
        return None if asked is None else self._kept.get(asked)

    def learn(self, request: Request, key: Key, outgoing: Request, rows: int | None, *, unbatched: bool) -> None:
        """Keep how `request` was fitted to be `outgoing`, if others like it can be fitted so."""
        asked = _asked(request, key)
        if asked is None or _is_long(asked[2], *key, *asked[1]):
            return
        found = places(request.inputs, outgoing.inputs)
        if found is None:
            return
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[asked] = KnownFit(found, key, outgoing, rows, unbatched=unbatched)


def _is_long(form: Form, *texts: str) -> bool:
    """Whether names, shapes and `texts` together are too long to be kept: clients choose names and configs."""
    return sum(len(name) + len(shape) for name, _, shape, *_ in form) + sum(map(len, texts)) > LONGEST


def _asked(request: Request, key: Key) -> _Asked | None:
    """What `request` is known by; None if it is fitted anew each time."""
    if request.schemaless or request.operation is not INFER:
        return None
    form = form_of(request.inputs)
    if form is None:
        return None
    outputs = request.outputs
    if not outputs:
        return key, (), form
    if any(output.parameters for output in outputs):
        return None
    return key, tuple([output.name for output in outputs]), form
