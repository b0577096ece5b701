"""`gather` before a model in this process: what is joined, how it is split, what becomes of failures and cancels."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DetailedError, GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.protocol import Rows
from gateway.core.queue_wait import LATER, QueueWait, begin_wait, note_wait, queue_wait
from gateway.core.requests import Answer, Request, RequestedOutput, Response, Tries
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Handler
from gateway.policies import gather, joining
from gateway.policies.context import KnownModels, PolicyContext
from gateway.policies.gather import Settings, wrap, wrap_stream
from gateway.protocols.tensorflow_serving.inference import ExampleMessage
from tests.clock import Clock
from tests.limits import settle
from tests.records import made, route

ROWS = st.lists(st.integers(1, 5), min_size=1, max_size=8)
ELEMENTS = st.sampled_from([*Datatype])
TEXTS = st.binary(max_size=5)

BATCHES = Signature((TensorSpec("x", Datatype.FP64, (-1, 2)),), (TensorSpec("y", Datatype.FP64, (-1, 2)),))
LONG = 30.0


def point(*numbers: float, **fields: Any) -> Request:
    """A request whose rows are each a number twice."""
    data = np.repeat(np.array(numbers, float), 2).reshape(-1, 2)
    return Request(Operation.INFER, "m", inputs=(tensor("x", data),), **fields)


def numbers(answer: Answer) -> list[float]:
    assert isinstance(answer, Response)
    [output] = answer.outputs
    assert output.shape[1:] == (2,)
    assert (output.array[:, 0] == output.array[:, 1]).all()
    found: list[float] = output.array[:, 0].tolist()
    return found


def doubled(request: Request) -> Response:
    return Response((tensor("y", request.inputs[0].array * 2),))


class Model:
    """Doubles, once it is let go; rows of a number below 0 make it fail."""

    def __init__(self, compute: Callable[[Request], Response] = doubled) -> None:
        self.compute = compute
        self.calls: list[Request] = []
        self.ended = 0
        self.open = asyncio.Event()

    @property
    def rows(self) -> list[int]:
        return [each.inputs[0].shape[0] for each in self.calls]

    async def answers(self, calls: list["asyncio.Task[Answer]"]) -> list[Answer]:
        """Those of `calls`, from the model that is let go now."""
        self.open.set()
        return await asyncio.gather(*calls)

    async def outcomes(self, calls: list["asyncio.Task[Answer]"]) -> list[Answer | BaseException]:
        """As `answers`, with the errors of calls that fail."""
        self.open.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    async def __call__(self, request: Request) -> Answer:
        if request.operation is not Operation.INFER:
            return True
        self.calls.append(request)
        try:
            await self.open.wait()
            if (request.inputs[0].array < 0).any():
                raise refusal(Reason.MODEL_ERROR, "a number is below 0")
            return self.compute(request)
        finally:
            self.ended += 1


class Place:
    """`gather` before a Model that it knows. `most` is the model's max_batch_size; None: its server tells none."""

    def __init__(
        self,
        model: Handler,
        *,
        safe: bool = True,
        signature: Signature | GatewayError = BATCHES,
        most: int | None = 1000,
        **keys: Any,
    ) -> None:
        self.clock = Clock()
        self.context = PolicyContext("backend 'b'", safe=safe, clock=self.clock)
        self.asked = 0

        async def tells(model: str, version: str) -> Signature:
            self.asked += 1
            if isinstance(signature, GatewayError):
                raise signature
            return signature

        async def tells_config(request: Request) -> Answer:
            return {"max_batch_size": most} if request.operation is Operation.CONFIG else await model(request)

        self.context.models = KnownModels(tells, have_config=most is not None, forward_headers=("authorization",))
        self.settings = Settings(**{"wait": LONG, **keys})
        self.handler = wrap(tells_config, self.settings, self.context)
        self.counts = gather.state(self.settings).counts

    async def known(self, model: Model) -> "Place":
        """This place, when the model has answered once."""
        model.open.set()
        await self.handler(point(1))
        await settle()
        model.open.clear()
        model.calls.clear()
        model.ended = 0
        return self


async def known(compute: Callable[[Request], Response] = doubled, **keys: Any) -> tuple[Model, Place]:
    """A model that has answered once, and `gather` with these keys before it."""
    model = Model(compute)
    return model, await Place(model, **keys).known(model)


async def sent(place: Place, *requests: Request) -> list["asyncio.Task[Answer]"]:
    """The calls, which have all begun."""
    calls = [asyncio.ensure_future(place.handler(each)) for each in requests]
    await settle()
    return calls


