"""The models of the real servers, as plain formulas: each server computes with them, and so do the tests.

It runs inside the peers' environments too, so it imports nothing but the standard library. Derivatives are exact, and
written down rather than derived, to be independent of everything that is tested with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Vector = list[float]
Matrix = list[Vector]


@dataclass(frozen=True)
class Function:
    """A smooth function of several vectors, in UM-Bridge's terms.

    The formulas are those of the concatenated inputs and outputs: `jacobian` has a row per output component, and
    `hessian` a matrix per output component.
    """

    input_sizes: Sequence[int]
    output_sizes: Sequence[int]
    value: Callable[[Vector], Vector]
    jacobian: Callable[[Vector], Matrix]
    hessian: Callable[[Vector], list[Matrix]]

    def evaluate(self, inputs: Sequence[Vector]) -> list[Vector]:
        flat = self.value(_concatenate(inputs))
        return [flat[_part(self.output_sizes, index)] for index in range(len(self.output_sizes))]

    def gradient(self, out_wrt: int, in_wrt: int, inputs: Sequence[Vector], sens: Vector) -> Vector:
        block = self._block(out_wrt, in_wrt, inputs)
        return [_dot(sens, column) for column in zip(*block, strict=True)]

    def apply_jacobian(self, out_wrt: int, in_wrt: int, inputs: Sequence[Vector], vec: Vector) -> Vector:
        return [_dot(row, vec) for row in self._block(out_wrt, in_wrt, inputs)]

    def apply_hessian(
        self, out_wrt: int, in_wrt1: int, in_wrt2: int, inputs: Sequence[Vector], sens: Vector, vec: Vector
    ) -> Vector:
        """As long as input `in_wrt1`; `vec` is as long as input `in_wrt2`."""
        rows, columns = _part(self.input_sizes, in_wrt1), _part(self.input_sizes, in_wrt2)
        matrices = self.hessian(_concatenate(inputs))[_part(self.output_sizes, out_wrt)]
        products = [[_dot(row[columns], vec) for row in matrix[rows]] for matrix in matrices]
        return [_dot(sens, column) for column in zip(*products, strict=True)]

    def _block(self, out_wrt: int, in_wrt: int, inputs: Sequence[Vector]) -> Matrix:
        columns = _part(self.input_sizes, in_wrt)
        rows = self.jacobian(_concatenate(inputs))[_part(self.output_sizes, out_wrt)]
        return [row[columns] for row in rows]


def _concatenate(vectors: Sequence[Vector]) -> Vector:
    return [float(number) for vector in vectors for number in vector]


def _part(sizes: Sequence[int], index: int) -> slice:
    start = sum(sizes[:index])
    return slice(start, start + sizes[index])


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _posterior(theta: Vector) -> Vector:
    """A banana-shaped log-density with the values that upset JSON: -inf beyond the prior's support (|a| > 100),
    nan where a solver would diverge (b > 100), inf where it would overflow (b < -100)."""
    a, b = theta
    if abs(a) > 100:
        return [-math.inf]
    if abs(b) > 100:
        return [math.nan if b > 0 else math.inf]
    return [-0.5 * (1 - a) ** 2 - 5 * (b - a * a) ** 2]


POSTERIOR = Function(
    input_sizes=(2,),
    output_sizes=(1,),
    value=_posterior,
    jacobian=lambda z: [[1 - z[0] + 20 * z[0] * (z[1] - z[0] ** 2), -10 * (z[1] - z[0] ** 2)]],
    hessian=lambda z: [[[-1 + 20 * z[1] - 60 * z[0] ** 2, 20 * z[0]], [20 * z[0], -10.0]]],
)

DOUBLE = Function(
    input_sizes=(3,),
    output_sizes=(3,),
    value=lambda z: [2 * number for number in z],
    jacobian=lambda z: [[2.0 * (row == column) for column in range(3)] for row in range(3)],
    hessian=lambda z: [[[0.0] * 3] * 3] * 3,
)


def _two_hessian(z: Vector) -> list[Matrix]:
    hessians = [[[0.0] * 5 for _ in range(5)] for _ in range(3)]
    second = {
        (0, 0, 3): 1.0,
        (0, 1, 1): -math.sin(z[1]),
        (1, 2, 2): 2 * z[4],
        (1, 2, 4): 2 * z[2],
        (2, 0, 0): math.exp(z[0]) * z[4],
        (2, 0, 4): math.exp(z[0]),
        (2, 1, 2): 1.0,
    }
    for (output, row, column), number in second.items():
        hessians[output][row][column] = hessians[output][column][row] = number
    return hessians


# Sizes [3, 2] -> [2, 1]; no two of them alike where a mistaken index could hide.
TWO = Function(
    input_sizes=(3, 2),
    output_sizes=(2, 1),
    value=lambda z: [z[0] * z[3] + math.sin(z[1]), z[2] ** 2 * z[4], math.exp(z[0]) * z[4] + z[1] * z[2]],
    jacobian=lambda z: [
        [z[3], math.cos(z[1]), 0.0, z[0], 0.0],
        [0.0, 0.0, 2 * z[2] * z[4], 0.0, z[2] ** 2],
        [math.exp(z[0]) * z[4], z[2], z[1], 0.0, math.exp(z[0])],
    ],
    hessian=_two_hessian,
)
