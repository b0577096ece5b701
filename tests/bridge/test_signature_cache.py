"""What is remembered of a backend's models, and for how long."""

import asyncio
from sys import getrefcount

import pytest

from gateway.bridge.derivatives import companion_signature
from gateway.bridge.shapes import as_batches
from gateway.bridge.signature_cache import LONGEST_CONFIG, MOST_KEPT, SECONDS_KEPT, SignatureCache
from gateway.core.errors import GatewayError, Reason, not_found, refusal
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Models, Traits, Wire
from gateway.core.requests import Answer, Request
from tests.bridge.configured import TELLS_CONFIGS
from tests.bridge.fakes import TENSORS, signature, spec
from tests.bridge.values import INT64
from tests.clock import Clock
from tests.limits import settle

MODEL = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))
KEY = ("m", "", "")


class Backend:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.answers: list[asyncio.Future[Signature]] = []

    async def __call__(self, request: Request) -> Answer:
        self.asked.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signatures(backend: Backend, clock: Clock) -> SignatureCache:
    return SignatureCache(backend, TENSORS.traits, clock)


async def begun(signatures: SignatureCache, key: tuple[str, str, str] = KEY) -> "asyncio.Task[Signature]":
    """A caller that waits."""
    task = asyncio.ensure_future(signatures.get(key))
    await settle()
    return task


async def fetch(signatures: SignatureCache, backend: Backend) -> None:
    task = await begun(signatures)
    backend.answers[-1].set_result(MODEL)
    assert await task is MODEL


@pytest.fixture
def joined() -> list[int]:
    """How many callers wait beside those that the backend sees, after each change."""
    return [0]


@pytest.fixture
def counted(backend: Backend, joined: list[int]) -> SignatureCache:
    """A cache that tells of `joined`."""
    return SignatureCache(backend, TENSORS.traits, Clock(), lambda change: joined.append(joined[-1] + change))


async def test_many_that_ask_at_once_ask_the_backend_once(signatures: SignatureCache, backend: Backend) -> None:
    tasks = [await begun(signatures) for _ in range(3)]
    (answer,) = backend.answers
    answer.set_result(MODEL)
    assert await asyncio.gather(*tasks) == [MODEL] * 3
    assert signatures.kept(KEY) is MODEL


async def test_callers_that_wait_beside_the_one_that_the_backend_sees_are_counted(
    counted: SignatureCache, backend: Backend, joined: list[int]
) -> None:
    calls = [await begun(counted) for _ in range(4)]
    other = await begun(counted, ("other", "", ""))
    assert joined[-1] == 3
    calls[0].cancel()  # the backend still answers
    await settle()
    assert joined[-1] == 2
    counted.drop("m")  # those that come now ask anew
    late = await begun(counted)
    assert joined[-1] == 2
    for answer in backend.answers:
        answer.set_result(MODEL)
    await asyncio.gather(*calls[1:], other, late)
    assert joined[-1] == 0


async def test_callers_that_all_leave_or_get_an_error_are_not_counted_any_more(
    counted: SignatureCache, backend: Backend, joined: list[int]
) -> None:
    for call in [await begun(counted) for _ in range(3)]:
        call.cancel()
    await settle()
    assert joined[-1] == 0
    calls = [await begun(counted) for _ in range(3)]
    assert joined[-1] == 2
    backend.answers[0].set_exception(not_found("no such model"))
    await asyncio.gather(*calls, return_exceptions=True)
    assert joined[-1] == 0


async def test_the_first_that_leaves_does_not_take_the_answer_from_the_others(
    signatures: SignatureCache, backend: Backend
) -> None:
    first, second = await begun(signatures), await begun(signatures)
    first.cancel()
    await settle()
    backend.answers[0].set_result(MODEL)
    assert await second is MODEL
    assert first.cancelled()


async def test_a_signature_is_kept_for_a_minute(signatures: SignatureCache, backend: Backend, clock: Clock) -> None:
    await fetch(signatures, backend)
    clock.now = SECONDS_KEPT - 0.1
    assert await signatures.get(KEY) is MODEL
    clock.now = SECONDS_KEPT
    assert signatures.kept(KEY) is None
    await fetch(signatures, backend)
    assert len(backend.asked) == 2


async def test_an_error_is_told_to_all_and_not_kept(signatures: SignatureCache, backend: Backend) -> None:
    tasks = [await begun(signatures) for _ in range(2)]
    backend.answers[0].set_exception(not_found("no m"))
    for task in tasks:
        with pytest.raises(GatewayError, match="no m"):
            await task
    await fetch(signatures, backend)


async def test_a_dropped_model_is_asked_again_and_others_are_not(signatures: SignatureCache, backend: Backend) -> None:
    await fetch(signatures, backend)
    signatures.drop("other")
    assert signatures.kept(KEY) is MODEL
    signatures.drop("m")
    assert signatures.kept(KEY) is None
    await fetch(signatures, backend)
    signatures.drop_all()
    assert signatures.kept(KEY) is None


async def test_what_was_dropped_on_its_way_is_not_remembered(signatures: SignatureCache, backend: Backend) -> None:
    old = await begun(signatures)
    signatures.drop("m")
    new = await begun(signatures)
    newer = signature(gives=(spec("y", 2),))
    backend.answers[0].set_result(MODEL)
    assert await old is MODEL
    assert signatures.kept(KEY) is None
    backend.answers[1].set_result(newer)
    assert await new is newer
    assert signatures.kept(KEY) is newer