@pytest.fixture(autouse=True)
async def no_tasks_are_left() -> Any:
    yield
    await settle()
    assert [each for each in asyncio.all_tasks() if each is not asyncio.current_task()] == []


async def test_requests_that_come_while_one_is_computed_are_sent_as_one_and_split() -> None:
    model, place = await known()
    calls = await sent(place, first := point(1), point(2), point(3, 4), point(5))
    assert model.calls == [first]
    assert model.calls[0] is first  # sent as it came
    assert [numbers(each) for each in await model.answers(calls)] == [[2], [4], [6, 8], [10]]
    assert model.rows == [1, 4]
    assert place.counts.shown()["saved_calls"] == 2


async def test_a_client_alone_never_waits() -> None:
    model, place = await known()
    model.open.set()
    for number in range(3):
        assert numbers(await place.handler(point(number))) == [2 * number]
    assert model.rows == [1, 1, 1]


async def test_those_that_wait_are_sent_when_they_have_enough_rows_and_never_more() -> None:
    model, place = await known(rows=4)
    small = [point(*[each] * (1 + each % 3)) for each in range(20)]
    calls = await sent(place, *small, point(1, 2, 3, 4), point(*"1" * 9))
    assert len(model.calls) > 4
    await model.answers(calls)
    assert max(model.rows[:-2]) <= 4 or set(model.rows) <= {1, 2, 3, 4, 9}
    assert sorted(each for each in model.rows if each > 4) == [9]  # as it came


async def test_the_first_waits_no_longer_than_wait() -> None:
    model = Model()
    second = asyncio.Event()

    async def handler(request: Request) -> Answer:
        if model.calls:
            second.set()
        return await model(request)

    place = await Place(handler, wait=0.001).known(model)
    second.clear()
    calls = await sent(place, point(1), point(2), point(3))
    await asyncio.wait_for(second.wait(), LONG)
    assert model.rows == [1, 2]
    await model.answers(calls)


DIFFERENT = [
    replace(point(2), model="other"),
    replace(point(2), version="2"),
    replace(point(2), parameters={"a": True}),
    replace(point(2), parameters={"a": 1}),
    replace(point(2), outputs=(RequestedOutput("y"),)),
    replace(point(2), outputs=(RequestedOutput("y", {"classification": 1}),)),
    replace(point(2), headers=Headers([(b"authorization", b"Bearer a")])),
    replace(point(2), inputs=(tensor("x", np.ones((1, 3))),)),
    replace(point(2), inputs=(tensor("x", np.ones((1, 2), np.float32)),)),
    replace(point(2), inputs=(tensor("z", np.ones((1, 2))),)),
]


async def test_only_requests_of_one_kind_are_joined() -> None:
    model, place = await known()
    keys = {joining.key_of(each, ("authorization",)) for each in (point(1), *DIFFERENT)}
    assert len(keys) == len(DIFFERENT) + 1
    assert joining.key_of(point(1, id="a", peer="1:2"), ()) == joining.key_of(point(2), ())
    calls = await sent(place, point(1), *DIFFERENT[2:], point(3), point(4))
    assert model.rows == [1] * (len(DIFFERENT) - 1)
    await model.answers(calls)
    assert model.rows[-1] == 2


@pytest.mark.parametrize(
    "request_",
    [
        point(1, parameters={"sequence_id": 7}),
        replace(point(1), operation=Operation.EXPLAIN),
        replace(point(1), inputs=()),
        replace(point(1), tries=Tries(avoided=frozenset({"10.0.0.1:1"}))),
        replace(point(1), tries=Tries(elsewhere=True)),
        replace(point(1), inputs=(tensor("x", np.array(1.0)),)),
        replace(point(1), inputs=(tensor("x", np.ones((2, 2))), tensor("y", np.ones((1, 2))))),
        replace(point(1), inputs=(tensor("x", np.ones((2, 2))), tensor("in_wrt", np.array([[0], [1]])))),
    ],
)
def test_what_has_no_rows_goes_its_way(request_: Request) -> None:
    assert joining.rows_of(request_) is None


def test_a_request_whose_message_says_how_the_model_is_called_is_not_joined() -> None:
    """Classify and Predict of TensorFlow Serving have the same tensors."""
    plain = point(1, origin=Message())
    assert joining.rows_of(plain) == 1
    assert joining.rows_of(replace(plain, origin=ExampleMessage(called="classify"))) is None


async def test_streams_go_their_way() -> None:
    async def stream(request: Request) -> Any:
        yield None

    assert wrap_stream(stream, Settings(), PolicyContext("")) is stream


