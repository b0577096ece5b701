"""`upper` works on text."""

import pytest

from gateway.core.errors import GatewayError
from gateway.reference import BUNDLED
from tests.reference.calls import call, objects

UPPER = BUNDLED["upper"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [([], []), (["abc", "", "a\0b"], ["ABC", "", "A\0B"]), (["straße", "ñ日"], ["STRASSE", "Ñ日"])],
)
async def test_text_in_upper_case(given: list[str], expected: list[str]) -> None:
    answer = await call(UPPER, {"text": objects(given)})
    assert answer["upper"].tolist() == [text.encode() for text in expected]


async def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(GatewayError, match="input 'text' of model 'upper': element 1 is not UTF-8: invalid start byte"):
        await call(UPPER, {"text": objects([b"a", b"\xff"])})
