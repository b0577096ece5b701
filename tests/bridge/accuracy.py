"""The errors of estimated derivatives on `posterior`: `python -m tests.bridge.accuracy` prints the table of
docs/derivatives.md."""

import asyncio
from typing import Any

import numpy as np

from gateway.bridge.settings import Derivatives, RouteSettings
from gateway.core.operations import Operation
from tests.bridge.fakes import TENSORS, bridge, call, infer, named
from tests.bridge.test_estimates import backend_of, curvature, slope
from tests.bridge.values import THETA

METHODS: tuple[tuple[Any, Any], ...] = (("forward", 1), ("forward", 2), ("central", 2), ("central", 4))
X, SENS, VEC = named("x", [THETA]), named("sens", [[1.0]]), named("vec", [[1.0, 3.0]])
CASES = {
    Operation.GRADIENT: ((X, SENS), slope(*THETA)),
    Operation.APPLY_JACOBIAN: ((X, VEC), np.array([slope(*THETA) @ [1, 3]])),
    Operation.APPLY_HESSIAN: ((X, SENS, VEC), curvature(*THETA) @ [1, 3]),
}


async def error_of(method: Any, order: Any, operation: Operation) -> float:
    """The largest error in proportion to the largest element."""
    settings = RouteSettings(derivatives=Derivatives(method, order))
    handler = bridge(TENSORS, TENSORS, backend_of(TENSORS), settings).companion(operation)
    inputs, exact = CASES[operation]
    response = await call(handler, infer(*inputs, model=f"m.{operation.value}"))
    found = response.outputs[0].array[0]
    return float(np.abs(found - exact).max() / np.abs(exact).max())


async def table() -> list[tuple[str, int, list[float]]]:
    """Method, order, and the errors of the three derivatives."""
    return [(method, order, [await error_of(method, order, each) for each in CASES]) for method, order in METHODS]


if __name__ == "__main__":
    for method, order, errors in asyncio.run(table()):
        print(f"| `{method}` | {order} | {' | '.join(f'{each:.0e}' for each in errors)} |")
