"""Copies of the content of requests and responses, for use after the call has ended. The copies are limited in size,
and contain no hidden values. No I/O.

The data is copied because it can be a view of a large message. If a tensor's data exceeds the limit, the copy contains
only the tensor's name, datatype and shape.

Some protocols do not send all tensor metadata: UM-Bridge and V1 send numbers without a datatype; UM-Bridge, GraphPipe
and MIP send inputs without names; UM-Bridge sends rows without a batch dimension. `fitted_request` and `fitted_reply`
add the model's names, datatypes and shapes to copies from these protocols. As a result, receivers get a model's tensors
in the same format for every client protocol. If the model's tensors are unknown, or do not match, the copy stays
unchanged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from gateway.core.casting import cast
from gateway.core.datatypes import BYTES, Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import field, frozen, replace
from gateway.core.models import TensorSpec
from gateway.core.requests import RequestedOutput
from gateway.core.tensors import Parameters, ParameterValue, Shape, Tensor

MOST_HEADS = 64 * 2**10
"""Maximum number of bytes of tensor names, shapes and parameter names that the copy of one message contains. The rest
is only counted."""
_HEAD = 32
"""Approximate bytes of a tensor or a parameter in addition to its name, shape and data."""

HIDDEN, TOO_LARGE, NAME_UNKNOWN = "hidden", "too large", "hidden, its name is unknown"
"""The reasons for leaving out a value."""


@frozen
class CopyBounds:
    """The limits of one copy: at most `max_bytes` of data and parameters, and no tensor or parameter whose name matches
    a glob in `hide`."""

    max_bytes: int
    hide: tuple[str, ...] = ()

    def hides(self, *names: str) -> bool:
        """Return True if the tensor or parameter with these names (its own name and any alternative names) must stay
        hidden."""
        return any(fnmatchcase(name, glob) for glob in self.hide for name in names)


class CopiedTensor(Struct, frozen=True):
    """A tensor's metadata, and either its `data` or the reason for omitting the data, `left_out`. `size` is the size of
    the data in bytes. `untyped` is the same as in Tensor."""

    name: str
    datatype: Datatype
    shape: Shape
    data: bytes | None
    size: int
    left_out: str = ""
    parameters: Parameters = field(default_factory=dict)
    untyped: bool = False


class CopiedMessage(Struct, frozen=True):
    """A copy of a request or a response.

    - `left_out`: the omitted parameters, including tensor parameters, with the reasons.
    - `uncounted`: the number of tensors, parameters and requested outputs that are missing because of MOST_HEADS.
    - `held`: the approximate size of the copy, in bytes.
    """

    tensors: tuple[CopiedTensor, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    requested: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    uncounted: int = 0
    held: int = 0

    @property
    def is_complete(self) -> bool:
        """True if nothing was left out."""
        return not self.left_out and not self.uncounted and not any(each.left_out for each in self.tensors)

    @property
    def hides(self) -> bool:
        """True if anything was left out because it is hidden."""
        return HIDDEN in self.left_out.values() or any(each.left_out == HIDDEN for each in self.tensors)


OtherNames: TypeAlias = Callable[[str], str]
"""A function that maps the client's name of a tensor to the backend's name."""


def same_name(name: str) -> str:
    """Return `name` unchanged: the OtherNames of a route without renaming."""
    return name


def copied(
    tensors: Sequence[Tensor],
    parameters: Parameters,
    bounds: CopyBounds,
    requested: Iterable[RequestedOutput] = (),
    others: OtherNames = same_name,
) -> CopiedMessage:
    """Return a copy of a message with these tensors, parameters and requested outputs."""
    copying = _Copying(bounds, others)
    kept_parameters = copying.parameters(parameters, "")
    kept = tuple([each for tensor in tensors if (each := copying.tensor(tensor)) is not None])
    names = tuple([each.name for each in requested if copying.has_room_for_head(each.name)])
    return CopiedMessage(kept, kept_parameters, names, copying.left_out, copying.uncounted, copying.held)


class _Copying:
    """A copy of one message, while it is being created."""

    def __init__(self, bounds: CopyBounds, others: OtherNames) -> None:
        self._bounds = bounds
        self._others = others
        self._heads = MOST_HEADS
        self._data = bounds.max_bytes
        self.left_out: dict[str, str] = {}
        self.uncounted = 0

    @property
    def held(self) -> int:
        """The bytes of the copied data."""
        return MOST_HEADS - self._heads + self._bounds.max_bytes - self._data

    def has_room_for_head(self, name: str, rank: int = 0) -> bool:
        """Reserve the bytes for the metadata of a tensor or a parameter, and return True. If the bytes exceed the
        limit, count the tensor or parameter as omitted, and return False."""
        size = _HEAD + len(name) + 8 * rank
        if size > self._heads:
            self.uncounted += 1
            return False
        self._heads -= size
        return True

    def tensor(self, tensor: Tensor) -> CopiedTensor | None:
        """Return the copy of a tensor; None if its metadata exceeds the limit."""
        name, data = tensor.name, tensor.data
        if not self.has_room_for_head(name, len(tensor.shape)):
            return None
        size, why = memoryview(data).nbytes, ""
        if self._bounds.hides(name, self._others(name)):
            why = HIDDEN
        elif size > self._data:
            why = TOO_LARGE
        else:
            self._data -= size
        kept = None if why else bytes(data)
        parameters = self.parameters(tensor.parameters, f"{name}.") if tensor.parameters else {}
        return CopiedTensor(name, tensor.datatype, tensor.shape, kept, size, why, parameters, tensor.untyped)

    def parameters(self, given: Parameters, above: str) -> Parameters:
        """Return the parameters that are neither hidden nor too large. `above` is the prefix of their names in
        `left_out`."""
        kept: dict[str, ParameterValue] = {}
        for name, value in given.items():
            if not self.has_room_for_head(name):
                continue
            size = len(value) if isinstance(value, str) else 8
            if self._bounds.hides(name):
                self.left_out[above + name] = HIDDEN
            elif size > self._data:
                self.left_out[above + name] = TOO_LARGE
            else:
                self._data -= size
                kept[name] = value
        return kept


@frozen
class KnownTensors:
    """A model's tensors with the clients' names; empty if the tensors are unknown. `positions` contains the names of
    inputs by position, including inputs that were sent with a name."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    positions: tuple[str, ...] = ()


