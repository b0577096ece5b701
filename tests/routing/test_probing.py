"""Which endpoints are probed when, and what the outcome of a probe counts for."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Servers, Target, Traits
from gateway.core.requests import Answer, Request
from gateway.routing.backend import local_backend
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import State
from gateway.routing.probing import Prober, Probes
from tests.limits import settle, until
from tests.routing.fakes import TOY, Wire

PROBES = Probes(Operation.LIVE, interval=10.0, timeout=0.01, unhealthy=2)
PATIENT = replace(PROBES, timeout=0.5)
"""Probes that still run when the test does the next thing."""
ONE_CONNECTION = Traits(servers=Servers(max_in_flight=1, one_connection=True))
TO_THE_END = Traits(servers=Servers(runs_to_the_end=True))


def says(answer: Callable[[Request], Answer]) -> Protocol:
    return replace(TOY, decode_response=lambda message, request, target: answer(request))


class Lab:
    """A Prober of a backend with these wires."""

    def __init__(
        self,
        wires: int = 1,
        answer: Callable[[Request], Answer] = lambda request: True,
        probes: Probes = PROBES,
        traits: Traits | None = None,
        limit: int = 0,
        randomly: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self.now = 1000.0
        self.asked: list[tuple[str, Operation]] = []
        protocol = says(answer)
        self.protocol = replace(protocol, traits=traits) if traits else protocol
        self.wires = [Wire() for _ in range(wires)]
        for wire in self.wires:
            wire.answers_at_once = True
        self.endpoints = [Endpoint(f"host:{at}", wire, lambda: self.now) for at, wire in enumerate(self.wires)]
        self.backend = local_backend(Target("lab"), self.protocol, self.endpoints, limit)
        self.prober = Prober(self.backend, probes, lambda: self.now, randomly)

    async def rounds(self, count: int) -> None:
        """So many rounds, each waited for."""
        for _ in range(count):
            self.now += self.prober.round()
            await self.ended()

    async def ended(self) -> None:
        running = [each.probe for each in self.endpoints if each.probe]
        await asyncio.gather(*running)
        await settle()

    @property
    def states(self) -> list[State]:
        return [each.health.state for each in self.endpoints]

    @property
    def failure(self) -> str | None:
        """What the first endpoint failed with last."""
        last = self.endpoints[0].health.last
        return None if last is None else last.text

    @property
    def counts(self) -> list[int]:
        return [len(wire.sent) for wire in self.wires]


async def test_every_endpoint_is_asked_once_in_an_interval() -> None:
    lab = Lab(2)
    await lab.rounds(1)  # only spreads them
    await lab.rounds(1)
    assert lab.counts == [1, 1]
    assert lab.states == [State.UP, State.UP]
    await lab.rounds(3)
    assert lab.counts == [4, 4]
    assert [each.in_flight for each in lab.endpoints] == [0, 0]


async def test_waits_are_spread_at_the_start_and_differ_by_the_jitter() -> None:
    numbers = iter([0.25, 0.75, 0.0, 1.0])
    lab = Lab(2, probes=replace(PROBES, jitter=0.2), randomly=lambda: next(numbers))
    assert lab.prober.round() == pytest.approx(10 * 0.2 * 0.25)
    assert [each.next_probe for each in lab.endpoints] == pytest.approx([1000.5, 1001.5])
    lab.now = 1001.5
    lab.prober.round()
    assert [each.next_probe for each in lab.endpoints] == pytest.approx([1001.5 + 8.0, 1001.5 + 12.0])
    await lab.ended()


async def test_endpoints_that_come_are_probed_and_those_that_go_are_not() -> None:
    lab = Lab(2)
    first, second = lab.endpoints
    lab.backend.local.endpoints = (first,)
    await lab.rounds(2)
    lab.backend.local.endpoints = (second,)
    await lab.rounds(3)
    assert lab.counts == [1, 2]


async def test_no_endpoint_has_two_probes_at_once_and_backends_that_share_it_share_the_probes() -> None:
    lab = Lab(probes=replace(PROBES, timeout=60.0))
    lab.wires[0].answers_at_once = False
    other = Prober(local_backend(Target("other"), lab.protocol, lab.endpoints, 0), lab.prober._probes, lambda: lab.now)
    for _ in range(5):
        lab.now += max(lab.prober.round(), other.round())
        await settle()
    assert lab.counts == [1]
    lab.wires[0].answer()
    await lab.ended()
    lab.now += 20
    for prober in (lab.prober, other):
        prober.round()
    await settle()
    assert lab.counts == [2]
    await lab.prober.stop()
    await other.stop()


async def test_what_gets_no_answer_is_down_and_used_again_when_it_answers() -> None:
    lab = Lab()
    told: list[str] = []
    lab.backend.on_recovery(lambda: told.append("back"))
    lab.wires[0].answers_at_once = False
    await lab.rounds(3)
    assert lab.states == [State.DOWN]
    assert lab.failure == "probe: no answer within 0.01 s"
    lab.wires[0].answers_at_once = True
    await lab.rounds(1)
    assert (lab.states, told) == ([State.UP], ["back"])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "probe: the server reports that it is not live"),
        (
            refusal(Reason.MODEL_ERROR, "secret words of the server"),
            "probe: the server's response to the live query is INTERNAL",
        ),
    ],
)
async def test_a_server_that_says_no_is_down_whatever_its_calls_say(error: GatewayError | None, text: str) -> None:
    def answer(request: Request) -> Answer:
        if error is not None:
            raise error
        return False

    lab = Lab(answer=answer)
    await lab.rounds(3)
    lab.endpoints[0].health.answered()
    assert (lab.states, lab.failure) == ([State.DOWN], text)


async def test_what_cannot_be_reached_is_told_without_the_backends_name() -> None:
    lab = Lab()
    lab.wires[0].refuses = True
    await lab.rounds(2)
    assert lab.failure == "probe: connection refused"


@pytest.mark.parametrize(
    ("traits", "limit", "probed"),
    [(ONE_CONNECTION, 1, 0), (TO_THE_END, 0, 0), (Traits(), 1, 0), (Traits(), 2, 1), (Traits(), 0, 1)],
    ids=["one connection", "to the end", "one slot", "two slots", "any number"],
)
async def test_an_endpoint_that_can_answer_nothing_else_is_not_probed_while_it_runs_a_call(
    traits: Traits, limit: int, probed: int
) -> None:
    lab = Lab(traits=traits, limit=limit)
    lab.endpoints[0].take()
    await lab.rounds(2)
    assert lab.counts == [probed]
    lab.endpoints[0].give_back()
    await lab.rounds(1)
    assert lab.counts == [probed + 1]


async def test_a_call_gets_the_only_slot_while_a_probe_runs_and_excuses_it() -> None:
    lab = Lab(probes=PATIENT, traits=ONE_CONNECTION, limit=1)
    lab.wires[0].answers_at_once = False
    for _ in range(4):
        lab.now += lab.prober.round()
        await settle()
        call = asyncio.ensure_future(lab.backend(Request(Operation.INFER, "m")))
        await settle()
        assert len(lab.backend.queue) == 0
        await lab.ended()
        lab.wires[0].open[-1].set_result(Message(status=200))
        await call
    assert lab.counts[0] > 4
    assert lab.failure is None


async def test_an_answer_to_a_call_meanwhile_excuses_a_probe_that_gets_none() -> None:
    lab = Lab(probes=PATIENT)
    lab.wires[0].answers_at_once = False
    for _ in range(4):
        lab.now += lab.prober.round()
        await settle()
        lab.endpoints[0].health.answered()
        await lab.ended()
    assert lab.states == [State.UP]


async def test_a_backend_is_ready_by_the_outcome_of_probes_and_nobody_else_asks() -> None:
    lab = Lab(2)
    assert not await lab.backend.is_ready()
    lab.wires[0].refuses = True
    await lab.rounds(3)
    sent = lab.counts
    assert lab.states == [State.DOWN, State.UP]
    assert await lab.backend.is_ready()
    lab.wires[1].refuses = True
    await lab.rounds(2)
    assert not await lab.backend.is_ready()
    assert lab.counts == sent


async def calls(lab: Lab, count: int) -> None:
    for _ in range(count):
        await lab.backend(Request(Operation.INFER, "m"))


async def test_an_endpoint_that_is_down_gets_no_calls_unless_it_is_the_last() -> None:
    lab = Lab(2)
    lab.wires[0].answers_at_once = False
    await lab.rounds(3)
    sent = lab.counts
    await calls(lab, 4)
    assert [after - before for before, after in zip(sent, lab.counts, strict=True)] == [0, 4]
    lab.wires[1].answers_at_once = False
    await lab.rounds(2)
    for wire in lab.wires:
        wire.answers_at_once = True
    await calls(lab, 4)


@pytest.mark.parametrize("count", [1, 2])
async def test_if_all_may_be_left_out_calls_fail_at_once_while_all_are_down(count: int) -> None:
    lab = Lab(count)
    lab.backend = local_backend(Target("lab"), lab.protocol, lab.endpoints, 0, EndpointChoice(most_left_out=1.0))
    for endpoint in lab.endpoints:
        for _ in range(2):
            endpoint.probe_failed("probe: no answer within 2 s", 2, refused=False)
    for operation in (Operation.INFER, Operation.METADATA):
        with pytest.raises(GatewayError) as failed:
            await lab.backend(Request(operation, "m"))
        assert failed.value.reason is Reason.UNREACHABLE
        assert failed.value.message == "all endpoints of backend 'lab' are down: probe: no answer within 2 s"
    assert lab.counts == [0] * count
    lab.endpoints[0].probe_passed(1)
    await calls(lab, 1)


async def test_probes_run_until_they_are_stopped() -> None:
    lab = Lab(probes=replace(PROBES, interval=0.001, timeout=60.0))
    lab.prober._clock = asyncio.get_running_loop().time
    lab.prober.start()
    await until(lambda: lab.counts[0] >= 3, 0)
    lab.wires[0].answers_at_once = False
    await until(lambda: lab.wires[0].open, 0)
    await lab.prober.stop()
    sent = lab.counts
    assert lab.wires[0].open[0].cancelled()
    await settle()
    assert lab.counts == sent
    assert lab.endpoints[0].probe is None


async def test_the_others_are_probed_where_the_probe_of_one_endpoint_fails_unexpectedly(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(wires=3)
    is_busy = lab.backend.local.is_busy

    def failing(endpoint: Endpoint) -> bool:
        if endpoint is lab.endpoints[1]:
            raise ValueError("the fault")
        return is_busy(endpoint)

    monkeypatch.setattr(lab.backend.local, "is_busy", failing)
    await lab.rounds(4)
    assert lab.counts == [3, 0, 3]
    assert "unexpected error in beginning a probe of host:1" in caplog.text


async def test_a_probe_that_fails_unexpectedly_is_logged_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(request: Request) -> Answer:
        raise ValueError("the fault")

    lab = Lab(answer=answer)
    await lab.rounds(4)
    assert lab.counts == [3]
    assert "unexpected error in a probe of host:0" in caplog.text
