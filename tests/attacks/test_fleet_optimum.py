"""Tests the rules in `fleet_optimum` on sequences that are short enough to check by hand."""

from itertools import islice

import pytest

from tests.attacks.fleet_optimum import least_loads, loads_of_lru, zipf


@pytest.mark.parametrize(
    ("sequence", "places", "lru", "optimum"),
    [
        ([1, 1, 1], 1, 1, 1),
        ([1, 2, 1, 2], 1, 4, 4),
        ([1, 2, 1, 2], 2, 2, 2),
        # For 3, LRU unloads 1, which is needed next.
        ([1, 2, 3, 1, 2, 3], 2, 6, 4),
        ([1, 2, 1, 3, 1, 2], 2, 4, 4),
    ],
)
def test_loads_of_a_sequence(sequence: list[int], places: int, lru: int, optimum: int) -> None:
    assert (loads_of_lru(sequence, 1, places), least_loads(sequence, places)) == (lru, optimum)


def test_a_restart_costs_the_models_of_its_server() -> None:
    # The first model goes to server 0, the second to server 1.
    assert loads_of_lru([1, 2, 1, 2], 2, 1) == 2
    assert loads_of_lru([1, 2, 1, 2], 2, 1, [(2, 0)]) == 3
    assert loads_of_lru([1, 2, 1, 2], 2, 1, [(2, 0), (2, 1)]) == 4


def test_the_first_model_is_asked_for_as_often_as_its_rank_says() -> None:
    asked = list(islice(zipf(3, 1.0, seed=1), 11_000))
    assert [round(asked.count(model) / 1000) for model in range(3)] == [6, 3, 2]
    assert asked[:100] == list(islice(zipf(3, 1.0, seed=1), 100))


def test_no_rule_beats_the_bound() -> None:
    for seed in range(20):
        sequence = list(islice(zipf(30, 0.8, seed), 500))
        assert least_loads(sequence, 6) <= loads_of_lru(sequence, 2, 3)
