"""Whether a listener calls itself ready."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.core.errors import GatewayError, Status, unsupported
from gateway.core.frozen import replace
from gateway.core.models import NotReady
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Servers, Target, Traits
from gateway.core.requests import Answer, Request
from gateway.routing.backend import Backend, local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.readiness import SECONDS_KEPT, BackendReadiness, Readiness
from tests.limits import settle
from tests.routing.fakes import TOY, Wire


def asking(operation: Operation, listener: str = "http", protocol: str = "grps") -> Request:
    return Request(operation, listener=listener, protocol=protocol)


READY = asking(Operation.READY)
ONLINE, OFFLINE = asking(Operation.ONLINE), asking(Operation.OFFLINE)


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
    text = f"listener 'http' does not allow {operation.value}; set `allow_offline: true` on it"
    assert refused.value.message == text
    assert here.of(READY)


# Backends


class Lab:
    """Backends of which some are ready, and a count of the questions."""

    def __init__(self, **ready: bool) -> None:
        self.now = 0.0
        self.ready = ready
        self.asked = 0
        self.backends = BackendReadiness({name: self._question(name) for name in ready}, lambda: self.now, wait=0.01)

    def _question(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def question() -> bool:
            self.asked += 1
            return self.ready[name]

        return question


@pytest.mark.parametrize(
    ("rule", "first", "second", "why"),
    [
        ("any", True, False, ""),
        ("any", False, False, "not ready: backends 'a', 'b'"),
        ("all", True, True, ""),
        ("all", True, False, "not ready: backend 'b'"),
        ("none", False, False, ""),
    ],
)
async def test_the_rule_says_which_backends_must_be_ready(rule: str, first: bool, second: bool, why: str) -> None:
    assert await Lab(a=first, b=second).backends.why_not(rule) == why


@pytest.mark.parametrize("rule", ["any", "all", "none"])
async def test_without_backends_nothing_is_missing(rule: str) -> None:
    assert await Lab().backends.why_not(rule) == ""


async def test_a_flood_of_questions_is_one_question_a_second() -> None:
    lab = Lab(a=True)
    await asyncio.gather(*(lab.backends.why_not("any") for _ in range(1000)))
    await lab.backends.why_not("all")
    assert lab.asked == 1
    lab.ready["a"] = False
    lab.now = SECONDS_KEPT
    assert await lab.backends.why_not("any") == "not ready: backend 'a'"
    assert lab.asked == 2


async def test_who_does_not_answer_in_time_is_not_ready() -> None:
    questions = {"hung": asyncio.Event().wait, "quick": Lab(a=True).backends._questions["a"]}
    here = BackendReadiness(questions, lambda: 0.0, 0.01)
    assert await here.why_not("all") == "not ready: backend 'hung'"


async def test_who_asks_and_leaves_does_not_end_the_question_of_others() -> None:
    here = BackendReadiness({"hung": asyncio.Event().wait}, lambda: 0.0, 0.01)
    first, second = asyncio.ensure_future(here.why_not("any")), asyncio.ensure_future(here.why_not("any"))
    await settle()
    first.cancel()
    assert await second == "not ready: backend 'hung'"


async def test_a_listener_is_no_more_ready_than_its_backends() -> None:
    lab = Lab(a=False)

    async def why() -> str:
        return await lab.backends.why_not("any")

    here = Readiness(lambda: True, {"http"}, why)
    assert await here.with_backends(READY) == NotReady("not ready: backend 'a'")
    lab.ready["a"], lab.now = True, SECONDS_KEPT
    assert await here.with_backends(READY) is True
    here.offline(OFFLINE)
    assert await here.with_backends(READY) is False


# What each server is asked


def says(answer: Answer | GatewayError) -> Protocol:
    """A protocol in which every server says this when it is asked whether it is ready."""

    def decode(message: object, request: Request, target: Target) -> Answer:
        if isinstance(answer, GatewayError) and request.operation is Operation.READY:
            raise answer
        return answer if isinstance(answer, bool) else True

    return replace(TOY, decode_response=decode)


def backend(protocol: Protocol, *wires: Wire) -> Backend:
    endpoints = [Endpoint(f"host:{at}", wire) for at, wire in enumerate(wires)]
    return local_backend(Target("lab"), protocol, endpoints, protocol.traits.servers.max_in_flight)


def wire(*, refuses: bool = False) -> Wire:
    made = Wire()
    made.refuses, made.answers_at_once = refuses, True
    return made


@pytest.mark.parametrize(
    ("protocol", "refuses", "ready"),
    [
        (says(True), False, True),
        (says(False), False, False),
        (says(True), True, False),
        (says(unsupported("no word for it")), False, True),
        (says(unsupported("no word for it")), True, False),
    ],
)
async def test_a_backend_is_ready_if_its_server_says_so_or_answers_at_all(
    protocol: Protocol, refuses: bool, ready: bool
) -> None:
    here = backend(protocol, wire(refuses=refuses))
    assert await here.is_ready() is ready
    assert here.endpoints[0].health.last is None


async def test_one_endpoint_that_is_ready_is_enough_also_while_another_hangs() -> None:
    assert await backend(says(True), Wire(), wire(refuses=True), wire()).is_ready()
    assert not await backend(says(True), wire(refuses=True), wire(refuses=True)).is_ready()


@pytest.mark.parametrize(
    "traits",
    [Traits(servers=Servers(max_in_flight=1, one_connection=True)), Traits(servers=Servers(runs_to_the_end=True))],
)
async def test_a_server_that_is_busy_with_a_call_is_not_asked(traits: Traits) -> None:
    here = backend(replace(says(False), traits=traits), wire())
    here.endpoints[0].take()
    assert await here.is_ready()
    here.endpoints[0].give_back()
    assert not await here.is_ready()
    assert here.endpoints[0].in_flight == 0
