"""What a Record tells, and to whom."""

from types import FunctionType

import pytest

from gateway.assembly import registry
from gateway.core.errors import not_found
from gateway.core.exchange import answer
from gateway.core.messages import Message
from gateway.core.principal import Principal
from gateway.core.protocol import ListenerSettings
from gateway.core.record import HIT, LONGEST_MODEL, MISS, SHARED, UNRECORDED, Observer, Record, RecordDisclosure
from gateway.core.requests import Request
from gateway.core.transport import Destination
from tests import records


def record(*observers: Observer, telling: RecordDisclosure = RecordDisclosure()) -> Record:  # noqa: B008 - it is frozen
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
    records.route(quiet, "route-0", "b")
    assert not quiet.reply_fields()
    assert quiet.forwarded_fields() == []
    open_ = record(telling=RecordDisclosure(id=True, route=True, forwards=True))
    records.route(open_, "route-0", "bücher\n").tries = 2
    assert open_.reply_fields() == [
        (b"x-request-id", b"id-1"),
        (b"gateway-route", b"route-0"),
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


def test_the_moments_of_a_request_fill_its_record() -> None:
    told: list[Record] = []
    noted = record(told.append)
    noted.decoded("infer", "m", Principal("ann"))
    noted.routed("route-0", "first", "check")
    noted.sent("first", "v2-rest", "h:1")
    noted.answered(0.25)
    noted.retried()
    noted.waited(0.5, "second", 3)
    noted.sent("second", "v2-grpc", "h:2")
    noted.answered(0.5)
    noted.lost("cast rounded")
    assert not told
    noted.end(200, 7)
    assert told == [noted]
    assert (noted.operation, noted.model, noted.principal, noted.route) == ("infer", "m", "ann", "route-0")
    assert (noted.backend, noted.out_protocol, noted.endpoint) == ("second", "v2-grpc", "h:2")
    assert (noted.tries, noted.retries, noted.upstream, noted.queued) == (2, 1, 0.75, 0.5)
    assert noted.losses == ("cast rounded",)


def test_a_batch_that_called_no_backend_leaves_the_one_that_is_known() -> None:
    noted = record()
    noted.backend, noted.tries = "lab", 1
    noted.gathered(record(), 0.5, 2, 3)
    assert (noted.backend, noted.tries) == ("lab", 1)


def test_of_the_calls_of_a_request_the_one_that_was_cached_least_is_told() -> None:
    noted = record()
    for outcome, age in ((HIT, 3.0), (SHARED, 0.0), (HIT, 5.0)):
        noted.cached(outcome, age)
    assert (noted.cache, noted.cache_age) == (SHARED, 3.0)
    noted.cached(MISS, 0.0)
    assert noted.cache == MISS


def test_an_error_before_decoding_is_told_with_the_client() -> None:
    noted = record()
    noted.failed(not_found("no such path"), Principal("ann"))
    assert noted.principal == "ann"


def test_nothing_is_noted_where_nobody_observes() -> None:
    reading = {"reply_fields", "forwarded_fields"}
    changing = {name for name, each in vars(Record).items() if isinstance(each, FunctionType) and name[0] != "_"}
    for name in changing - reading - {"of_batch", "of_step", "observe_also", "trace_with"}:
        getattr(UNRECORDED, name)("some", "further", "arguments")
    assert UNRECORDED.of_batch() is UNRECORDED
    blank = Record("")
    assert {name: getattr(UNRECORDED, name) for name in Record.__struct_fields__} == {
        name: getattr(blank, name) for name in Record.__struct_fields__
    }
    with pytest.raises(AttributeError):
        UNRECORDED.model = "of nobody"
