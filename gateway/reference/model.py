"""The Model class of sample servers: a name, a Signature, and a function for each operation."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import GatewayError, Reason, refusal, unsupported, without_traceback
from gateway.core.frozen import frozen
from gateway.core.models import Signature, TensorSpec, is_batch
from gateway.core.operations import COMPANION_OUTPUT, Operation
from gateway.core.tensors import Tensor, tensor

VERSION = "1"
PLATFORM = "gateway_python"

Config: TypeAlias = Mapping[str, Any]
Specs: TypeAlias = tuple[TensorSpec, ...]

Argument: TypeAlias = Tensor | int
"""An input, or a position argument of a derivative (`out_wrt`, `in_wrt`, ...)."""

Arguments: TypeAlias = tuple[Argument, ...]
Outputs: TypeAlias = tuple[Tensor, ...]

Function: TypeAlias = Callable[[Arguments, Config], Outputs | Awaitable[Outputs]]
"""A function that computes one operation.

The arguments, which have been checked against the Signature, are the inputs in the Signature's order, followed by the
tensors that DERIVATIVES lists for the operation. The function raises GatewayError for values that it rejects. Any other
exception becomes a model error."""

Stream: TypeAlias = Callable[[Arguments, Config], AsyncGenerator[Outputs, None]]
"""A function like Function that computes any number of responses to one request."""

DERIVATIVE_OUTPUTS = (TensorSpec(COMPANION_OUTPUT, Datatype.FP64, (-1, -1)),)


@frozen
class Model:
    """A model of a sample server.

    - `signature`: The Signature for tensor protocols. Empty inputs mean that the model accepts any tensors.
    - `points`: The Signature for one-point protocols (UM-Bridge), with every size fixed; None if these protocols cannot
      serve the model.
    - `configurable`: True if the model accepts the request parameter `config`.
    - `stream`: A function that yields any number of responses. If set, the function for `infer` rejects requests.
    """

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
    """Return a Model whose Signature lists the operations in `functions`.

    If `stream` is set, the Signature also lists `stream`, and the model rejects `infer`.

    `points` contains the inputs and outputs for one-point protocols. You can omit it if every size in `inputs` and
    `outputs` is fixed."""
    operations = frozenset(functions)
    if stream is not None:
        operations |= {Operation.STREAM}
        functions = {**functions, Operation.INFER: _refuse_unary(name)}
    signature = Signature(inputs, outputs, operations, name, (VERSION,), PLATFORM)
    if points is None and is_fixed(inputs) and is_fixed(outputs):
        points = inputs, outputs
    point_signature = points and Signature(*points, signature.operations, name, (VERSION,), PLATFORM)
    return Model(name, functions, signature, point_signature, configurable, stream)


def _refuse_unary(name: str) -> Function:
    # Triton rejects ModelInfer for a decoupled model in the same way
    def refuse(arguments: Arguments, config: Config) -> Outputs:
        raise unsupported(f"model {name!r} streams its responses; ask for a stream of them")

    return refuse


def is_fixed(specs: Specs) -> bool:
    """Return True if each tensor is numeric and has a fixed number of elements in each row."""
    return bool(specs) and all(spec.datatype in NUMBERS and -1 not in row(spec.shape) for spec in specs)


def row(shape: Sequence[int]) -> Sequence[int]:
    """Return the shape of one row of a batch, or `shape` itself if it is not a batch."""
    return shape[1:] if is_batch(shape) else shape


def describe(datatype: Datatype, shape: Sequence[int]) -> str:
    """Return a datatype and shape as text for error messages, such as `FP64 [-1,2]`."""
    return f"{datatype} [{','.join(map(str, shape))}]"


def on_arrays(function: Callable[..., Any], outputs: Specs, *, configurable: bool = False) -> Function:
    """Return a Function that calls `function`, which takes an array for each input and returns an array, or a tuple
    with an array for each output.

    The arrays are read-only views of the request's data. A `configurable` function receives the keyword argument
    `config`.
    """

    def call(arguments: Arguments, config: Config) -> Outputs:
        arrays = [item if isinstance(item, int) else item.array for item in arguments]
        results: np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], ...]
        results = function(*arrays, config=config) if configurable else function(*arrays)
        arrays_out = results if isinstance(results, tuple) else (results,)
        return tuple(tensor(spec.name, array, spec.datatype) for spec, array in zip(outputs, arrays_out, strict=True))

    return call


log = logging.getLogger(__name__)


def model_error(name: str, error: BaseException) -> GatewayError:
    """Return the client error for an exception that model `name` raised, with a message such as `ValueError: message`.
    The traceback goes to the log.

    A MemoryError becomes RESOURCE_EXHAUSTED (overloaded), which MIP encodes as ERROR_MEMORY."""
    log.error("model %r failed", name, exc_info=error)
    message = without_traceback(str(error))
    reason = Reason.OVERLOADED if isinstance(error, MemoryError) else Reason.MODEL_ERROR
    return refusal(reason, f"{type(error).__name__}: {message}" if message else type(error).__name__)
