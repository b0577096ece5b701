"""What a Record tells, and to whom."""

import pytest

from gateway import registry
from gateway.core.errors import not_found
from gateway.core.exchange import answer
from gateway.core.protocol import ListenerSettings
from gateway.core.record import LONGEST_MODEL, Observer, Record, Telling
from gateway.core.transport import Destination
from gateway.core.types import Message, Request
from tests import records


def record(*observers: Observer, telling: Telling = Telling()) -> Record:  # noqa: B008 - it is frozen
    return records.made(observers, "id-1", "http", "v2-rest", "h:1", 0.0, 1, telling, b"00-trace")


def test_observers_are_told_once() -> None:
    told: list[Record] = []
    ended = record(told.append)
    ended.end(200, 5)
    ended.end(500, 6)
    ended.give_up(499)
    assert told == [ended]
    assert (ended.code, ended.bytes_out, ended.status) == (200, 5, "OK")


def test_an_error_that_was_told_is_not_turned_into_a_client_that_left() -> None:
    ended = record()
    ended.failed(not_found("no such model"))
    ended.give_up(499)
    ended.failed(not_found("later"))
    assert (ended.status, ended.reason) == ("NOT_FOUND", "model-not-found")


def test_a_client_that_left_is_cancelled() -> None:
    ended = record()
    ended.give_up(499)
    assert (ended.status, ended.reason, ended.code) == ("CANCELLED", "cancelled", 499)


def test_an_observer_that_fails_spoils_neither_the_reply_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Record] = []

    def fail(record: Record) -> None:
        raise ZeroDivisionError

    record(fail, told.append).end(200, 0)
    assert len(told) == 1
    assert "an observer of requests failed" in caplog.text


def test_only_what_is_allowed_is_told() -> None:
    quiet = record()
    records.route(quiet, "routes[0]", "b")
    assert not quiet.reply_fields()
    assert quiet.forwarded_fields() == []
    open_ = record(telling=Telling(id=True, route=True, forwards=True))
    records.route(open_, "routes[0]", "bücher\n").tries = 2
    assert open_.reply_fields() == [
        (b"x-request-id", b"id-1"),
        (b"gateway-route", b"routes[0]"),
        (b"gateway-backend", b"?"),
        (b"gateway-tries", b"2"),
    ]
    assert open_.forwarded_fields() == [(b"x-request-id", b"id-1"), (b"traceparent", b"00-trace")]


def test_a_record_keeps_no_name_of_any_length() -> None:
    """Records outlive their requests, in queues and in the status: clients could fill the memory with names. The router
    refuses long ones."""

    def select(request: Request) -> Destination:
        assert len(request.model) == 10**4
        raise not_found("no route")

    protocol = registry.protocols()["umbridge"]
    kept = records.made((), "1", "l", "umbridge", "", 0.0, 0)
    message = Message(
        "POST", "/Evaluate", parts=(b'{"name":"%b","input":[[1.0]]}' % (b"m" * 10**4),), pattern="POST /Evaluate",
        record=kept,
    )  # fmt: skip
    assert isinstance(answer(message, protocol, ListenerSettings("l"), select), Message)
    assert kept.model == "m" * LONGEST_MODEL
