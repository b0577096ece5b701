"""Which of several backends gets a call."""

import math
import subprocess
import sys
from collections import Counter
from random import Random

import pytest

from gateway.core.errors import GatewayError
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.routing.branches import Split

NAMES = ("triton", "canary", "next")
USERS = 10_000


def request(user: str = "", **parameters: int | str) -> Request:
    headers = Headers([(b"x-user", user.encode())] if user else [])
    return Request(Operation.INFER, "m", headers=headers, parameters=parameters)


def split(*weights: int, header: str = "x-user") -> Split:
    return Split(list(zip(NAMES, weights, strict=False)), header, Random(7).random)


def within_bounds(count: int, share: float, calls: int) -> bool:
    """Whether it is within five standard deviations of what is expected."""
    return abs(count - share * calls) <= 5 * math.sqrt(calls * share * (1 - share))


def test_a_weight_of_0_takes_nothing_and_is_not_asked_for_metadata() -> None:
    chosen = split(0, 3, 0)
    assert {chosen.choose(request(user)) for user in ["", *map(str, range(1000))]} == {1}
    assert (chosen.first, chosen.taking) == (1, (1,))


def test_users_stick_and_are_shared_by_weight() -> None:
    chosen = split(9, 1)
    choices = [chosen.choose(request(str(user))) for user in range(USERS)]
    assert within_bounds(sum(choices), 0.1, USERS)
    assert choices == [chosen.choose(request(str(user))) for user in range(USERS)]


def test_a_changed_weight_moves_users_in_one_direction() -> None:
    before, after = split(9, 1), split(8, 2)
    moves = Counter((before.choose(request(str(user))), after.choose(request(str(user)))) for user in range(USERS))
    assert moves[1, 0] == 0
    assert within_bounds(moves[0, 1], 0.1, USERS)


def test_a_sequence_stays_where_it_is_whatever_the_header_says() -> None:
    chosen = split(1, 1)
    for number in range(100):
        found = {chosen.choose(request(user, sequence_id=number + 1)) for user in ("", "a", "b", "c")}
        assert len(found) == 1
    spread = {chosen.choose(request(sequence_id=f"s{number}")) for number in range(100)}
    assert spread == {0, 1}
    with pytest.raises(GatewayError, match="sequence_id has 129 characters"):
        chosen.choose(request(sequence_id="s" * 129))


def test_another_process_chooses_the_same() -> None:
    """Python's `hash` of a text differs between processes."""
    code = (
        "from tests.routing.test_split import *\n"
        "print([split(1, 1).choose(request(str(user))) for user in range(50)])"
    )  # fmt: skip
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.strip() == str([split(1, 1).choose(request(str(user))) for user in range(50)])