async def test_a_model_is_asked_about_once_after_it_answered() -> None:
    model, place = await known()
    assert place.asked == 1
    model.open.set()
    with pytest.raises(GatewayError):
        await place.handler(replace(point(-1), model="none"))
    await place.handler(point(1))
    await settle()
    assert place.asked == 1
    place.clock.now = gather.SECONDS_KNOWN
    await place.handler(point(1))
    await settle()
    assert place.asked == 2


VECTORS = Signature((TensorSpec("x", Datatype.FP64, (-1,)),), (TensorSpec("y", Datatype.FP64, (-1,)),))


@pytest.mark.parametrize(
    "told", [{"most": 0}, {"most": None}, {"signature": VECTORS}], ids=["no batches", "no sizes", "no batch dimension"]
)
@pytest.mark.parametrize(("keys", "is_gathered"), [({}, False), ({"models": ["m"]}, True), ({"models": ["n*"]}, False)])
async def test_points_that_may_be_computed_together_are_joined_only_if_the_model_is_named(
    keys: dict[str, Any], is_gathered: bool, told: dict[str, Any]
) -> None:
    """A shape of [-1, -1] may be that of a batch, or of a set of points."""

    def centred(request: Request) -> Response:
        points = request.inputs[0].array
        return Response((tensor("y", points - points.mean(axis=0)),))

    model, place = await known(doubled if is_gathered else centred, **told, **keys)
    calls = await sent(place, point(1), point(2), point(3))
    assert len(model.calls) == (1 if is_gathered else 3)
    expected = [[2], [4], [6]] if is_gathered else [[0], [0], [0]]
    assert [numbers(each) for each in await model.answers(calls)] == expected


async def test_rows_of_a_protocol_whose_points_are_single_are_joined() -> None:
    model = Model()
    place = Place(model, most=None)
    place.context.models = replace(place.context.models, rows=Rows.FIRST)
    await place.known(model)
    calls = await sent(place, point(1), point(2), point(3))
    assert len(model.calls) == 1
    await model.answers(calls)


async def test_the_rows_of_a_named_model_without_metadata_are_joined() -> None:
    model, place = await known(signature=refusal(Reason.UNSUPPORTED, "no metadata"), models=["m"])
    calls = await sent(place, point(1), point(2), point(3))
    assert [numbers(each) for each in await model.answers(calls)] == [[2], [4], [6]]
    assert model.rows == [1, 2]


async def test_of_many_models_a_bounded_number_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MOST_KNOWN", 1)
    model, place = await known()
    model.open.set()
    for name, asked in (("m", 1), ("other", 2), ("m", 3), ("m", 3)):
        await place.handler(replace(point(1), model=name))
        await settle()
        assert place.asked == asked


async def test_the_batch_size_that_the_server_tells_bounds_the_batch() -> None:
    model, place = await known(most=2)
    await model.answers(await sent(place, *map(point, range(7))))
    assert model.rows == [1, 2, 2, 2]


class Asked:
    """A Model whose server is asked for configurations: it raises `error`, never answers, or tells 1000 rows."""

    def __init__(self, model: Model, error: GatewayError | None = None, *, hangs: bool = False) -> None:
        self.model = model
        self.error = error
        self.hangs = hangs
        self.given_up = asyncio.Event()

    async def __call__(self, request: Request) -> Answer:
        if request.operation is not Operation.CONFIG:
            return await self.model(request)
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.set()
        if self.error is not None:
            raise self.error
        return {"max_batch_size": 1000}

    async def place(self, **keys: Any) -> Place:
        place = Place(self, **keys)
        place.handler = wrap(self, place.settings, place.context)
        return await place.known(self.model)

    async def calls(self, place: Place) -> int:
        """How many calls become of three requests at once."""
        self.model.calls.clear()
        self.model.open.clear()
        replies = await sent(place, point(1), point(2), point(3))
        assert [numbers(each) for each in await self.model.answers(replies)] == [[2], [4], [6]]
        return len(self.model.calls)


NO_ANSWER = [
    refusal(Reason.OVERLOADED, "busy"),
    refusal(Reason.NOT_READY, "loading"),
    refusal(Reason.TIMEOUT, "too slow"),
    TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "no connection", sent=False),
]


@pytest.mark.parametrize("keys", [{}, {"models": ["m"]}])
@pytest.mark.parametrize("error", NO_ANSWER, ids=str)
async def test_a_server_that_fails_to_tell_its_batch_size_is_asked_again_before_anything_is_joined(
    error: GatewayError, keys: dict[str, Any]
) -> None:
    asked = Asked(Model(), error)
    place = await asked.place(**keys)
    asked.error = None
    place.clock.now = gather.SECONDS_PAUSED - 1
    assert await asked.calls(place) == 3
    place.clock.now = gather.SECONDS_PAUSED
    await asked.calls(place)
    assert await asked.calls(place) == 2


