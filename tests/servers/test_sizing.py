"""How many servers are started and ended, for any demand."""

import pytest

from gateway.servers.sizing import Demand, back_off, margin, surplus, wanted_starts


@pytest.mark.parametrize(
    ("waiting", "slots", "starting", "serving", "existing", "least", "most", "starts"),
    [
        (0, 1, 0, 0, 0, 0, 4, 0),  # nobody calls
        (0, 1, 0, 0, 0, 2, 4, 2),  # the least
        (0, 1, 0, 2, 2, 2, 4, 0),
        (1, 1, 0, 0, 0, 0, 4, 1),  # from zero
        (64, 1, 0, 0, 0, 0, 4, 4),  # a burst, never more than the most
        (64, 1, 2, 0, 2, 0, 4, 2),  # those that start count
        (64, 1, 0, 1, 4, 0, 4, 0),  # so do those that end
        (64, 32, 0, 0, 0, 0, 4, 2),  # servers that run many calls at once
        (64, 0, 0, 0, 0, 0, 4, 1),  # any number of calls at once
        (64, 0, 1, 0, 1, 0, 4, 0),
        (1, 1, 1, 0, 1, 0, 4, 0),
    ],
)
def test_starts_while_times_are_unknown(
    waiting: int, slots: int, starting: int, serving: int, existing: int, least: int, most: int, starts: int
) -> None:
    demand = Demand(waiting, 0.0, slots, None, None)
    sizes = {"starting": starting, "serving": serving, "existing": existing}
    assert starts == wanted_starts(demand, least=least, most=most, **sizes)


@pytest.mark.parametrize(
    ("waiting", "waited", "call", "start", "serving", "starts"),
    [
        (7, 0.0, 1.0, 30.0, 1, 0),  # the queue is empty before another server is there
        (7, 31.0, 1.0, 30.0, 1, 1),  # but it does not become empty
        (7, 90.0, 1.0, 30.0, 1, 3),
        (100, 0.0, 3.0, 30.0, 1, 9),  # ten of them are needed to empty it in the time of a start
        (100, 0.0, 0.001, 30.0, 0, 1),  # from zero there is always one
        (3, 0.0, 1000.0, 1.0, 1, 3),  # never more than calls that wait
    ],
)
def test_a_further_server_is_worth_its_start(
    waiting: int, waited: float, call: float, start: float, serving: int, starts: int
) -> None:
    demand = Demand(waiting, waited, 1, call, start)
    assert starts == wanted_starts(demand, starting=0, serving=serving, existing=serving, least=0, most=100)


def test_idle_servers_are_ended_down_to_the_least() -> None:
    assert surplus([10.0, 9.0, 1.0], 5.0, starting=0, serving=4, least=0) == 2
    assert surplus([10.0, 9.0, 1.0], 5.0, starting=0, serving=4, least=3) == 1
    assert surplus([10.0], 5.0, starting=0, serving=1, least=1) == 0
    assert surplus([], 5.0, starting=0, serving=1, least=0) == 0


def test_starts_after_failures_come_ever_later() -> None:
    assert [back_off(each) for each in (0, 1, 2, 3)] == [0.0, 0.5, 1.0, 2.0]
    assert back_off(1000) == 60.0


def test_the_margin_before_a_walltime() -> None:
    assert margin(100.0, None) == 10.0
    assert margin(7200.0, 1.0) == 60.0
    assert margin(7200.0, 600.0) == 1200.0
    assert margin(100.0, 600.0) == 50.0
