"""Complete the copies from protocols that do not send all tensor metadata with a model's names, datatypes and shapes.
UM-Bridge and V1 send numbers without a datatype; UM-Bridge, GraphPipe and MIP send inputs without names; UM-Bridge
sends rows without a batch dimension. No I/O.

As a result, receivers get a model's tensors in the same format for every client protocol. If the model's tensors are
unknown, or do not match, the copy stays unchanged.
"""

from collections.abc import Sequence

import numpy as np

from gateway.core.casting import cast
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.models import TensorSpec
from gateway.observing.payload_log.copies import (
    HIDDEN,
    NAME_UNKNOWN,
    CopiedMessage,
    CopiedTensor,
    CopyBounds,
    OtherNames,
)


@frozen
class KnownTensors:
    """A model's tensors with the clients' names; empty if the tensors are unknown. `positions` contains the names of
    inputs by position, including inputs that were sent with a name."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    positions: tuple[str, ...] = ()


def says_less(message: CopiedMessage) -> bool:
    """Return True if the protocol of a message did not send the name or the datatype of each tensor."""
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