@pytest.mark.parametrize(
    "reason",
    [Reason.UNSUPPORTED, Reason.MODEL_NOT_FOUND, Reason.INVALID_INPUT, Reason.PERMISSION_DENIED, Reason.MODEL_ERROR],
)
@pytest.mark.parametrize(("keys", "calls"), [({}, 3), ({"models": ["m"]}, 2)])
async def test_a_server_without_configurations_tells_no_batch_size(
    reason: Reason, keys: dict[str, Any], calls: int
) -> None:
    asked = Asked(Model(), refusal(reason, "no such thing"))
    assert await asked.calls(await asked.place(**keys)) == calls


@pytest.mark.parametrize("keys", [{}, {"models": ["m"]}])
async def test_a_server_that_does_not_answer_about_a_model_is_given_up_and_asked_again(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "SECONDS_ASKED", 0.001)
    asked = Asked(Model(), hangs=True)
    place = await asked.place(**keys)
    async with asyncio.timeout(LONG):
        await asked.given_up.wait()
    await settle()
    asked.hangs = False
    assert await asked.calls(place) == 3
    place.clock.now = gather.SECONDS_PAUSED
    await asked.calls(place)
    assert await asked.calls(place) == 2


# Failures of batches, as MLServer's users know them.


def short(request: Request) -> Response:
    return Response((tensor("y", (request.inputs[0].array * 2)[:1]),))


def long(request: Request) -> Response:
    return Response((tensor("y", np.repeat(request.inputs[0].array * 2, request.inputs[0].shape[0], 0)),))


def scalar(request: Request) -> Response:
    return Response((*doubled(request).outputs, tensor("z", np.array(1.0))))


def nothing(request: Request) -> Response:
    return doubled(request) if request.inputs[0].shape[0] == 1 else Response()


def other_name(request: Request) -> Response:
    [output] = doubled(request).outputs
    return Response((output if output.shape[0] == 1 else replace(output, name="z"),))


def unequal(request: Request) -> Response:
    [output] = doubled(request).outputs
    return Response(
        (output,) if output.shape[0] == 1 else (output, replace(output, name="z", shape=(1, output.elements)))
    )


@pytest.mark.parametrize("compute", [short, long, nothing, other_name])
async def test_a_response_that_cannot_be_split_is_asked_for_again_one_by_one(
    compute: Callable[[Request], Response],
) -> None:
    model, place = await known(compute)
    calls = await sent(place, point(1), point(2), point(3))
    assert [numbers(each) for each in await model.answers(calls)] == [[2], [4], [6]]
    assert model.rows == [1, 2, 1, 1]
    await model.answers(await sent(place, *map(point, (4, 5, 6))))
    assert model.rows[4:] == [1, 1, 1]  # not gathered for a while
    assert place.counts.unsplittable == 1


@pytest.mark.parametrize("compute", [short, long, nothing])
async def test_without_safe_such_a_response_is_an_error_for_all(compute: Callable[[Request], Response]) -> None:
    model, place = await known(compute, safe=False)
    calls = await sent(place, point(1), point(2), point(3))
    first, *others = await model.outcomes(calls)
    assert isinstance(first, Response)
    for error in others:
        assert isinstance(error, GatewayError)
        assert error.reason is Reason.INVALID_OUTPUT
        assert "backend 'b': the response of model 'm' to a batch of 2 requests cannot be split" in error.message
    assert model.rows == [1, 2]


Y, Z = tensor("y", np.ones((2, 1))), tensor("z", np.ones((2, 1)))


@pytest.mark.parametrize(
    ("outputs", "wanted", "told"),
    [
        ((), (), "no outputs"),
        ((Y,), ("z",), "no output 'z'"),
        ((replace(Y, name=""),), ("y", "z"), "1 outputs, expected 2"),
        ((Y, replace(Z, shape=(1, 2))), (), "output 'z' of shape [1, 2], expected a first dimension of 2"),
        (
            (Tensor("t", Datatype.BYTES, (2, 1), b"\1\0\0\0a\2"),), (),
            "output 't': BYTES element 1 reaches past the end of the data",
        ),
    ],
)  # fmt: skip
def test_why_a_response_cannot_be_split(outputs: tuple[Tensor, ...], wanted: tuple[str, ...], told: str) -> None:
    with pytest.raises(joining.NotSplittableError) as failed:
        joining.split(Response(outputs), [1, 1], wanted)
    assert str(failed.value) == told


