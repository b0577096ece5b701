"""Datatypes that a form or a server lacks, as one that holds all their values."""

from gateway.core.datatypes import GATEWAY_DATATYPE, Datatype
from gateway.core.frozen import replace
from gateway.core.types import Tensor
from gateway.core.types import tensor as make_tensor

HALVES = {Datatype.FP16: Datatype.FP32, Datatype.BF16: Datatype.FP32}
"""Those that some form or server lacks, and what holds all their values."""


def widened(tensor: Tensor, lacks: frozenset[Datatype]) -> Tensor:
    """`tensor` as the wider datatype, marked with the parameter `gateway_datatype`, if its own is among those that the
    reader lacks."""
    if tensor.datatype not in lacks:
        return tensor
    wide = make_tensor(tensor.name, tensor.array, HALVES[tensor.datatype])
    return replace(wide, parameters={**tensor.parameters, GATEWAY_DATATYPE: tensor.datatype.value})
