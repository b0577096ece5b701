"""Messages that pass untouched: from a configuration to what reaches an endpoint."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from gateway.config import Catalog, loads, paths
from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import HttpBinding, Limits, ListenerSettings, Protocol, Target
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.streaming import answer_stream
from gateway.core.transport import Destination
from gateway.policies import retry
from gateway.policies.retry import LEAST_RETRIES
from tests.assembled import assembled, marks
from tests.config.toys import PROTOCOLS
from tests.limits import settle


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    return Request(
        Operation.STREAM, listener=listener.name, protocol="messages", headers=message.headers, origin=message
    )


def encode_request(request: Request, target: Target) -> Message:
    assert request.origin is not None
    return replace(request.origin, pattern="")


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    return Response(origin=message)


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    assert isinstance(answer, Response)
    assert answer.origin is not None
    return answer.origin


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    return Message(status=500, parts=(f"{error.reason.value}: {error.message}".encode(),))


PASSTHROUGH = Protocol(
    "messages", HttpBinding(any_path=("POST",)), (),
    decode_request, encode_response, encode_error, encode_request, decode_response,
)  # fmt: skip
TOYS = {
    each.name: replace(
        each,
        binding=replace(each.http, passthrough=PASSTHROUGH),
        encode_request=lambda request, target: encode_request(request, target),
    )
    if each.http.passthrough
    else each
    for each in PROTOCOLS
}


class Wire:
    """A Connector that echoes the path and the body of a message, each as a message; or cannot connect."""

    def __init__(self, sent: list[str], address: str, protocol: Protocol, limits: Limits) -> None:
        self.form = "passthrough" if protocol.encode_request is encode_request else "plain"
        self.sent, self.address, self.limits = sent, address, limits
        self.closed = False

    async def exchange(self, message: Message) -> Message:
        if self.address.startswith("down"):
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "refused", sent=False)
        raise AssertionError("messages that pass untouched are streams")

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        self.sent.append(f"{self.form} {self.address} {message.method} {message.path}")
        if self.address.startswith("down"):
            raise TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "refused", sent=False)
        for part in (message.path.encode(), message.body):
            yield Message(status=200, parts=(part,))

    async def close(self) -> None:
        self.closed = True


CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, messages]}]
backends:
  lab:
    protocol: messages
    endpoints: ["lab:1"]
    max_in_flight: 1
    policies: [{mark: {name: backend}}]
    limits: {message: 1000}
  spare: {protocol: messages, endpoints: ["down:1", "lab:1"]}
  lost:
    protocol: messages
    endpoints: ["down:1"]
    policies: [{retry: {attempts: 2, backoff: 0, budget: 0}}, {mark: {name: try}}]
routes:
  - {match: {}, backend: lab}
  - {match: {path: /v1/chat}, backend: lab, passthrough: true, policies: [{mark: {name: route}}]}
  - {match: {path: /v1/files/*, header: {X-Team: a}}, backend: spare, passthrough: true}
  - {match: {path: /messages/predict}, backend: lab, passthrough: true}
  - {match: {path: /v1/lost}, backend: lost, passthrough: true}
"""


class Assembled:
    """An Assembly on Wires: `passed` are the policies, `sent` what reached an endpoint."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.sent: list[str] = []
        self.wires: list[Wire] = []
        policies = {"mark": marks(self.passed), "retry": retry}
        config = loads(CONFIG, "test.yaml", Catalog(TOYS, policies), {})
        self.assembly = assembled(config, self._connect, TOYS, policies)
        self.rows = paths.rows(config.listeners[0], config.routes, config.backends, TOYS)

    def _connect(self, address: str, protocol: Protocol, limits: Limits, ip: str) -> Wire:
        self.wires.append(Wire(self.sent, address, protocol, limits))
        return self.wires[-1]

    async def ask(self, path: str, team: bytes = b"") -> list[tuple[int, bytes]]:
        """The replies to a POST."""
        [protocol] = [each for each, _ in self.rows if each.http.is_passthrough]

        async def one() -> AsyncGenerator[Message, None]:
            yield Message("POST", path, Headers([(b"x-team", team)]), (b"body",))

        replies = answer_stream(one(), protocol, ListenerSettings("http"), self._select)
        return [(each.status, bytes(each.body)) async for each in replies]

    def _select(self, request: Request) -> Destination:
        return self.assembly.passthrough.select(request)


async def test_a_message_goes_to_the_backend_as_it_came_and_its_replies_back() -> None:
    here = Assembled()
    assert await here.ask("/v1/chat") == [(200, b"/v1/chat"), (200, b"body")]
    assert here.sent == ["passthrough lab:1 POST /v1/chat"]
    assert here.passed == ["stream route", "stream backend"]
    [wire] = [each for each in here.wires if each.form == "passthrough" and each.address == "lab:1"]
    assert wire.limits.message == 1000


async def test_a_protocols_own_path_may_be_one() -> None:
    here = Assembled()
    assert await here.ask("/messages/predict") == [(200, b"/messages/predict"), (200, b"body")]


async def test_a_routes_further_conditions_hold() -> None:
    here = Assembled()
    [(status, text)] = await here.ask("/v1/files/x")
    assert status == 500
    assert text.partition(b": name one")[0] == b"model-not-found: no route for a request without a model"
    assert here.sent == []


async def test_the_next_endpoint_is_asked_if_nothing_could_be_sent() -> None:
    here = Assembled()
    assert await here.ask("/v1/files/x", team=b"a") == [(200, b"/v1/files/x"), (200, b"body")]
    assert here.sent == ["passthrough down:1 POST /v1/files/x", "passthrough lab:1 POST /v1/files/x"]


async def test_the_slot_is_the_endpoints_and_the_wait_the_backends() -> None:
    here = Assembled()
    [endpoint] = here.assembly.backends["lab"].endpoints
    endpoint.take()
    asking = asyncio.ensure_future(here.ask("/v1/chat"))
    await settle()
    assert (len(here.assembly.backends["lab"].queue), here.sent) == (1, [])
    endpoint.give_back()
    assert await asking == [(200, b"/v1/chat"), (200, b"body")]
    assert endpoint.in_flight == 0


async def test_what_the_second_connector_finds_out_the_endpoint_knows() -> None:
    here = Assembled()
    down, _ = here.assembly.backends["spare"].endpoints
    assert down.passthrough is not None
    with pytest.raises(TransportError):
        await anext(down.passthrough.stream(Message("POST", "/v1/files/x")))
    assert not down.health.is_up
    await down.close()
    assert [each.closed for each in here.wires if each.address == "down:1"] == [True, True]


async def test_messages_and_translated_requests_share_the_budget_of_retry() -> None:
    here = Assembled()
    translated = here.assembly.backend_sides["lost"].handler
    for _ in range(10):
        [(status, _)] = await here.ask("/v1/lost")
        assert status == 500
        with pytest.raises(GatewayError):
            await translated(Request(Operation.INFER, model="m", origin=Message("POST", "/m")))
    assert [each.removeprefix("stream ") for each in here.passed] == ["try"] * (20 + LEAST_RETRIES)


async def test_no_other_request_takes_such_a_route() -> None:
    here = Assembled()
    plain = Request(Operation.INFER, protocol="messages", listener="http", path="/v1/chat")
    destination = here.assembly.router.select(plain)
    assert destination.handler is not None  # that of the first route, which fits tensors
    with pytest.raises(GatewayError, match="no route for a request without a model"):
        here.assembly.passthrough.select(replace(plain, path="/v1/other"))