async def test_there_is_an_end_to_what_clients_can_make_it_keep() -> None:
    async def answer(request: Request) -> Answer:
        return MODEL

    signatures = SignatureCache(answer, TENSORS.traits, Clock())
    for number in range(MOST_KEPT + 1):
        await signatures.get(("m", "", str(number)))
    assert signatures.kept(("m", "", "0")) is None
    assert signatures.kept(("m", "", "1")) is MODEL
    assert signatures.kept(("m", "", str(MOST_KEPT))) is MODEL


async def test_metadata_that_is_not_trusted_is_not_asked_for(backend: Backend, clock: Clock) -> None:
    assert await SignatureCache(backend, Traits(models=Models(trusted_metadata=False)), clock).get(KEY) == Signature()
    assert backend.asked == []


async def test_the_parts_make_one_signature(clock: Clock) -> None:
    told = {
        "in": Signature(inputs=(spec("", 2),), operations=frozenset()),
        "out": Signature(outputs=(spec("", 1),), operations=frozenset()),
        "can": Signature(operations=frozenset({Operation.GRADIENT})),
    }
    asked: list[Request] = []

    async def answer(request: Request) -> Answer:
        asked.append(request)
        return told[request.part]

    traits = Traits(wire=Wire(points=True), models=Models(metadata_parts=tuple(told)))
    found = await SignatureCache(answer, traits, clock).get(("m", "1", "{}"))
    assert (found.inputs, found.outputs) == ((spec("input0", -1, 2),), (spec("output0", -1, 1),))
    assert found.operations == {Operation.GRADIENT}
    assert [(each.part, each.model, each.version, each.parameters) for each in asked] == [
        (part, "m", "1", {"config": "{}"}) for part in told
    ]


def test_the_derivative_of_a_batched_model() -> None:
    base = as_batches(signature(spec("", 2), spec("", 2), gives=(spec("", 1), spec("", 3))))
    found = companion_signature(base, Operation.APPLY_HESSIAN)
    assert found.inputs == (
        *base.inputs, spec("out_wrt", -1, 1, datatype=INT64), spec("in_wrt1", -1, 1, datatype=INT64),
        spec("in_wrt2", -1, 1, datatype=INT64), spec("sens", -1, -1), spec("vec", -1, 2),
    )  # fmt: skip
    assert found.outputs == (spec("output", -1, 2),)


def test_the_derivative_of_a_model_without_a_batch() -> None:
    found = companion_signature(signature(spec("x", 2), gives=(spec("y", 3),)), Operation.APPLY_JACOBIAN)
    assert found.inputs[1:] == (
        spec("out_wrt", 1, datatype=INT64), spec("in_wrt", 1, datatype=INT64), spec("vec", 2),
    )  # fmt: skip
    assert found.outputs == (spec("output", 3),)


def test_the_derivative_of_an_unknown_model_is_unknown() -> None:
    assert companion_signature(Signature(), Operation.GRADIENT) == Signature()


async def test_a_long_config_is_told_to_the_backend_and_not_held_on_to(
    signatures: SignatureCache, backend: Backend
) -> None:
    config = f'{{"mesh": "{"fine" * LONGEST_CONFIG}\ud800"}}'
    uses = getrefcount(config)
    task = await begun(signatures, ("m", "", config))
    assert backend.asked.pop().parameters["config"] is config
    backend.answers.pop().set_result(MODEL)
    assert await task is MODEL
    del task
    assert signatures.kept(("m", "", config)) is MODEL
    assert signatures.kept(("m", "", config.replace("mesh", "time"))) is None
    assert getrefcount(config) == uses


async def test_a_signature_that_cannot_be_confirmed_stands(
    signatures: SignatureCache, backend: Backend, clock: Clock
) -> None:
    await fetch(signatures, backend)
    clock.now += 2
    confirming = asyncio.ensure_future(signatures.confirm(KEY))
    await settle()
    backend.answers[-1].set_exception(refusal(Reason.NOT_READY, "starting"))
    assert await confirming is False
    assert signatures.kept(KEY) is MODEL


async def test_an_answer_about_streams_is_not_kept_without_its_signature(backend: Backend, clock: Clock) -> None:
    signatures = SignatureCache(backend, TELLS_CONFIGS.traits, clock)
    await fetch(signatures, backend)
    about_streams = asyncio.ensure_future(signatures.streams_only(KEY))
    await settle()
    signatures.drop("m")
    backend.answers[-1].set_result({"model_transaction_policy": {"decoupled": True}})  # type: ignore[arg-type]
    assert await about_streams
    assert signatures.kept(KEY) is None


async def test_a_newer_signature_survives_the_answer_about_streams(backend: Backend, clock: Clock) -> None:
    """The model has changed between the two questions."""
    signatures = SignatureCache(backend, TELLS_CONFIGS.traits, clock)
    await fetch(signatures, backend)
    about_streams = asyncio.ensure_future(signatures.streams_only(KEY))
    await settle()
    assert backend.asked[-1].operation is Operation.CONFIG
    config = backend.answers[-1]
    signatures.drop("m")
    later = await begun(signatures)
    newer = signature(spec("z", -1, 3), gives=(spec("y", -1, 1),))
    backend.answers[-1].set_result(newer)
    await later
    config.set_result({"model_transaction_policy": {"decoupled": True}})  # type: ignore[arg-type]
    assert await about_streams
    kept = signatures.kept(KEY)
    assert kept is not None
    assert kept.inputs == newer.inputs
    assert Operation.STREAM in kept.operations
