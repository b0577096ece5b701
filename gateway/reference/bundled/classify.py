"""`classify` maps `scores` FP32 `[-1, -1]`, one row of class scores (logits) per item, to `label` BYTES `[-1, 1]`,
`class_<index of the highest score>`, and `score` FP32 `[-1, 1]`, the softmax probability of that class.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import invalid_input
from gateway.core.operations import Operation
from gateway.reference.declaration import specs
from gateway.reference.model import build, on_arrays


def _classify(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if scores.shape[1] == 0:
        raise invalid_input("input 'scores' of model 'classify' has no classes; expected at least one column")
    if not np.isfinite(scores).all():
        raise invalid_input("input 'scores' of model 'classify' holds NaN or an infinity; expected finite scores")
    best = scores.argmax(axis=1)
    labels = np.array([f"class_{position}" for position in best.tolist()], object)
    return labels.reshape(-1, 1), _greatest_probability(scores)


def _greatest_probability(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the softmax of each row's highest score, computed in FP64, in which the difference of two FP32 numbers is
    always finite."""
    differences = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    total: NDArray[Any] = np.exp(differences).sum(axis=1, keepdims=True)
    return (1.0 / total).astype(np.float32)


_OUTPUTS = specs([("label", "BYTES", [-1, 1]), ("score", "FP32", [-1, 1])], "output")

classify = build(
    "classify",
    {Operation.INFER: on_arrays(_classify, _OUTPUTS)},
    specs([("scores", "FP32", [-1, -1])], "input"),
    _OUTPUTS,
)
