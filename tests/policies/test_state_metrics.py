"""Metrics that are read from the states of policies."""

from collections import Counter

from gateway.policies.concurrency_limit import Concurrency, Settings
from gateway.policies.places import PlacedState, StateMetric, numbers, states_of_principal
from gateway.policies.rate_limit import RateLimit
from gateway.policies.rate_limit import Settings as RateSettings

CALLS = StateMetric("calls_total", "counter", ("owner", "outcome"), "Calls.", {"hit": "hits", "miss": "misses"})
ROWS = StateMetric("rows_total", "counter", ("backend",), "Rows.", {"": "rows"})
FAILURES = StateMetric("failures_total", "counter", ("route", "backend", "reason"), "Failures.", {"": "failures"})


def test_the_last_label_has_a_value_for_each_key() -> None:
    found = numbers([("route-0", "cache", {"hits": 3, "misses": 1})], {"cache": [CALLS]})
    assert found == {"calls_total": Counter({("route-0", "hit"): 3, ("route-0", "miss"): 1})}


def test_a_mapping_gives_the_values_of_the_last_label() -> None:
    state = {"backend": "new", "failures": {"timeout": 2, "model-error": 1}}
    found = numbers([("route-1", "mirror", state)], {"mirror": [FAILURES]})
    assert found["failures_total"] == {("route-1", "new", "timeout"): 2, ("route-1", "new", "model-error"): 1}


def test_a_backend_is_named_by_the_place_if_the_state_shows_none() -> None:
    assert numbers([("backends.lab", "gather", {"rows": 7})], {"gather": [ROWS]}) == {"rows_total": {("lab",): 7}}


def test_the_states_of_several_workers_are_added() -> None:
    states = [("backends.lab", "gather", {"worker": number, "rows": 7}) for number in (1, 2)]
    assert numbers(states, {"gather": [ROWS]}) == {"rows_total": {("lab",): 14}}


def test_a_state_without_a_part_of_a_principal_is_not_among_its_states() -> None:
    limits: list[PlacedState] = [
        ("m rate_limit", "rate_limit", RateLimit(RateSettings(requests=2, by="principal"))),
        ("m rate_limit", "rate_limit", RateLimit(RateSettings(requests=2))),
    ]
    states = [*limits, ("m concurrency_limit", "concurrency_limit", Concurrency(Settings(calls=1)))]
    assert states_of_principal(states, "anna") == [
        ("m rate_limit", "rate_limit", {"requests": 2, "seconds": 1, "burst": 2, "left": 2, "full_in": 0.0})
    ]


def test_policies_without_metrics_are_left_out_and_metrics_without_states_are_empty() -> None:
    assert numbers([("backends.lab", "rate_limit", {"refused": 1})], {"gather": [ROWS]}) == {"rows_total": Counter()}
