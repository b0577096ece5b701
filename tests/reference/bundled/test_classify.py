"""`classify` names the greatest score of each row."""

import numpy as np
import pytest

from gateway.core.errors import GatewayError
from gateway.reference import BUNDLED
from tests.reference.calls import call

CLASSIFY = BUNDLED["classify"]


async def test_labels_and_probabilities() -> None:
    scores = np.array([[0, np.log(3)], [5, 5], [3e38, -3e38]], "<f4")
    answer = await call(CLASSIFY, {"scores": scores})
    assert answer["label"].tolist() == [[b"class_1"], [b"class_0"], [b"class_0"]]
    assert answer["score"].dtype == np.float32
    np.testing.assert_allclose(answer["score"], [[0.75], [0.5], [1.0]], rtol=1e-6)


async def test_no_rows() -> None:
    answer = await call(CLASSIFY, {"scores": np.zeros((0, 4), "<f4")})
    assert (answer["label"].shape, answer["score"].shape) == ((0, 1), (0, 1))


@pytest.mark.parametrize(
    ("scores", "text"),
    [(np.zeros((2, 0), "<f4"), "has no classes"), (np.array([[1, np.nan]], "<f4"), "holds NaN or an infinity")],
)
async def test_scores_without_a_greatest_are_refused(scores: np.ndarray, text: str) -> None:
    with pytest.raises(GatewayError, match=f"input 'scores' of model 'classify' {text}"):
        await call(CLASSIFY, {"scores": scores})
