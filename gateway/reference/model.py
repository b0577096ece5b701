"""A model as the reference backends serve it: a name, a Signature, and a function per operation."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import unsupported
from gateway.core.frozen import frozen
from gateway.core.operations import COMPANION_OUTPUT, Operation
from gateway.core.types import Signature, Tensor, TensorSpec, tensor

VERSION = "1"
PLATFORM = "gateway_python"

Config: TypeAlias = Mapping[str, Any]
Specs: TypeAlias = tuple[TensorSpec, ...]

Argument: TypeAlias = Tensor | int
"""An input, or the position that a derivative is taken by (`out_wrt`, `in_wrt`, ...)."""

Arguments: TypeAlias = tuple[Argument, ...]
Outputs: TypeAlias = tuple[Tensor, ...]

Function: TypeAlias = Callable[[Arguments, Config], Outputs | Awaitable[Outputs]]
"""Computes one operation. The arguments are the inputs in the order of the Signature, then what DERIVATIVES lists for
the operation; they fit the Signature. Raises GatewayError for values it refuses; any other exception is the model's
failure."""

Stream: TypeAlias = Callable[[Arguments, Config], AsyncGenerator[Outputs, None]]
"""Computes any number of responses to one request, as a Function does one."""

DERIVATIVE_OUTPUTS = (TensorSpec(COMPANION_OUTPUT, Datatype.FP64, (-1, -1)),)


@frozen
class Model:
    """`signature` is what tensor protocols are shown: empty inputs mean any tensors. `points` is what one-point
    protocols (UM-Bridge) are shown, where every size is a fixed number; None: it cannot be served there.
    `configurable`: it takes the request parameter `config`. With a `stream` it answers with any number of responses,
    and its function of `infer` refuses."""

    name: str
    functions: Mapping[Operation, Function]
    signature: Signature
    points: Signature | None = None
    configurable: bool = False
    stream: Stream | None = None


def build(
    name: str,
    functions: Mapping[Operation, Function],
    inputs: Specs = (),
    outputs: Specs = (),
    *,
    points: tuple[Specs, Specs] | None = None,
    configurable: bool = False,
    stream: Stream | None = None,
) -> Model:
    """A Model that claims the operations it has functions for. One that streams claims `stream` in place of `infer`,
    which it refuses.

    `points` are the inputs and outputs that one-point protocols are shown; not needed where every size in `inputs` and
    `outputs` is fixed.
    """
    operations = frozenset(functions)
    if stream is not None:
        operations |= {Operation.STREAM}
        functions = {**functions, Operation.INFER: _refuse_unary(name)}
    signature = Signature(inputs, outputs, operations, name, (VERSION,), PLATFORM)
    if points is None and is_fixed(inputs) and is_fixed(outputs):
        points = inputs, outputs
    shown = points and Signature(*points, signature.operations, name, (VERSION,), PLATFORM)
    return Model(name, functions, signature, shown, configurable, stream)


def _refuse_unary(name: str) -> Function:
    # as Triton refuses ModelInfer for a decoupled model
    def refuse(arguments: Arguments, config: Config) -> Outputs:
        raise unsupported(f"model {name!r} streams its responses; ask for a stream of them")

    return refuse


def is_batch(shape: Sequence[int]) -> bool:
    """Whether the first dimension counts rows: `[-1, n]` is a batch, `[-1]` one free dimension."""
    return len(shape) > 1 and shape[0] == -1


def is_fixed(specs: Specs) -> bool:
    """Whether each tensor holds numbers, as many in each row as the Signature says."""
    return bool(specs) and all(spec.datatype in NUMBERS and -1 not in row(spec.shape) for spec in specs)


def row(shape: Sequence[int]) -> Sequence[int]:
    """The shape of one row of a batch; that of the whole where there is no batch."""
    return shape[1:] if is_batch(shape) else shape


def describe(datatype: Datatype, shape: Sequence[int]) -> str:
    """`FP64 [-1,2]`, as errors print it."""
    return f"{datatype} [{','.join(map(str, shape))}]"


def on_arrays(function: Callable[..., Any], outputs: Specs, *, configurable: bool = False) -> Function:
    """A Function from one that takes an array per input and returns an array, or a tuple of one per output.

    The arrays are views on the request; `configurable` functions get the keyword `config`.
    """

    def call(arguments: Arguments, config: Config) -> Outputs:
        arrays = [item if isinstance(item, int) else item.array for item in arguments]
        results: np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], ...]
        results = function(*arrays, config=config) if configurable else function(*arrays)
        several = results if isinstance(results, tuple) else (results,)
        return tuple(tensor(spec.name, array, spec.datatype) for spec, array in zip(outputs, several, strict=True))

    return call
