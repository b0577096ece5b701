"""`identity` returns every input as the output of the same name, with any datatype and shape.

Its Signature is empty, so it accepts any tensors. For one-point protocols, the Signature is `x` FP64 `[-1, 2]`.
"""

from gateway.core.operations import Operation
from gateway.core.tensors import Tensor
from gateway.reference.declaration import specs
from gateway.reference.model import Arguments, Config, Outputs, build


def _echo(arguments: Arguments, config: Config) -> Outputs:
    # drop the input's parameters, which concern only the request
    return tuple(
        Tensor(item.name, item.datatype, item.shape, item.data, item.content_type)
        for item in arguments
        if isinstance(item, Tensor)
    )


_POINT = specs([("x", "FP64", [-1, 2])], "tensor")

identity = build("identity", {Operation.INFER: _echo}, points=(_POINT, _POINT))