async def test_an_answer_that_is_no_response_to_a_batch_fails_it_for_all() -> None:
    def compute(request: Request) -> Response:
        return doubled(request) if request.inputs[0].shape[0] == 1 else True  # type: ignore[return-value]

    model, place = await known(compute)
    _, *found = await model.outcomes(await sent(place, point(1), point(2), point(3)))
    assert list(map(repr, found)) == ["TypeError('the response to a batch is bool, expected a Response')"] * 2


async def test_who_leaves_while_its_request_is_sent_by_itself_ends_that_call() -> None:
    def compute(request: Request) -> Response:
        if request.inputs[0].shape[0] > 1:
            model.open.clear()  # the requests are now sent one by one, and wait
            raise refusal(Reason.INVALID_INPUT, "one row at a time")
        return doubled(request)

    model, place = await known(compute)
    calls = await sent(place, point(1), point(2), point(3))
    model.open.set()
    await settle()
    assert (model.rows, model.ended) == ([1, 2, 1, 1], 2)
    calls[1].cancel()
    await settle()
    assert model.ended == 3
    _, left, other = await model.outcomes(calls)
    assert isinstance(left, asyncio.CancelledError)
    assert isinstance(other, Response)
    assert numbers(other) == [6]


@pytest.mark.parametrize("compute", [scalar, unequal])
async def test_outputs_that_nobody_asked_for_do_no_harm(compute: Callable[[Request], Response]) -> None:
    model, place = await known(compute)
    wanted = (RequestedOutput("y"),)
    calls = await sent(place, *(replace(point(each), outputs=wanted) for each in (1, 2, 3)))
    _, *joined = await model.answers(calls)
    assert [numbers(each) for each in joined] == [[4], [6]]
    assert model.rows == [1, 2]


async def test_a_bad_row_among_63_harms_nobody() -> None:
    model, place = await known()
    requests = [point(-1 if each == 40 else each, peer=f"10.0.0.{each}:1") for each in range(64)]
    calls = await sent(place, point(0), *requests)
    _, *answers = await model.outcomes(calls)
    bad = answers.pop(40)
    assert isinstance(bad, GatewayError)
    assert bad.message == "a number is below 0"
    expected = [[2 * each] for each in range(64) if each != 40]
    assert [numbers(each) for each in answers if isinstance(each, Response)] == expected
    assert len(model.calls) == 2 + 2 * 6
    await settle()
    model.calls.clear()  # its client is gathered apart now, and the others together
    model.open.clear()
    await model.outcomes(await sent(place, *requests))
    assert sorted(model.rows) == [1, 1, 62]


async def test_without_safe_all_get_the_error_and_the_model_no_batch_for_a_while() -> None:
    model, place = await known(safe=False)
    calls = await sent(place, point(1), point(2), point(-3))
    _, *errors = await model.outcomes(calls)
    text = "a number is below 0 (a batch of 2 requests; set `safe: true` on the backend to find the failing requests)"
    assert [str(each) for each in errors] == [text, text]
    assert errors[0] is not errors[1]
    assert model.rows == [1, 2]
    await model.answers(await sent(place, *map(point, (1, 2, 3))))
    assert model.rows[2:] == [1, 1, 1]
    place.clock.now = gather.SECONDS_PAUSED
    model.open.clear()
    await model.answers(await sent(place, *map(point, (1, 2, 3))))
    assert model.rows[5:] == [1, 2]


async def failures(error: GatewayError, *requests: Request, endpoint: str = "10.0.0.9:1") -> list[GatewayError]:
    """The errors of a batch of `requests` to an unsafe server that answers batches with `error`."""

    def fails(request: Request) -> Response:
        if request.inputs[0].shape[0] == 1:
            return doubled(request)
        error.endpoint = endpoint
        raise error

    model, place = await known(fails, safe=False, by="none")
    first, *found = await model.outcomes(await sent(place, replace(requests[0]), *requests))
    assert isinstance(first, Response)
    assert all(isinstance(each, GatewayError) for each in found)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("error", [refusal(Reason.MODEL_ERROR, "bad: 42"), refusal(Reason.OVERLOADED, "no 42 now")])
async def test_principals_do_not_see_what_a_server_says_of_their_batch(
    error: GatewayError, caplog: pytest.LogCaptureFixture
) -> None:
    """Servers quote their inputs in errors: those of one principal are nothing for another one."""
    found = await failures(error, point(42, principal=Principal("a")), point(2, principal=Principal("b")))
    assert {each.status for each in found} == {error.status}
    for each in found:
        assert "42" not in each.message
        assert "backend 'b' failed a batch with requests of several principals" in each.message
        assert "a batch of 2 requests" in each.message
    assert f"backend 'b': a batch of requests of 2 principals failed: {error.message}" in caplog.text


