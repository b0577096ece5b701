"""`upper` maps `text` BYTES `[-1]`, which must be UTF-8, to `upper` BYTES `[-1]`, the text in uppercase (Unicode)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import invalid_input
from gateway.core.operations import Operation
from gateway.reference.declaration import specs
from gateway.reference.model import build, on_arrays


def _upper(texts: NDArray[Any]) -> NDArray[Any]:
    upper_case = np.empty(texts.shape, object)
    upper_case[:] = [_decode(text, at).upper() for at, text in enumerate(texts)]
    return upper_case


def _decode(text: bytes, at: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise invalid_input(f"input 'text' of model 'upper': element {at} is not UTF-8: {error.reason}") from error


_OUTPUTS = specs([("upper", "BYTES", [-1])], "output")

upper = build(
    "upper", {Operation.INFER: on_arrays(_upper, _OUTPUTS)}, specs([("text", "BYTES", [-1])], "input"), _OUTPUTS
)
