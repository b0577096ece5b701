"""The states of an endpoint, on a clock that the test turns: what calls and what probes do to them."""

import pytest

from gateway.routing.health import LONGEST_SECONDS, UNREACHABLE_SECONDS, Ejection, EndpointHealth, State

UP, DEGRADED, DOWN, UNKNOWN = State.UP, State.DEGRADED, State.DOWN, State.UNKNOWN
UNHEALTHY, HEALTHY = 3, 2


class Lab:
    """One endpoint. Each step is a word of `play`."""

    def __init__(self, ejection: Ejection | None = None) -> None:
        self.now = 100.0
        self.health = EndpointHealth("host:1", ejection or Ejection(failures=2), lambda: self.now)

    def play(self, steps: str) -> list[State]:
        """The state after each step. Lower case is a call, upper case a probe:

        - `a` answered, `f` failed, `u` unreachable, `t` a trial is sent, `w` a wait until the trial is due;
        - `P` passed, `F` without an answer, `R` refused.
        """
        return [self._step(step) for step in steps]

    def _step(self, step: str) -> State:
        health = self.health
        match step:
            case "a":
                health.answered()
            case "f" | "u":
                health.failed("no", unreachable=step == "u")
            case "w":
                self.now += health.seconds_left
            case "t":
                assert not health.is_left_out
                health.try_again()
            case "P":
                health.probe_passed(HEALTHY)
            case "F" | "R":
                health.probe_failed("no", UNHEALTHY, refused=step == "R")
        return health.state


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        # calls
        ("af", [UP, DEGRADED]),
        ("f", [DEGRADED]),
        ("fafa", [DEGRADED, UP, DEGRADED, UP]),
        ("ff", [DEGRADED, DOWN]),
        ("u", [DOWN]),
        ("ua", [DOWN, UP]),
        ("ffwta", [DEGRADED, DOWN, DOWN, DOWN, UP]),
        ("ffwtf", [DEGRADED, DOWN, DOWN, DOWN, DOWN]),
        # probes
        ("P", [UP]),
        ("FFF", [DEGRADED, DEGRADED, DOWN]),
        ("RRR", [DEGRADED, DEGRADED, DOWN]),
        ("FFPFFPPF", [DEGRADED, DEGRADED, DEGRADED, DEGRADED, DEGRADED, DEGRADED, UP, DEGRADED]),
        ("FFFPFPP", [DEGRADED, DEGRADED, DOWN, DOWN, DOWN, DOWN, UP]),
        # an answer to a call is as good as a probe, unless the server says that it is not ready
        ("FFaFF", [DEGRADED, DEGRADED, UP, DEGRADED, DEGRADED]),
        ("FFFa", [DEGRADED, DEGRADED, DOWN, UP]),
        ("RRaRa", [DEGRADED, DEGRADED, DEGRADED, DOWN, DOWN]),
        ("RRRaPP", [DEGRADED, DEGRADED, DOWN, DOWN, DOWN, UP]),
        ("ffRa", [DEGRADED, DOWN, DOWN, DEGRADED]),
        # calls fail though probes pass: the call that is sent as a trial decides
        ("PffPPPP", [UP, DEGRADED, DOWN, DOWN, DOWN, DOWN, DOWN]),
        # the server was gone for both
        ("PffFPP", [UP, DEGRADED, DOWN, DOWN, DOWN, UP]),
        ("FFFuu", [DEGRADED, DEGRADED, DOWN, DOWN, DOWN]),
    ],
)
def test_the_states(steps: str, states: list[State]) -> None:
    assert Lab().play(steps) == states


def test_an_ejected_endpoint_is_left_out_until_its_trial_is_due() -> None:
    lab = Lab()
    lab.play("u")
    assert lab.health.is_left_out
    assert lab.health.ejected_until is not None
    lab.now += UNREACHABLE_SECONDS
    assert not lab.health.is_left_out


def test_probes_take_the_place_of_trials_once_they_fail() -> None:
    lab = Lab()
    lab.play("uFFF")
    lab.now += LONGEST_SECONDS * 10
    assert lab.health.is_left_out
    assert lab.health.ejected_until is None
    lab.play("PP")
    assert not lab.health.is_left_out


def test_the_end_of_a_time_down_is_told_once() -> None:
    lab = Lab()
    health = lab.health
    assert not health.probe_passed(1)
    lab.play("FFF")
    assert health.probe_passed(1)
    assert not health.probe_passed(1)
    assert not health.answered()
    lab.play("u")
    assert health.answered()
    lab.play("RRR")
    assert not health.answered()
    assert health.probe_passed(1)


def test_the_settings_say_when_and_for_how_long() -> None:
    lab = Lab(Ejection(failures=3, seconds=90.0))
    assert lab.play("fff") == [DEGRADED, DEGRADED, DOWN]
    seconds = []
    for _ in range(2):
        seconds.append(lab.health.seconds_left)
        lab.play("wtf")
    assert seconds == [90.0, 90.0]  # more than LONGEST_SECONDS, so it does not grow


def test_ready_is_what_has_answered_and_is_not_down() -> None:
    lab = Lab()
    ready = []
    for step in "fPffaF":
        lab.play(step)
        ready.append(lab.health.is_ready)
    assert ready == [False, True, False, False, True, True]
