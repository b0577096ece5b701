"""The policy `mirror`: what is mirrored and compared, and that clients do not notice."""

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, cast

import numpy as np
import pytest
from pydantic import ValidationError

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, not_found, refusal
from gateway.core.forwarding import add_forwarded_headers
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.record import UNRECORDED, Record, RecordDisclosure
from gateway.core.requests import Answer, Request, Response
from gateway.core.spans import TraceContext
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Handler
from gateway.policies import mirror
from gateway.policies.context import OtherBackend, PolicyContext
from gateway.policies.mirror import Mirror, MirrorRecord, Settings, mirror_record, state, wrap, wrap_stream
from gateway.policies.mirror_counts import DropCause
from tests import records
from tests.limits import GENEROUS

ONE = Response((tensor("y", np.array([1.0, 2.0])),))
NEAR = Response((tensor("y", np.array([1.0, 2.000001])),))
FAR = Response((tensor("y", np.array([1.0, 7.25])),))
REQUEST = Request(Operation.INFER, "m", inputs=(tensor("x", np.zeros(4)),))


class Server:
    """A Handler that keeps what it gets, and answers with `answer` or raises it, if it `hangs` once `open` is set."""

    def __init__(self, answer: Answer | Exception = ONE, *, hangs: bool = False) -> None:
        self.answer = answer
        self.asked: list[Request] = []
        self.open = asyncio.Event()
        if not hangs:
            self.open.set()

    async def __call__(self, request: Request) -> Answer:
        self.asked.append(request)
        await self.open.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def mirrored(
    main: Handler, other: Handler, settings: Settings, random: Callable[[], float] = lambda: 0.0
) -> tuple[Handler, Mirror]:
    """`main` with a mirror, and the mirror. All places have one route."""
    found = state(settings)
    found.place = "route-3 mirror"
    found._random = random
    return wrap(main, settings, PolicyContext("the route").with_beside(lambda backend: other)), found


def settings(**keys: object) -> Settings:
    return Settings.model_validate({"backend": "next", "sample": 1, **keys})


async def compared(other: Server, request: Request = REQUEST, **keys: object) -> Mirror:
    """A mirror at `other` that has seen one request, whose client got its answer."""
    handler, found = mirrored(Server(), other, settings(**keys))
    assert await handler(request) is ONE
    await found.ended()
    return found


async def test_the_client_has_its_answer_before_the_mirror_is_asked() -> None:
    main, other = Server(), Server()
    handler, found = mirrored(main, other, settings())
    assert await handler(REQUEST) is ONE
    assert other.asked == []
    await found.ended()
    assert len(other.asked) == 1
    assert found.status()["equal"] == 1


async def test_answers_within_the_tolerance_are_equal() -> None:
    for tolerance, outcome in (({"rtol": 1e-6}, "equal"), ({"rtol": 1e-7}, "different"), ({}, "different")):
        assert (await compared(Server(NEAR), tolerance=tolerance)).status()[outcome] == 1


async def test_a_difference_is_counted_logged_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    record = records.made((), "the-id", "http", "v2-rest", "", 0.0, 0)
    found = await compared(Server(FAR), replace(REQUEST, record=record))
    text = "output 'y': 1 of 2 elements differ, at [1] 7.25, expected 2.0"
    text += " (largest distance: absolute 5.25, relative 2.62, ulp 8.16e+15)"
    line = "route-3 mirror: backend 'next' answers a request for model 'm' differently: "
    assert caplog.record_tuples == [(mirror.__name__, logging.WARNING, f"{line}{text} (request id the-id)")]
    status = found.status()
    assert (status["different"], status["differences"]) == (1, {"values": 1})
    last: Any
    [last] = cast(list[Any], status["last_differences"])
    assert (last["request_id"], last["model"], last["operation"], last["text"]) == ("the-id", "m", "infer", text)
    [output] = last["outputs"]
    assert output["first"] == [{"index": [1], "expected": "2.0", "actual": "7.25"}]
    assert output["largest"]["absolute"] == {"value": 5.25, "index": [1]}


