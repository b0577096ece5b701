import math

from gateway.core.protocol import Limits
from gateway.transports.lifecycle import Lifespan


def test_the_last_request_is_the_one_that_uses_up_the_limit() -> None:
    lifespan = Lifespan(Limits(requests_per_connection=3), 0)
    assert [lifespan.is_last(now) for now in (1, 1e9, 2e9)] == [False, False, True]
    assert lifespan.ends_at == math.inf


def test_the_first_request_after_the_age_is_the_last() -> None:
    lifespan = Lifespan(Limits(connection_age=100), 1000)
    assert not lifespan.is_last(1089)
    assert lifespan.is_last(1111)


def test_ages_differ_by_a_tenth_so_that_clients_do_not_come_back_together() -> None:
    ends = {Lifespan(Limits(connection_age=100), 1000).ends_at for _ in range(100)}
    assert len(ends) > 50
    assert all(1090 <= end <= 1110 for end in ends)


def test_without_limits_no_request_is_the_last() -> None:
    lifespan = Lifespan(Limits(), 0)
    assert not any(lifespan.is_last(1e9) for _ in range(1000))
