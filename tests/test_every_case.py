"""A test of many cases tries all of them, and names those that fail."""

import pytest

from tests.every_case import every_case


def test_each_case_that_fails_is_named_and_those_after_it_are_tried() -> None:
    tried = []

    def small(base: int, number: int) -> None:
        tried.append(number)
        assert base % number == 0
        with pytest.raises(ZeroDivisionError):
            _ = base / (number - 2)

    cases = {f"number {number}": {"number": number} for number in (2, 4, 3)}
    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases failed") as caught:
        every_case(small, ("number",))(base=6, cases=cases)
    assert tried == [2, 4, 3]
    unequal, unraised = caught.value.exceptions
    assert isinstance(unequal, AssertionError)
    assert unequal.__notes__ == ["the case 'number 4'"]
    assert "DID NOT RAISE" in str(unraised)
    assert unraised.__notes__ == ["the case 'number 3'"]


async def test_cases_may_wait() -> None:
    async def small(number: int) -> None:
        assert number

    with pytest.raises(BaseExceptionGroup, match="1 of 2 cases failed"):
        await every_case(small, ("number",))(cases={"one": {"number": 1}, "none": {"number": 0}})
