from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policies.circuit_breaker import (
    LONGEST,
    MOST_CIRCUITS,
    TRIAL_SECONDS,
    Circuit,
    CircuitRules,
    Circuits,
    CircuitState,
)


class Table:
    """Circuits with a clock of the test's, and the changes that they told."""

    def __init__(self, failures: int = 3, seconds: float = 10, share: float | None = None, calls: int = 20) -> None:
        self.now = 0.0
        self.changes: list[tuple[Hashable, CircuitState]] = []
        self.circuits = Circuits(CircuitRules(failures, seconds, share, calls), lambda: self.now, self.changed)

    def changed(self, model: Hashable, circuit: Circuit) -> None:
        self.changes.append((model, circuit.state))

    def call(self, model: str, works: bool) -> float:
        """One call; what a refused one is told to wait."""
        epoch, wait = self.circuits.admit(model)
        if not wait:
            (self.circuits.succeeded if works else self.circuits.failed)(model, epoch)
        return wait

    def calls(self, model: str, outcomes: str) -> list[float]:
        """Calls that work (`+`) and that fail (`-`)."""
        return [self.call(model, outcome == "+") for outcome in outcomes]


def test_failures_in_a_row_open_the_circuit_of_that_model_alone() -> None:
    table = Table()
    assert table.calls("broken", "--+--+--") == [0] * 8
    assert table.calls("broken", "-") == [0]
    assert table.calls("broken", "+") == [10]
    assert table.calls("other", "+-+") == [0] * 3
    assert table.changes == [("broken", CircuitState.OPEN)]


def test_one_trial_at_a_time_decides() -> None:
    table = Table()
    table.calls("m", "---")
    table.now = 9.5
    assert table.call("m", True) == pytest.approx(0.5)
    table.now = 10
    trial, wait = table.circuits.admit("m")
    assert wait == 0
    assert table.call("m", True) == TRIAL_SECONDS
    table.circuits.succeeded("m", trial)
    assert table.calls("m", "+--+") == [0] * 4
    assert table.changes == [("m", CircuitState.OPEN), ("m", CircuitState.CLOSED)]


def test_trials_that_fail_double_the_time_up_to_a_bound() -> None:
    table = Table()
    table.calls("m", "---")
    waits = []
    for _ in range(6):
        wait = table.circuits.admit("m")[1]
        waits.append(wait)
        table.now += wait
        table.call("m", False)
    assert waits == [10, 20, 40, 80, 80, 80]
    assert waits[-1] == 10 * LONGEST
    table.now += 80
    assert table.calls("m", "+---") == [0] * 4
    assert table.circuits.admit("m")[1] == 10  # after a success the time begins anew


def test_calls_that_began_before_a_change_do_not_count() -> None:
    table = Table()
    early, _ = table.circuits.admit("m")
    table.calls("m", "---")
    table.now = 10
    trial, _ = table.circuits.admit("m")
    for late in (table.circuits.succeeded, table.circuits.failed, table.circuits.abandoned):
        late("m", early)
    assert table.circuits.known["m"].state is CircuitState.HALF_OPEN
    table.circuits.failed("m", trial)
    assert table.circuits.admit("m")[1] == 20


def test_a_share_of_the_last_calls_opens_the_circuit() -> None:
    table = Table(failures=100, share=0.5, calls=4)
    assert table.calls("m", "-+-+-+") == [0] * 6  # half, not more
    assert table.calls("m", "--") == [0, 0]
    assert table.call("m", True) == 10


@pytest.mark.parametrize("share", [None, 0.5])
def test_models_that_work_are_not_remembered(share: float | None) -> None:
    table = Table(share=share, calls=2)
    for at in range(100):
        table.calls(f"m{at}", "+-++")
    assert not table.circuits.known


def test_the_models_that_failed_least_recently_are_forgotten() -> None:
    table = Table(failures=2)
    table.calls("first", "-")
    for at in range(MOST_CIRCUITS * 3):
        if at == MOST_CIRCUITS // 2:
            table.calls("first", "-")  # open, and moved to the end
        table.call(f"m{at}", False)
        assert len(table.circuits.known) <= MOST_CIRCUITS
    assert "first" not in table.circuits.known
    assert f"m{MOST_CIRCUITS * 3 - 1}" in table.circuits.known


@given(st.lists(st.tuples(st.sampled_from("+-?"), st.floats(0, 30))))
def test_no_sequence_of_outcomes_shuts_a_model_out_for_good(steps: list[tuple[str, float]]) -> None:
    table = Table(failures=2, share=0.5, calls=3)
    for outcome, seconds in steps:
        table.now += seconds
        epoch, wait = table.circuits.admit("m")
        if wait:
            continue
        ends = {"+": table.circuits.succeeded, "-": table.circuits.failed, "?": table.circuits.abandoned}
        ends[outcome]("m", epoch)
    table.now += 10 * LONGEST
    assert table.calls("m", "++") == [0, 0]


def test_a_model_that_fails_again_is_remembered_longer() -> None:
    table = Table(failures=2)
    for model in ("first", "second", "first"):
        table.call(model, False)
    for at in range(MOST_CIRCUITS - 1):
        table.call(f"m{at}", False)
    assert "first" in table.circuits.known
    assert "second" not in table.circuits.known


def test_after_a_trial_that_succeeded_a_share_is_counted_anew() -> None:
    table = Table(failures=100, share=0.5, calls=4)
    table.calls("m", "----")
    table.now = 10
    assert table.calls("m", "+-+-") == [0] * 4
    assert table.changes == [("m", CircuitState.OPEN), ("m", CircuitState.CLOSED)]
