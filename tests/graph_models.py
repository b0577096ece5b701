"""The models of an inverse problem, as reference servers serve them: a forward model, a prior and a likelihood, each
with its derivatives; and their composition, written in Python."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from gateway.reference import signature

A = np.array([[1.0, 2.0], [3.0, -1.0]])
OBSERVED = np.array([0.1, 0.2])


def _heat(x: Any) -> Any:
    return np.sin(x @ A.T)


def _heat_gradient(x: Any, out_wrt: int, in_wrt: int, sens: Any) -> Any:
    return (sens * np.cos(x @ A.T)) @ A


def _heat_jacobian(x: Any, out_wrt: int, in_wrt: int, vec: Any) -> Any:
    return np.cos(x @ A.T) * (vec @ A.T)


def _heat_hessian(x: Any, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Any, vec: Any) -> Any:
    return (-sens * np.sin(x @ A.T) * (vec @ A.T)) @ A


@signature(
    inputs=[("x", "FP64", [-1, 2])],
    outputs=[("temperature", "FP64", [-1, 2])],
    gradient=_heat_gradient,
    apply_jacobian=_heat_jacobian,
    apply_hessian=_heat_hessian,
)
async def heat(x: Any) -> Any:
    """The temperature at two places."""
    return _heat(x)


@signature(
    inputs=[("x", "FP64", [-1, 2])],
    outputs=[("log", "FP64", [-1, 1])],
    gradient=lambda x, out_wrt, in_wrt, sens: -sens * x,
    apply_jacobian=lambda x, out_wrt, in_wrt, vec: -(x * vec).sum(1, keepdims=True),
    apply_hessian=lambda x, out_wrt, in_wrt1, in_wrt2, sens, vec: -sens * vec,
)
async def gauss(x: Any) -> Any:
    """The logarithm of a prior: -|x|^2 / 2."""
    return -(x * x).sum(1, keepdims=True) / 2


def _misfit_gradient(observed: Any, predicted: Any, out_wrt: int, in_wrt: int, sens: Any) -> Any:
    return sens * (predicted - observed) * (100 if in_wrt == 0 else -100)


def _misfit_jacobian(observed: Any, predicted: Any, out_wrt: int, in_wrt: int, vec: Any) -> Any:
    return ((predicted - observed) * vec).sum(1, keepdims=True) * (100 if in_wrt == 0 else -100)


def _misfit_hessian(
    observed: Any, predicted: Any, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Any, vec: Any
) -> Any:
    return sens * vec * (-100 if in_wrt1 == in_wrt2 else 100)


@signature(
    inputs=[("observed", "FP64", [-1, 2]), ("predicted", "FP64", [-1, 2])],
    outputs=[("log", "FP64", [-1, 1])],
    gradient=_misfit_gradient,
    apply_jacobian=_misfit_jacobian,
    apply_hessian=_misfit_hessian,
)
async def misfit(observed: Any, predicted: Any) -> Any:
    """The logarithm of a likelihood: -50 |predicted - observed|^2."""
    return -50 * ((predicted - observed) ** 2).sum(1, keepdims=True)


@signature(
    inputs=[("x", "FP64", [-1, 2])],
    outputs=[("y", "FP64", [-1, 1])],
    gradient=lambda x, out_wrt, in_wrt, sens: 3 * sens * x * x,
)
async def cubic(x: Any) -> Any:
    """The sum of x^3, with its gradient alone."""
    return (x**3).sum(1, keepdims=True)


def logdensity(x: Any) -> Any:
    """The composition, of rows of two parameters."""
    return -(x * x).sum(1, keepdims=True) / 2 + -50 * ((_heat(x) - OBSERVED) ** 2).sum(1, keepdims=True)


def slope(x: Any) -> Any:
    """Its gradient."""
    return -x - 100 * ((_heat(x) - OBSERVED) * np.cos(x @ A.T)) @ A


WORDS = {b"cat": 1, b"dog": 2}


@signature(inputs=[("text", "BYTES", [-1, 1])], outputs=[("ids", "INT64", [-1, 3])])
async def tokenize(text: Any) -> Any:
    """The numbers of up to three words, 0 for those that it does not know."""
    rows = [[WORDS.get(word, 0) for word in line.split()[:3]] for [line] in text]
    return np.array([[*row, *[0] * (3 - len(row))] for row in rows], np.int64)


@signature(inputs=[("ids", "INT64", [-1, 3])], outputs=[("label", "BYTES", [-1, 1]), ("sure", "FP32", [-1, 1])])
async def classify(ids: Any) -> Any:
    """What a text is about."""
    counts = np.stack([(ids == each).sum(1) for each in (0, 1, 2)], 1)[:, 1:]
    labels = np.array([[[b"cats", b"dogs"][at]] for at in counts.argmax(1)], object)
    return labels, (counts.max(1, keepdims=True) / np.maximum(counts.sum(1, keepdims=True), 1)).astype(np.float32)


@signature(inputs=[("x", "FP64", [-1, 1])], outputs=[("t", "FP64", [1])])
async def counting(x: Any) -> AsyncIterator[Any]:
    """Streams the three numbers from x on."""
    for at in range(3):
        yield x[0] + at


class Gate:
    """What a test lets go, and what it waits for."""

    entered: asyncio.Event
    opened: asyncio.Event
    left: asyncio.Event


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
async def gated(x: Any) -> Any:
    """Waits until a test opens the gate."""
    Gate.entered.set()
    try:
        await Gate.opened.wait()
    finally:
        Gate.left.set()
    return x


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
async def failing(x: Any) -> Any:
    """Fails."""
    raise ValueError("the solver did not converge")
