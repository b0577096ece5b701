"""Whether a listener calls itself ready."""

import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import Operation
from gateway.core.types import Request
from gateway.routing.readiness import Readiness


def asking(operation: Operation, listener: str = "http", protocol: str = "grps") -> Request:
    return Request(operation, listener=listener, protocol=protocol)


READY = asking(Operation.READY)
ONLINE, OFFLINE = asking(Operation.ONLINE), asking(Operation.OFFLINE)


def test_offline_is_not_ready_until_it_is_online_again() -> None:
    here = Readiness(lambda: True, {"http"})
    assert here.of(READY)
    assert here.offline(OFFLINE)
    assert here.offline(OFFLINE)
    assert not here.of(READY)
    assert here.online(ONLINE)
    assert here.of(READY)


def test_the_flag_is_the_listeners_whatever_is_spoken_there() -> None:
    here = Readiness(lambda: True, {"http", "other"})
    here.offline(OFFLINE)
    assert not here.of(asking(Operation.READY, protocol="v2"))
    assert here.of(asking(Operation.READY, "other"))


def test_online_is_no_more_than_the_gateway_is() -> None:
    here = Readiness(lambda: False, {"http"})
    here.online(ONLINE)
    assert not here.of(READY)


@pytest.mark.parametrize("operation", [Operation.ONLINE, Operation.OFFLINE])
def test_it_is_not_allowed_by_default(operation: Operation) -> None:
    here = Readiness(lambda: True, {"other"})
    with pytest.raises(GatewayError) as refused:
        (here.online if operation is Operation.ONLINE else here.offline)(asking(operation))
    assert refused.value.status is Status.PERMISSION_DENIED
    assert refused.value.message == (
        f"clients of listener 'http' may not take it {operation.value}; `allow_offline: true` on the listener would let"
        " them"
    )
    assert here.of(READY)