async def test_no_value_is_told_if_none_may_be(caplog: pytest.LogCaptureFixture) -> None:
    status: dict[str, Any] = dict((await compared(Server(FAR), values=0)).status())
    assert status.pop("mean_seconds")
    assert status["last_differences"][0].pop("at")
    assert "7.25" not in caplog.text + str(status)


async def test_differences_are_logged_at_a_limited_rate_and_the_last_ones_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handler, found = mirrored(Server(ONE), Server(FAR), settings())
    for _ in range(50):
        await handler(REQUEST)
        await found.ended()
    assert len(caplog.records) == 10
    assert found.counts.differences["values"] == 50
    assert len(found.counts.last) == 10


async def test_a_mirror_that_hangs_costs_a_bounded_number_of_calls(caplog: pytest.LogCaptureFixture) -> None:
    other = Server(hangs=True)
    handler, found = mirrored(Server(), other, settings(calls=3))
    for _ in range(1000):
        assert await handler(REQUEST) is ONE
    await asyncio.sleep(0)
    assert len(other.asked) == 3
    status = found.status()
    assert (status["in_flight"], status["dropped"], status["drops"]) == (3, 997, {"calls": 997})
    assert sum("mirrored calls are in flight (mirror.calls)" in line for line in caplog.messages) == 10
    other.open.set()
    await found.ended()
    assert (found.status()["equal"], found.status()["in_flight"], found.status()["bytes"]) == (3, 0, 0)


async def test_a_mirror_that_hangs_holds_a_bounded_number_of_bytes() -> None:
    other = Server(hangs=True)
    held = len(REQUEST.inputs[0].data) + len(ONE.outputs[0].data)
    handler, found = mirrored(Server(), other, settings(memory=2 * held + 1))
    for _ in range(5):
        await handler(REQUEST)
    await asyncio.sleep(0)
    assert len(other.asked) == 2
    assert (found.status()["bytes"], found.status()["drops"]) == (2 * held, {"memory": 3})
    other.open.set()
    await found.ended()
    assert found.status()["bytes"] == 0


async def test_a_large_answer_of_the_mirror_counts_as_long_as_it_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Response((tensor("y", np.zeros(2**20)),))
    handler, found = mirrored(Server(ONE), Server(large), settings(memory=1000))
    comparing, go_on = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        assert threading.current_thread() is not threading.main_thread()
        comparing.set()
        assert go_on.wait(GENEROUS)

    monkeypatch.setattr(found, "_difference", slow)
    await handler(REQUEST)
    await asyncio.to_thread(comparing.wait, 30)
    assert found.counts.bytes > 2**23
    assert await handler(REQUEST) is ONE  # the loop is free, and the next request is not mirrored
    assert found.counts.drops[DropCause.MEMORY] == 1
    go_on.set()
    await found.ended()
    assert found.counts.bytes == 0


async def test_a_call_that_takes_too_long_counts_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    found = await compared(Server(hangs=True), seconds=0.01)
    assert found.status()["failures"] == {"timeout": 1}
    assert "backend 'next' does not answer a mirrored request: no answer within 0.01 s (mirror.seconds)" in caplog.text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (refusal(Reason.UNREACHABLE, "down"), "unreachable"),
        (refusal(Reason.OVERLOADED, "busy"), "overloaded"),
        (refusal(Reason.TOO_LARGE, "100 MiB"), "too-large"),
    ],
)
async def test_a_mirror_that_does_not_answer_counts_as_failed(error: GatewayError, reason: str) -> None:
    found = await compared(Server(error))
    assert (found.status()["failed"], found.status()["failures"]) == (1, {reason: 1})
    assert found.status()["different"] == 0


async def test_an_unexpected_error_of_the_mirror_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    found = await compared(Server(ZeroDivisionError("oops")))
    assert (found.status()["failures"], found.status()["different"]) == ({"internal": 1}, 0)
    assert "unexpected error" in caplog.text


