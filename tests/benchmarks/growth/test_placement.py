"""A request to one of thousands of models on a hundred servers takes as many function calls as one to the only model of
the only server. Times and memory are measured by `python -m tests.benchmarks.growth`."""

from tests.benchmarks.growth.placement import COPIES, MODELS, SERVERS, calls

FEW = 2
"""Calls more or less that do not matter."""


async def test_a_request_takes_as_many_calls_with_thousands_of_models_on_many_servers() -> None:
    one, many = await calls(1, 1, 1), await calls(MODELS, SERVERS, COPIES)
    assert abs(many.python - one.python) <= FEW
    assert abs(many.c - one.c) <= FEW
