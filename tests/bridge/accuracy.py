"""The errors of estimated derivatives on `posterior`: `python -m tests.bridge.accuracy` prints the table of
docs/derivatives.md."""

import asyncio
from typing import Any

import numpy as np

from gateway.bridge.settings import Derivatives, RouteSettings
from gateway.core.operations import Operation
from gateway.core.types import Request, Response, tensor
from tests.bridge.fakes import TENSORS, THETA, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.test_estimates import curvature, posterior, slope

METHODS: tuple[tuple[Any, Any], ...] = (
    ("forward", 1), ("forward", 2), ("central", 2), ("central", 4), ("complex", 2), ("complex", 4),
)  # fmt: skip
X, SENS, VEC = named("x", [THETA]), named("sens", [[1.0]]), named("vec", [[1.0, 3.0]])
CASES = {
    Operation.GRADIENT: ((X, SENS), slope(*THETA)),
    Operation.APPLY_JACOBIAN: ((X, VEC), np.array([slope(*THETA) @ [1, 3]])),
    Operation.APPLY_HESSIAN: ((X, SENS, VEC), curvature(*THETA) @ [1, 3]),
}


def evaluated(request: Request) -> Response:
    """`posterior` in complex form, or without it."""
    given = {each.name: each.array for each in request.inputs}
    x = given["x"] if "x_imag" not in given else given["x"] + 1j * given["x_imag"]
    found = posterior(x)
    parts = {"y": tensor("y", np.real(found).copy()), "y_imag": tensor("y_imag", np.imag(found).copy())}
    return Response(tuple(parts[each.name] for each in request.outputs))


async def error_of(method: Any, order: Any, operation: Operation) -> float:
    """The largest error in proportion to the largest element."""
    names = ("x", "x_imag") if method == "complex" else ("x",)
    results = ("y", "y_imag") if method == "complex" else ("y",)
    known = signature(*(spec(name, -1, 2) for name in names), gives=tuple(spec(name, -1, 1) for name in results))
    settings = RouteSettings(derivatives=Derivatives(method, order))
    handler = bridge(TENSORS, TENSORS, Backend({"m": known}, evaluated), settings).companion(operation)
    inputs, exact = CASES[operation]
    response = await call(handler, infer(*inputs, model=f"m.{operation.value}"))
    found = response.outputs[0].array[0]
    return float(np.abs(found - exact).max() / np.abs(exact).max())


async def table() -> list[tuple[str, int, list[float]]]:
    """Method, order, and the errors of the three derivatives."""
    return [(method, order, [await error_of(method, order, each) for each in CASES]) for method, order in METHODS]


def shown(error: float) -> str:
    """An error as the table has it."""
    return "0" if error == 0 else f"{error:.0e}"


if __name__ == "__main__":
    for method, order, errors in asyncio.run(table()):
        print(f"| `{method}` | {order} | {' | '.join(map(shown, errors))} |")