@pytest.mark.parametrize("names", [("a", "a"), (None, None)])
async def test_one_principal_sees_what_a_server_says_of_its_batch(names: tuple[str | None, str | None]) -> None:
    who = [None if name is None else Principal(name) for name in names]
    found = await failures(refusal(Reason.MODEL_ERROR, "bad: 42"), *(point(2, principal=each) for each in who))
    assert all(each.message.startswith("bad: 42 (a batch of 2 requests") for each in found)


@pytest.mark.parametrize("reason", [Reason.UNREACHABLE, Reason.TIMEOUT])
async def test_all_principals_see_why_a_server_cannot_be_reached(reason: Reason) -> None:
    error = TransportError(reason.status, reason, "it is away", sent=True)
    found = await failures(error, *(point(2, principal=Principal(name)) for name in "ab"))
    assert all(each.message.startswith("it is away (a batch") for each in found)


async def test_all_principals_see_what_the_gateway_says_of_their_batch() -> None:
    error = refusal(Reason.OVERLOADED, "the queue is full")
    found = await failures(error, *(point(2, principal=Principal(name)) for name in "ab"), endpoint="")
    assert [each.message for each in found] == ["the queue is full (a batch of 2 requests)"] * 2


async def test_what_a_server_printed_is_nothing_for_several_principals() -> None:
    error = DetailedError(Status.UNAVAILABLE, Reason.UNREACHABLE, "it ended", "row 42", sent=True)
    found = await failures(error, *(point(2, principal=Principal(name)) for name in "ab"))
    assert not any("42" in each.message for each in found)


async def test_bad_rows_cannot_multiply_the_calls() -> None:
    model, place = await known()
    seen = 0
    for _ in range(30):
        model.open.clear()
        await model.outcomes(await sent(place, *(point(-1, peer="10.0.0.1:1") for _ in range(64))))
        seen += 64
    assert place.counts.further <= gather.SHARE * seen + gather.LEAST + 64
    assert len(model.calls) <= (1 + gather.SHARE) * seen + gather.LEAST + 64


async def test_a_batch_that_was_too_large_makes_later_ones_smaller() -> None:
    def up_to_4(request: Request) -> Response:
        if request.inputs[0].shape[0] > 4:
            raise refusal(Reason.INVALID_INPUT, "batch-size must be <= 4")
        return doubled(request)

    model, place = await known(up_to_4)
    for _ in range(2):
        model.open.clear()
        calls = await sent(place, *map(point, range(17)))
        assert [numbers(each) for each in await model.answers(calls)] == [[2 * each] for each in range(17)]
        await settle()
    assert model.rows == [1, 16, 8, 8, 4, 4, 4, 4, 1, 4, 4, 4, 4]


@pytest.mark.parametrize(
    "error",
    [
        TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "away", sent=False),
        refusal(Reason.OVERLOADED, "away", retry_after=3),
    ],
)
async def test_an_error_that_is_no_rows_fault_is_that_of_all(error: GatewayError) -> None:
    model, place = await known()

    def fails(request: Request) -> Response:
        raise error

    model.compute = fails
    _, *errors = await model.outcomes(await sent(place, *map(point, range(4))))
    assert [str(each) for each in errors] == ["away (a batch of 3 requests)"] * 3
    assert [getattr(each, "sent", None) for each in errors] == [getattr(error, "sent", None)] * 3
    assert [getattr(each, "retry_after", None) for each in errors] == [error.retry_after] * 3
    assert model.rows == [1, 3]


# Cancels and deadlines


async def test_a_cancelled_request_is_taken_out_before_the_batch_is_sent() -> None:
    model, place = await known()
    calls = await sent(place, *map(point, range(4)))
    calls[2].cancel()
    await settle()
    answers = await model.outcomes(calls)
    assert isinstance(answers.pop(2), asyncio.CancelledError)
    assert [numbers(each) for each in answers if isinstance(each, Response)] == [[0], [2], [6]]
    assert model.calls[1].inputs[0].array[:, 0].tolist() == [1, 3]


async def test_while_a_batch_is_computed_the_others_go_on_and_with_the_last_it_is_cancelled() -> None:
    model, place = await known(rows=3)
    calls = await sent(place, *map(point, range(7)))
    assert model.rows == [1, 3, 3]
    calls[1].cancel()
    for each in calls[4:]:
        each.cancel()
    await settle()
    assert model.ended == 1  # the batch whose clients have all left
    answers = await model.outcomes(calls)
    assert [numbers(each) for each in answers if isinstance(each, Response)] == [[0], [4], [6]]


