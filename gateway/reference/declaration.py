"""The decorator `@signature`, which declares the names, datatypes and shapes of a callable's inputs and outputs, and
checks the declaration immediately."""

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias, TypeVar

from gateway.core.datatypes import DATATYPES, Datatype, meant_by
from gateway.core.frozen import frozen
from gateway.core.models import TensorSpec
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.tensors import MAX_RANK
from gateway.reference.model import Specs

Row: TypeAlias = tuple[str, str, Sequence[int]]
"""The name, datatype and shape of a tensor, such as `("theta", "FP64", [-1, 2])`."""

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__gateway_signature__"


@frozen
class Declaration:
    """The declaration that `@signature` attaches to a callable.

    `derivatives` contains the callable of each derivative. `workers` is the maximum number of concurrent calls."""

    inputs: Specs = ()
    outputs: Specs = ()
    derivatives: tuple[tuple[Operation, Callable[..., Any]], ...] = ()
    workers: int = 1


UNDECLARED = Declaration()


def signature(
    *,
    inputs: Iterable[Row],
    outputs: Iterable[Row],
    gradient: Callable[..., Any] | None = None,
    apply_jacobian: Callable[..., Any] | None = None,
    apply_hessian: Callable[..., Any] | None = None,
    workers: int = 1,
) -> Callable[[F], F]:
    """Declare the inputs and outputs of a callable, and return the callable itself.

    Each row is a name, a datatype and a shape, in which -1 is a free dimension. For example, `("theta", "FP64", [-1,
    2])` is a batch of rows with two elements each. The callable receives one array per input, in order, and returns one
    array per output: an array, or a tuple of arrays. A parameter named `config` receives UM-Bridge's config, a dict.

    For input i `[B, n_i]` and output o `[B, m_o]`, the derivatives have these parameters and results:

    - `gradient(*inputs, out_wrt, in_wrt, sens)` takes `sens` `[B, m_out_wrt]`, and returns `[B, n_in_wrt]`;
    - `apply_jacobian(*inputs, out_wrt, in_wrt, vec)` takes `vec` `[B, n_in_wrt]`, and returns `[B, m_out_wrt]`;
    - `apply_hessian(*inputs, out_wrt, in_wrt1, in_wrt2, sens, vec)` takes `sens` `[B, m_out_wrt]` and `vec`
      `[B, n_in_wrt2]`, and returns `[B, n_in_wrt1]`.

    In these functions, `sens`, `vec` and the results are FP64, and positions are zero-based ints.

    `workers` is the maximum number of concurrent calls, each in its own thread. Keep the default 1 for models that are
    not thread-safe. Coroutine functions run on the event loop, without a limit.

    Raises:
        ValueError: a datatype is unknown, a name is repeated or reserved, a shape is invalid, inputs or outputs are
            missing, or `workers` is below 1.
    """
    pairs = zip(DERIVATIVES, (gradient, apply_jacobian, apply_hessian), strict=True)
    derivatives = tuple((operation, function) for operation, function in pairs if function is not None)
    declared = Declaration(specs(inputs, "input"), specs(outputs, "output"), derivatives, workers)
    _refuse_reserved_names(declared)
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more")

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def declaration(function: Callable[..., Any]) -> Declaration:
    """Return the declaration of `function`, or UNDECLARED if it has no decorator."""
    found = getattr(function, _ATTRIBUTE, UNDECLARED)
    assert isinstance(found, Declaration)
    return found


def specs(rows: Iterable[Row], what: str) -> Specs:
    """Return the TensorSpecs of `rows`. Raises ValueError if a row is invalid; the message names the row."""
    found = tuple(_spec(row, what) for row in rows)
    if not found:
        raise ValueError(f"a signature needs at least one {what}")
    names = [spec.name for spec in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{what} {twice!r} is declared twice")
    return found


def _spec(row: Row, what: str) -> TensorSpec:
    try:
        name, datatype, shape = row
    except (TypeError, ValueError) as error:
        raise ValueError(f'{what} {row!r}: expected name, datatype and shape, as ("x", "FP64", [-1, 2])') from error
    if not (isinstance(name, str) and name):
        raise ValueError(f"{what} {row!r}: the name is {name!r}, expected text")
    return TensorSpec(name, _datatype(datatype, f"{what} {name!r}"), _shape(shape, f"{what} {name!r}"))


def _datatype(name: str, where: str) -> Datatype:
    found = DATATYPES.get(name)
    if found is None:
        meant = meant_by(str(name))
        near = [meant.value] if meant else get_close_matches(str(name).upper(), DATATYPES, 1)
        expected = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(DATATYPES)}"
        raise ValueError(f"{where}: no datatype {name!r}; {expected}")
    return found


def _shape(shape: Sequence[int], where: str) -> tuple[int, ...]:
    is_shape = isinstance(shape, list | tuple) and all(type(size) is int and size >= -1 for size in shape)
    if not is_shape or len(shape) > MAX_RANK:
        raise ValueError(f"{where}: the shape is {shape!r}; expected at most {MAX_RANK} sizes, -1 for a free one")
    return tuple(shape)


def _refuse_reserved_names(declared: Declaration) -> None:
    names = {spec.name for spec in declared.inputs}
    for operation, _ in declared.derivatives:
        taken = names.intersection(DERIVATIVES[operation])
        if taken:
            raise ValueError(f"input {min(taken)!r} has the name of a tensor of {operation.value}; choose another")