async def test_an_answer_that_cannot_be_compared_harms_nobody() -> None:
    found = await compared(Server(Response((Tensor("y", Datatype.FP64, (2,), b"short"),))))
    assert (found.status()["failures"], found.status()["different"]) == ({"internal": 1}, 0)
    assert (found.counts.in_flight, found.counts.bytes) == (0, 0)


async def test_an_answer_without_tensors_is_not_mirrored() -> None:
    other = Server()
    handler, found = mirrored(Server(True), other, settings())
    assert await handler(REQUEST) is True
    await found.ended()
    assert other.asked == []


def test_only_routes_have_mirrors() -> None:
    with pytest.raises(LookupError, match=r"^cannot reach backend 'next' from here; only routes can$"):
        wrap(Server(), settings(), PolicyContext("backend 'b'"))


async def test_errors_are_compared_by_their_status() -> None:
    for main, other, outcome in (
        (not_found("here"), not_found("there"), "equal"),
        (not_found("here"), ONE, "different"),
        (ONE, not_found("there"), "different"),
        (DecodeError("wrong"), DecodeError("also wrong"), "equal"),
    ):
        handler, found = mirrored(Server(main), Server(other), settings())
        if isinstance(main, Exception):
            with pytest.raises(type(main)) as raised:
                await handler(REQUEST)
            assert raised.value is main
        else:
            await handler(REQUEST)
        await found.ended()
        assert found.status()[outcome] == 1


async def test_calls_that_the_own_backend_did_not_answer_are_not_mirrored() -> None:
    other = Server()
    for error in (refusal(Reason.UNREACHABLE, ""), refusal(Reason.OVERLOADED, ""), refusal(Reason.TIMEOUT, "")):
        handler, found = mirrored(Server(error), other, settings())
        with pytest.raises(GatewayError):
            await handler(REQUEST)
        await found.ended()
    assert other.asked == []


async def test_a_client_that_leaves_is_not_mirrored() -> None:
    handler, found = mirrored(Server(hangs=True), Server(), settings())
    call = asyncio.ensure_future(handler(REQUEST))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not found._tasks


@pytest.mark.parametrize(
    "request_",
    [
        Request(Operation.METADATA, "m"),
        Request(Operation.MODEL_READY, "m"),
        Request(Operation.LOAD, "m"),
        Request(Operation.INFER, "m", parameters={"sequence_id": 7}),
        Request(Operation.INFER, "m", flaw="no input"),
    ],
    ids=lambda each: f"{each.operation.value} {dict(each.parameters)} {each.flaw}",
)
async def test_what_is_no_call_of_its_own_is_not_mirrored(request_: Request) -> None:
    is_call = request_.operation is Operation.INFER
    main, other = Server(ONE if is_call else Signature()), Server()
    handler, found = mirrored(main, other, settings())
    await handler(request_)
    await found.ended()
    assert (len(main.asked), other.asked) == (1, [])


@pytest.mark.parametrize("operation", [Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.EXPLAIN])
async def test_derivatives_and_explanations_are_mirrored(operation: Operation) -> None:
    other = Server()
    await compared(other, Request(operation, "m"))
    assert [each.operation for each in other.asked] == [operation]


async def test_the_share_is_taken_at_random() -> None:
    numbers = iter([0.0, 0.099, 0.1, 0.5, 0.999])
    other = Server()
    handler, found = mirrored(Server(), other, settings(sample=0.1), lambda: next(numbers))
    for _ in range(5):
        await handler(REQUEST)
    await found.ended()
    assert len(other.asked) == 2


async def test_streams_are_not_mirrored() -> None:
    async def responses(request: Request):  # type: ignore[no-untyped-def]
        yield ONE

    assert wrap_stream(responses, settings(), PolicyContext("the route")) is responses


async def test_the_request_is_that_of_the_client_with_limits_of_its_own() -> None:
    other = Server()
    before = asyncio.get_running_loop().time()
    sent = replace(REQUEST, id="7", deadline=before + 0.001, peer="a:1")
    await compared(other, sent, seconds=5)
    [got] = other.asked
    assert (got.model, got.id, got.inputs, got.peer) == ("m", "7", sent.inputs, "a:1")
    assert got.deadline is not None
    assert got.deadline >= before + 5
    assert got.time_limit == 5
    assert sent.deadline == before + 0.001