def says_less(message: CopiedMessage) -> bool:
    """Return True if the protocol of a message does not carry the name or the datatype of each tensor."""
    return any(not each.name or each.untyped for each in message.tensors)


def fitted_request(
    message: CopiedMessage, known: KnownTensors, bounds: CopyBounds, others: OtherNames
) -> CopiedMessage:
    """Return a request with the model's names, datatypes and shapes, for protocols that send less metadata than V2."""
    given = {each.name for each in message.tensors}
    message = named(message, [name for name in known.positions if name not in given], "input", bounds, others)
    return _fitted(message, known.inputs)


def fitted_reply(message: CopiedMessage, known: KnownTensors) -> CopiedMessage:
    """Return a response with the model's names, datatypes and shapes, for the same protocols."""
    return _fitted(message, known.outputs)


def named(
    message: CopiedMessage, names: Sequence[str], prefix: str, bounds: CopyBounds, others: OtherNames
) -> CopiedMessage:
    """Return `message` with a name for each unnamed tensor: the name at its position in `names`, if there are as many
    names as tensors, otherwise `prefix` and the tensor's number. If anything is hidden, tensors with unknown names are
    also hidden."""
    unnamed = sum(not each.name for each in message.tensors)
    is_known = len(names) == unnamed and not message.uncounted
    found = iter(names if is_known else ())
    tensors = []
    for at, each in enumerate(message.tensors):
        tensor = each
        if not tensor.name:
            tensor = replace(tensor, name=next(found, f"{prefix}{at}"))
            if bounds.hide and not is_known:
                tensor = replace(tensor, data=None, left_out=NAME_UNKNOWN)
            elif bounds.hides(tensor.name, others(tensor.name)):
                tensor = replace(tensor, data=None, left_out=HIDDEN)
        tensors.append(tensor)
    return replace(message, tensors=tuple(tensors)) if unnamed else message


def _fitted(message: CopiedMessage, specs: Sequence[TensorSpec]) -> CopiedMessage:
    by_name = {each.name: each for each in specs}
    tensors = [_as(each, by_name[each.name]) if each.name in by_name else each for each in message.tensors]
    return replace(message, tensors=tuple(tensors))


def _as(tensor: CopiedTensor, spec: TensorSpec) -> CopiedTensor:
    is_row = len(spec.shape) == len(tensor.shape) + 1 and spec.shape[0] == -1
    shape = (1, *tensor.shape) if is_row else tensor.shape
    if not tensor.untyped or tensor.data is None or BYTES in (tensor.datatype, spec.datatype):
        return replace(tensor, shape=shape)
    numbers = np.frombuffer(tensor.data, tensor.datatype.dtype)
    try:
        data = cast(numbers, spec.datatype, tensor.name).tobytes()
    except DecodeError:  # the call failed for the same reason
        return replace(tensor, shape=shape)
    return replace(tensor, shape=shape, datatype=spec.datatype, data=data, size=len(data), untyped=False)