@pytest.mark.parametrize("steps", range(14))
async def test_a_cancel_at_any_moment_leaves_nothing_behind(steps: int) -> None:
    model, place = await known()
    calls = [asyncio.ensure_future(place.handler(point(-each, peer=f"{each}:1"))) for each in range(6)]
    await settle()
    model.open.set()
    await settle(steps)
    for each in calls[1:4]:
        each.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await settle()
    model.open.set()
    assert numbers(await place.handler(point(1))) == [2]
    assert model.ended == len(model.calls)


async def test_a_deadline_ends_its_request_alone_and_the_batch_has_the_latest() -> None:
    model, place = await known()
    now = asyncio.get_running_loop().time()
    calls = await sent(place, point(1), point(2, deadline=now + 0.01), point(3, deadline=now + 100))
    with pytest.raises(GatewayError) as error:
        await calls[1]
    assert (error.value.status, getattr(error.value, "sent", None)) == (Status.DEADLINE_EXCEEDED, False)
    calls += await sent(place, point(4, deadline=now + 200))
    assert [numbers(each) for each in await model.answers([calls[0], *calls[2:]])] == [[2], [6], [8]]
    assert model.calls[1].deadline == now + 200
    assert model.rows == [1, 2]


class Queued(Model):
    """A Model whose calls wait for a slot until it is let go."""

    async def __call__(self, request: Request) -> Answer:
        if request.operation is not Operation.INFER:
            return True
        begin_wait(2)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            note_wait(2, 5.0, 1.0)
            raise
        note_wait(2, 5.0)
        return await super().__call__(request)


async def waited(place: Place, request: Request) -> "tuple[Answer | GatewayError, QueueWait | None]":
    """The answer to a request, or its error, and the wait that its client is told of."""
    try:
        answer: Answer | GatewayError = await place.handler(request)
    except GatewayError as error:
        answer = error
    return answer, queue_wait.get()


async def test_each_request_of_a_batch_is_told_how_long_the_batch_waited_for_a_slot() -> None:
    model = Queued()
    place = await Place(model).known(model)
    calls = [asyncio.ensure_future(waited(place, point(each))) for each in (1, 2, 3)]
    await settle()
    model.open.set()
    found = [await each for each in calls]
    assert model.rows == [1, 2]
    assert [numbers(answer) for answer, _ in found if not isinstance(answer, GatewayError)] == [[2], [4], [6]]
    assert [wait is not None and wait.place for _, wait in found] == [2, 2, 2]


@pytest.mark.parametrize("left", [1, 2])
async def test_a_deadline_while_the_batch_waits_tells_the_wait_and_whether_the_batch_goes_on(left: int) -> None:
    model = Queued()
    place = await Place(model, rows=2).known(model)
    now = asyncio.get_running_loop().time()
    deadlines = [None, now + 0.01, now + 0.01 if left == 2 else None]
    calls = [asyncio.ensure_future(waited(place, point(1, deadline=each))) for each in deadlines]
    error, wait = await calls[1]
    assert isinstance(error, TransportError)
    assert wait is not None
    assert (error.sent, wait.retry_after) == ((False, LATER) if left == 2 else (True, None))
    assert ("of which" in error.message) is (left == 1)  # else tell_wait says it
    model.open.set()
    await asyncio.gather(*calls)


async def test_a_hung_backend_holds_nobody_beyond_its_deadline() -> None:
    model, place = await known(rows=2)
    deadline = asyncio.get_running_loop().time() + 0.01
    calls = await sent(place, *(point(each, deadline=deadline) for each in range(1, 5)))
    calls[0].cancel()  # the one that was sent as it came: the endpoint keeps its deadline
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in ended[1:]] == [TransportError] * 3
    await settle()
    assert model.ended == len(model.calls)


async def test_1000_clients_get_their_own_answers() -> None:
    model, place = await known()
    calls = await sent(place, *(point(each, peer=f"10.0.{each // 250}.{each % 250}:1") for each in range(1000)))
    assert [numbers(each) for each in await model.answers(calls)] == [[2 * each] for each in range(1000)]
    assert max(model.rows) == 64
    assert len(model.calls) == 1 + 16