async def test_the_bytes_of_the_client_s_message_are_not_kept() -> None:
    other = Server()
    message = Message("POST", "/v2/models/m/infer", parts=(np.zeros(2**10, np.uint8).data,))
    sent = replace(REQUEST, origin=message)
    await compared(other, sent)
    [got] = other.asked
    assert got.origin is not None
    assert (got.origin.path, got.origin.parts) == (message.path, ())
    assert sent.origin is message
    assert message.parts


def test_mirrored_requests_are_marked_and_join_the_trace() -> None:
    client = records.made((), "the-id", "http", "v2-rest", "", 0.0, 0, RecordDisclosure(id=True, forwards=True))
    assert mirror_record(client).forwarded_fields() == [(b"x-request-id", b"the-id"), (b"gateway-mirror", b"1")]
    silent = records.made((), "the-id", "http", "v2-rest", "", 0.0, 0, traceparent=b"not passed on")
    assert mirror_record(silent).forwarded_fields() == [(b"gateway-mirror", b"1")]
    assert mirror_record(UNRECORDED).forwarded_fields() == [(b"gateway-mirror", b"1")]
    client.context = TraceContext(1, 2, 3, True)
    parent = b"00-%032x-%016x-01" % (1, 3)
    assert mirror_record(client).forwarded_fields()[1] == (b"traceparent", parent)


def test_without_an_id_of_the_gateway_s_own_the_client_s_is_forwarded() -> None:
    received = Headers([(b"x-request-id", b"the client's")])
    request = Request(Operation.INFER, "m", headers=received, record=mirror_record(UNRECORDED))
    message = Message()
    add_forwarded_headers(request, message, Target("next", "host:1", forward_headers=("x-request-id",)))
    assert message.headers.get("x-request-id") == "the client's"
    assert message.further == [(b"gateway-mirror", b"1")]


async def test_nobody_observes_the_mirrored_call() -> None:
    observed: list[Record] = []
    client = records.made((observed.append,), "the-id", "http", "v2-rest", "", 0.0, 0)
    other = Server()
    handler, found = mirrored(Server(), other, settings())
    await handler(Request(Operation.INFER, "m", record=client))
    client.end(200, 0)
    await found.ended()
    [got] = other.asked
    assert isinstance(got.record, MirrorRecord)
    got.record.end(200, 0)
    assert observed == [client]
    assert client.tries == 0


async def test_closing_waits_for_calls_on_their_way_and_begins_no_more() -> None:
    other = Server(hangs=True)
    handler, found = mirrored(Server(), other, settings())
    await handler(REQUEST)
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(found.close(30))
    await asyncio.sleep(0)
    assert not closing.done()
    other.open.set()
    await closing
    assert found.status()["equal"] == 1
    assert await handler(REQUEST) is ONE
    assert found.status()["drops"] == {"stopping": 1}


def test_a_mirror_ends_with_the_configuration_that_has_it() -> None:
    """A reload makes new ones."""
    entry = settings()
    found = weakref.ref(state(entry))
    assert found() is state(entry)
    del entry
    gc.collect()
    assert found() is None


def test_the_other_backend_has_names_of_its_own() -> None:
    asked: list[OtherBackend] = []

    def beside(backend: OtherBackend) -> Callable[[Request], Awaitable[Answer]]:
        asked.append(backend)
        return Server()

    keys = settings(model="n", version="", rename={"outputs": [{"client": "a", "backend": "b"}]})
    wrap(Server(), keys, PolicyContext("the route").with_beside(beside))
    assert asked == [OtherBackend("next", "n", "", None, (("a", "b"),))]


@pytest.mark.parametrize(
    "keys",
    [
        {"sample": 0},
        {"sample": 1.1},
        {"calls": 0},
        {"seconds": float("inf")},
        {"tolerance": {"ulp": 0.5}},
        {"tolerance": {"nan": "same"}},
        {"outputs": "order"},
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        settings(**keys)
