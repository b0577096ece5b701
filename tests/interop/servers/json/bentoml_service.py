"""A BentoML service with a method for each kind of body. `bentoml serve bentoml_service:Numbers`."""

from __future__ import annotations

import bentoml
import numpy as np


@bentoml.service
class Numbers:
    @bentoml.api
    def double(self, x: np.ndarray) -> np.ndarray:
        return 2 * x

    @bentoml.api
    def weigh(self, values: list[float], weight: float = 1.0) -> list[float]:
        return [weight * each for each in values]

    @bentoml.api
    def total(self, values: list[float]) -> float:
        return sum(values)

    @bentoml.api
    def shout(self, text: str) -> str:
        return text.upper()

    @bentoml.api
    def fail(self, x: np.ndarray) -> np.ndarray:
        raise RuntimeError("boom")
