"""Generates random inputs for a model from its signature."""

import random
import string
from collections.abc import Iterable
from typing import Any

import numpy as np

from gateway.core.datatypes import Datatype, Kind
from gateway.core.models import TensorSpec
from gateway.core.tensors import Tensor, tensor

LARGEST_INTEGER = 9
LETTERS = 8
"""The length of each BYTES element."""


def random_inputs(specs: Iterable[TensorSpec], batch: int | None, seed: int) -> tuple[Tensor, ...]:
    """Return inputs with these names, datatypes and shapes. If the first dimension is -1, it becomes `batch` (1 if
    None); any other -1 becomes 1. Floats are from 0 to 1, integers from 0 to LARGEST_INTEGER, and BYTES are lower-case
    letters.

    Raises:
        ValueError: `batch` is set, but the first dimension of an input is not -1.
    """
    specs = tuple(specs)
    chance = np.random.default_rng(seed)
    for each in specs:
        if batch is not None and each.shape[:1] != (-1,):
            raise ValueError(f"input {each.name!r} has the shape {list(each.shape)}, without a -1 first for --batch")
    return tuple(_random_tensor(each, batch or 1, chance) for each in specs)


def _random_tensor(spec: TensorSpec, batch: int, chance: np.random.Generator) -> Tensor:
    shape = tuple((1 if place else batch) if size < 0 else size for place, size in enumerate(spec.shape))
    return tensor(spec.name, _values(spec.datatype, shape, chance), spec.datatype)


def _values(datatype: Datatype, shape: tuple[int, ...], chance: np.random.Generator) -> "np.ndarray[Any, Any]":
    if datatype.kind is Kind.BYTES:
        letters = random.Random(int(chance.integers(2**32)))
        texts = np.empty(shape, object)
        texts.reshape(-1)[:] = ["".join(letters.choices(string.ascii_lowercase, k=LETTERS)) for _ in range(texts.size)]
        return texts
    if datatype.kind is Kind.FLOAT:
        return chance.random(shape).astype(datatype.dtype)
    return chance.integers(2 if datatype.kind is Kind.BOOL else LARGEST_INTEGER + 1, size=shape).astype(datatype.dtype)