@pytest.mark.parametrize(("by", "firsts"), [("none", 1), ("client", 2), ("principal", 3), ("auto", 3)])
async def test_by_says_whose_requests_are_joined(by: str, firsts: int) -> None:
    model, place = await known(by=by)
    a, b, c = (Principal(each) for each in "abc")
    all_ = [("1:1", a), ("1:2", b), ("2:1", c), ("2:2", c)]
    await model.answers(await sent(place, *(point(1, peer=peer, principal=who) for peer, who in 2 * all_)))
    assert sum(model.rows[firsts:]) == 8 - firsts
    assert len(model.rows[firsts:]) == firsts


async def test_by_default_clients_without_a_principal_are_joined_wherever_they_are() -> None:
    model, place = await known()
    await model.answers(await sent(place, *(point(1, peer=f"10.0.0.{each}:1") for each in range(5))))
    assert model.rows == [1, 4]


async def test_the_records_of_all_requests_tell_of_the_batch() -> None:
    model, place = await known()
    records = [made((), str(each), "l", "v2-rest", "", 0.0, 0) for each in range(3)]
    records[1].events = []

    def noted(request: Request) -> Response:
        assert request.record is not None
        route(request.record, "", "b", "here").tries = 1
        return doubled(request)

    model.compute = noted
    await model.answers(await sent(place, *(point(1, record=each) for each in records)))
    assert [(each.endpoint, each.tries) for each in records] == [("here", 1)] * 3
    [span] = records[1].events
    assert span.name == "gather"
    assert span.facts == {"backend": "b", "endpoint": "here", "requests": 2, "rows": 2}


async def test_the_batch_is_a_request_of_no_client_unless_all_are_of_one() -> None:
    joined = joining.join([point(1, peer="1.1.1.1:5", id="a"), point(2, peer="2.2.2.2:5", id="b")])
    assert (joined.client, joined.id, joined.origin) == ("", None, None)
    assert joining.join([point(1, peer="1.1.1.1:5"), point(2, peer="1.1.1.1:6")]).client == "1.1.1.1"


def test_the_endpoints_of_a_batch_are_those_of_all_its_requests() -> None:
    first, second = list[str](), ["10.0.0.7:1"]
    requests = [point(1, tries=Tries(2.0, places=first)), point(2, tries=Tries(2.0, places=second)), point(3)]
    tries = joining.join(requests).tries
    assert tries is not None
    tries.began("10.0.0.8:1")
    tries.began("10.0.0.9:1")
    tries.answered("10.0.0.9:1")
    assert (first, second, tries.seconds) == (["10.0.0.8:1"], ["10.0.0.7:1", "10.0.0.8:1"], 2.0)
    without = joining.join([point(1, tries=Tries(2.0)), point(2, tries=Tries(2.0))]).tries
    assert without == Tries(2.0)


async def test_counts_outlive_a_reload() -> None:
    model, place = await known()
    await model.answers(await sent(place, point(1), point(2), point(3)))
    after = gather.state(Settings())
    after.take_over(gather.state(place.settings), is_unchanged=False)
    assert (after.status()["joined"], after.status()["alone"]) == (2, 2)


def test_rows_of_a_response_are_views_of_its_data() -> None:
    texts = Tensor("t", Datatype.BYTES, (2, 1), b"\1\0\0\0a\2\0\0\0bc")
    both = Response((tensor("y", np.arange(4.0).reshape(2, 2)), texts))
    first, second = joining.split(both, [1, 1], ())
    for each in (*first.outputs, *second.outputs):
        assert isinstance(each.data, memoryview)
    assert first.outputs[1].array.tolist() == [[b"a"]]
    assert second.outputs[1].array.tolist() == [[b"bc"]]
    assert second.outputs[0].data.obj is memoryview(both.outputs[0].data).obj  # type: ignore[union-attr]


@given(rows=ROWS, datatype=ELEMENTS, width=st.integers(0, 3), data=st.data())
def test_the_rows_of_a_joined_request_split_again_are_the_requests(
    rows: list[int], datatype: Datatype, width: int, data: st.DataObject
) -> None:
    def made(count: int) -> Tensor:
        elements = count * width
        if datatype is Datatype.BYTES:
            texts = data.draw(st.lists(TEXTS, min_size=elements, max_size=elements))
            return Tensor("x", datatype, (count, width), bytes_elements.pack(texts))
        size = elements * datatype.size
        return Tensor("x", datatype, (count, width), data.draw(st.binary(min_size=size, max_size=size)))

    requests = [Request(Operation.INFER, "m", inputs=(made(count), made(count))) for count in rows]
    joined = joining.join(requests)
    answers = joining.split(Response(joined.inputs), rows, ())
    assert [each.outputs for each in answers] == [each.inputs for each in requests]
