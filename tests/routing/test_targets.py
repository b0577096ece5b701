"""Which flavor of server answers: asked before the first call, and again when another server may answer."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Servers, ServerTypes, Target, Traits
from gateway.core.requests import Answer, Request, Response
from gateway.routing import targets
from gateway.routing.backend import Backend, local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.targets import SECONDS_TRUSTED, Targets
from tests.clock import Clock
from tests.limits import GENEROUS, settle
from tests.routing.fakes import TOY, Wire

QUESTION = "server-metadata"


def _encode_request(request: Request, target: Target) -> Message:
    """The path tells what was asked, and as what the server is taken."""
    return Message("ASK", f"{request.operation.value} {target.flavor}".strip())


def _decode_response(message: Message, request: Request, target: Target) -> Answer:
    if message.status == 503:
        raise refusal(Reason.NOT_READY, bytes(message.body).decode())
    if message.status != 200:
        return TOY.decode_response(message, request, target)
    text = bytes(message.body).decode()
    return ServerInfo(text, "1") if request.operation is Operation.SERVER_METADATA else Response(id=text)


FLAVORS = ServerTypes(("ours", "theirs", "plain"), lambda info: info.name if info else "plain")
FLAVORED = replace(
    TOY, encode_request=_encode_request, decode_response=_decode_response,
    traits=Traits(servers=Servers(flavors=FLAVORS)),
)  # fmt: skip


class KeptWire(Wire):
    """A Connector that keeps connections until the test closes the last one."""

    disconnect: Callable[[], None]

    def on_disconnect(self, watcher: Callable[[], None]) -> None:
        self.disconnect = watcher


class Lab:
    def __init__(self, wires: int = 1, protocol: Protocol = FLAVORED, flavor: str = "") -> None:
        self.clock = Clock()
        self.wires = [KeptWire() for _ in range(wires)]
        endpoints = [Endpoint(f"host:{at}", wire) for at, wire in enumerate(self.wires)]
        self.backend = local_backend(Target("lab", flavor=flavor), protocol, endpoints, 0, clock=self.clock)

    async def begin(
        self, operation: Operation = Operation.INFER, backend: Backend | None = None
    ) -> "asyncio.Task[Answer]":
        """A call that waits for an answer. The end of the test's loop cancels those that still do."""
        task = asyncio.ensure_future((backend or self.backend)(Request(operation, "m")))
        await settle()
        return task

    async def begun(self, flavor: bytes = b"ours") -> "asyncio.Task[Answer]":
        """As `begin`, after the server has told its flavor."""
        task = await self.begin()
        await self.answer(flavor)
        return task

    async def answer(self, *texts: bytes, status: int = 200, wire: int = 0) -> None:
        """Answer what is asked at a wire, one message after the other."""
        for text in texts:
            self.wires[wire].answer(text, status)
            await settle()

    async def broken_off(self) -> None:
        """A call in which the connection breaks, after the server has told its flavor."""
        task = await self.begun()
        self.wires[0].break_off(sent=True)
        with pytest.raises(TransportError):
            await task

    def asked(self, wire: int = 0) -> list[str]:
        return [message.path for message in self.wires[wire].sent]


async def test_the_server_is_asked_before_the_first_call_and_never_again() -> None:
    lab = Lab()
    first = await lab.begin()
    assert lab.asked() == [QUESTION]
    await lab.answer(b"theirs")
    second = await lab.begin(Operation.METADATA)
    assert lab.asked() == [QUESTION, "infer theirs", "metadata theirs"]
    await lab.answer(b"", b"")
    await asyncio.gather(first, second)


async def test_calls_that_come_meanwhile_wait_for_the_same_answer() -> None:
    lab = Lab()
    for _ in range(3):
        await lab.begin()
    assert lab.asked() == [QUESTION]
    await lab.answer(b"ours")
    assert lab.asked() == [QUESTION, *["infer ours"] * 3]


async def test_who_gives_up_takes_nobodys_answer_away() -> None:
    lab = Lab()
    first = await lab.begin()
    await lab.begin()
    first.cancel()
    await settle()
    await lab.answer(b"ours")
    assert lab.asked() == [QUESTION, "infer ours"]


async def test_each_endpoint_is_asked_for_itself() -> None:
    lab = Lab(wires=2)
    await lab.begun()
    await lab.begin()
    await lab.answer(b"theirs", wire=1)
    assert (lab.asked(0), lab.asked(1)) == ([QUESTION, "infer ours"], [QUESTION, "infer theirs"])


async def test_a_stream_is_asked_in_the_servers_way_too() -> None:
    lab = Lab()
    stream = lab.backend.stream(Request(Operation.INFER, "m"))
    task = asyncio.ensure_future(anext(stream))
    await settle()
    await lab.answer(b"theirs")
    assert lab.asked() == [QUESTION, "infer theirs"]
    await lab.answer(b"response")
    assert await task == Response(id="response")
    await stream.aclose()


async def test_what_is_configured_is_not_asked() -> None:
    lab = Lab(flavor="ours")
    await lab.begin()
    assert lab.asked() == ["infer ours"]


async def test_a_protocol_without_flavors_asks_nothing() -> None:
    lab = Lab(protocol=replace(FLAVORED, traits=Traits()))
    await lab.begin()
    assert lab.asked() == ["infer"]


@pytest.mark.parametrize("status", [400, 500])
async def test_a_server_that_cannot_tell_is_plain_for_good(status: int) -> None:
    lab = Lab()
    await lab.begin()
    await lab.answer(b"no such path", status=status)
    await lab.begin()
    assert lab.asked() == [QUESTION, "infer plain", "infer plain"]


async def test_a_server_that_is_not_there_is_the_calls_own_error() -> None:
    lab = Lab()
    lab.wires[0].refuses = True
    with pytest.raises(TransportError, match=r"backend 'lab' at host:0: connection refused") as refused:
        await (await lab.begin())
    assert refused.value.sent is False
    lab.wires[0].refuses = False
    await lab.begin()
    assert lab.asked() == [QUESTION]


async def test_another_endpoint_is_asked_where_the_question_broke_off() -> None:
    """The call itself was not sent, whatever became of the question."""
    lab = Lab(wires=2)
    await lab.begin()
    lab.wires[0].break_off(sent=True)
    await settle()
    await lab.answer(b"ours", wire=1)
    assert lab.asked(1) == [QUESTION, "infer ours"]


@pytest.mark.parametrize("reason", [Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED])
async def test_who_wants_credentials_is_plain_since_the_question_has_none(reason: Reason) -> None:
    lab = Lab()
    await lab.begin()
    lab.wires[0].open.pop().set_exception(TransportError(reason.status, reason, "HTTP status 401", sent=True))
    await settle()
    assert lab.asked() == [QUESTION, "infer plain"]


async def test_a_server_is_asked_again_before_the_first_call_after_an_outage() -> None:
    lab = Lab()
    await lab.broken_off()
    await lab.begun(b"theirs")
    assert lab.asked() == [QUESTION, "infer ours", QUESTION, "infer theirs"]


async def reconnected(lab: Lab, seconds: float) -> "asyncio.Task[Answer]":
    """The first call after the server's last connection has closed, and after `seconds` since the server told."""
    call = await lab.begun()
    await lab.answer(b"done")
    assert await call == Response(id="done")
    lab.clock.now += seconds
    del lab.wires[0].sent[:]
    lab.wires[0].disconnect()
    return await lab.begin()


async def test_a_server_is_asked_again_before_the_first_call_on_a_new_connection() -> None:
    lab = Lab()
    changed: list[str] = []
    lab.backend.on_recovery(lambda: changed.append("told"))
    await reconnected(lab, SECONDS_TRUSTED)
    await lab.begin()
    assert lab.asked() == [QUESTION], "both calls wait"
    await lab.answer(b"theirs")
    assert lab.asked() == [QUESTION, "infer theirs", "infer theirs"]
    assert changed == ["told"]


async def test_until_it_is_asked_again_it_counts_as_the_server_that_it_was() -> None:
    lab = Lab()
    await lab.begun(b"theirs")
    lab.wires[0].disconnect()
    ready = asyncio.ensure_future(lab.backend.is_ready())
    await settle()
    assert lab.asked()[-1] == "ready theirs"
    ready.cancel()


async def test_it_is_asked_once_for_all_connections_that_close() -> None:
    lab = Lab()
    call = await reconnected(lab, SECONDS_TRUSTED)
    await lab.answer(b"ours", b"done")
    await call
    lab.wires[0].disconnect()
    await lab.begin()
    assert lab.asked() == [QUESTION, "infer ours", "infer ours"]


async def test_a_server_that_closes_each_connection_is_asked_once_a_minute() -> None:
    lab = Lab()
    await reconnected(lab, SECONDS_TRUSTED - 1)
    assert lab.asked() == ["infer ours"]


@pytest.mark.parametrize("answer", ["busy", "refuses", "silent"])
async def test_a_server_that_does_not_tell_again_gets_the_call(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS_CONFIRMED", 0.0 if answer == "silent" else GENEROUS)
    lab = Lab()
    await reconnected(lab, SECONDS_TRUSTED)
    if answer == "busy":
        await lab.answer(b"loading", status=503)
    elif answer == "refuses":
        lab.wires[0].break_off(sent=False)
    else:
        await asyncio.sleep(0.001)
    await settle()
    assert lab.asked() == [QUESTION, "infer ours"]


async def test_a_refusal_by_a_server_that_closes_the_connection_is_not_repeated() -> None:
    lab = Lab()
    call = await reconnected(lab, 0)
    lab.wires[0].answer(b"wrong", 400)
    lab.wires[0].disconnect()
    await settle()
    await lab.answer(b"ours")
    with pytest.raises(GatewayError, match="wrong"):
        await call
    assert lab.asked() == ["infer ours", QUESTION]


async def test_a_backend_that_is_closed_is_told_no_more() -> None:
    lab = Lab()
    lab.backend.close()
    lab.wires[0].disconnect()
    assert lab.backend.endpoints[0]._on_disconnect == []


async def test_every_backend_of_an_address_asks_again_after_an_outage() -> None:
    lab = Lab()
    other = local_backend(Target("other"), FLAVORED, lab.backend.endpoints, 0)
    task = await lab.begin(backend=other)
    await lab.answer(b"ours", b"")
    await task
    await lab.broken_off()
    del lab.wires[0].sent[:]
    await lab.begin(backend=other)
    assert lab.asked() == [QUESTION]


async def test_a_refusal_is_repeated_once_where_another_server_answers() -> None:
    lab = Lab()
    changed: list[str] = []
    lab.backend.on_recovery(lambda: changed.append("told"))
    first = await lab.begun()
    await lab.answer(b"")
    await first
    call = await lab.begin()
    await lab.answer(b"I do not understand you", status=400)
    assert not call.done()
    assert not changed
    await lab.answer(b"theirs")
    assert changed == ["told"], "what is known of the models is forgotten as well"
    await lab.answer(b"done")
    assert await call == Response(id="done")
    assert lab.asked() == [QUESTION, "infer ours", "infer ours", QUESTION, "infer theirs"]


async def test_each_endpoint_is_another_server_for_itself() -> None:
    """Both servers are replaced while each has a call. The change of one is not that of the other, whose refused call
    would be sent again as before."""
    lab = Lab(wires=2)
    calls = [await lab.begin(), await lab.begin()]
    await lab.answer(b"ours", wire=0)
    await lab.answer(b"ours", wire=1)
    for wire in (0, 1):
        await lab.answer(b"no", status=400, wire=wire)
        await lab.answer(b"theirs", b"done", wire=wire)
    assert await asyncio.gather(*calls) == [Response(id="done")] * 2
    assert lab.asked(0) == lab.asked(1) == [QUESTION, "infer ours", QUESTION, "infer theirs"]


async def test_an_endpoint_that_returns_leaves_the_others_as_they_are() -> None:
    lab = Lab(wires=2)
    for wire in (0, 1):
        await lab.begin()
        await lab.answer(b"ours", wire=wire)
    lab.backend.endpoints[0].changed()
    for wire in (0, 1):
        await lab.answer(b"done", wire=wire)
    for _ in range(2):
        await lab.begin()
    assert (lab.asked(0)[2:], lab.asked(1)[2:]) == ([QUESTION], ["infer ours"])


async def test_a_call_is_repeated_only_once() -> None:
    lab = Lab()
    call = await lab.begun()
    await lab.answer(b"no", status=400)
    await lab.answer(b"theirs")
    await lab.answer(b"no again", status=400)
    with pytest.raises(GatewayError, match="no again"):
        await call
    assert lab.asked() == [QUESTION, "infer ours", QUESTION, "infer theirs"]


async def test_wrong_calls_ask_the_same_server_once_a_second() -> None:
    lab = Lab()
    expected = [QUESTION]
    call = await lab.begun()
    for lab.clock.now, asks in ((5.0, True), (5.5, False), (5.9, False), (6.1, True)):
        expected += ["infer ours", QUESTION] if asks else ["infer ours"]
        await lab.answer(b"wrong", status=400)
        if asks:
            await lab.answer(b"ours")
        with pytest.raises(GatewayError, match="wrong"):
            await call
        assert lab.asked() == expected
        call = await lab.begin()


async def test_calls_that_are_refused_together_ask_once_and_are_all_repeated() -> None:
    lab = Lab()
    calls = [await lab.begin() for _ in range(3)]
    await lab.answer(b"ours")
    await lab.answer(b"no", b"no", status=400)
    late = lab.wires[0].open.pop(0)
    await lab.answer(b"theirs")
    late.set_result(Message(status=400, parts=(b"no",)))
    await settle()
    await lab.answer(*[b"done"] * 3)
    assert await asyncio.gather(*calls) == [Response(id="done")] * 3
    assert lab.asked() == [QUESTION, *["infer ours"] * 3, QUESTION, *["infer theirs"] * 3]


@pytest.mark.parametrize("operation", [Operation.INFER, Operation.LOAD])
async def test_what_may_have_been_done_is_not_done_again_but_the_next_call_is_right(operation: Operation) -> None:
    lab = Lab()
    call = await lab.begin(operation)
    await lab.answer(b"ours")
    await lab.answer(b"the model failed", status=500)
    await lab.answer(b"theirs")
    with pytest.raises(GatewayError, match="status 500"):
        await call
    assert lab.asked() == [QUESTION, f"{operation.value} ours", QUESTION]
    await lab.begin()
    if operation is Operation.LOAD:  # after which the server is asked in any case
        await lab.answer(b"theirs")
    assert lab.asked()[-1] == "infer theirs"


@pytest.mark.parametrize("operation", [Operation.METADATA, Operation.LOAD])
async def test_requests_without_a_slot_are_repeated_as_well(operation: Operation) -> None:
    lab = Lab()
    call = await lab.begin(operation)
    await lab.answer(b"ours")
    await lab.answer(b"no", status=400)
    await lab.answer(b"theirs", b"done")
    await call
    assert lab.asked() == [QUESTION, f"{operation.value} ours", QUESTION, f"{operation.value} theirs"]


async def test_a_stream_is_repeated_as_well_before_it_has_begun() -> None:
    lab = Lab()
    stream = lab.backend.stream(Request(Operation.INFER, "m"))
    task = asyncio.ensure_future(anext(stream))
    await settle()
    await lab.answer(b"ours")
    await lab.answer(b"no", status=400)
    await lab.answer(b"theirs", b"response")
    assert await task == Response(id="response")
    assert lab.asked() == [QUESTION, "infer ours", QUESTION, "infer theirs"]
    await stream.aclose()


async def test_a_refusal_stands_where_the_server_does_not_tell_again() -> None:
    lab = Lab()
    call = await lab.begun()
    await lab.answer(b"no", status=400)
    await lab.answer(b"busy", status=503)
    with pytest.raises(GatewayError, match="no"):
        await call
    following = await lab.begin()
    assert lab.asked()[-1] == "infer ours"
    await lab.answer(b"no", status=400)  # a busy server is not asked at each refusal
    with pytest.raises(GatewayError, match="no"):
        await following
    assert lab.asked() == [QUESTION, "infer ours", QUESTION, "infer ours"]


@pytest.mark.parametrize("error", [Reason.INTERNAL, Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED])
async def test_a_server_that_fails_to_tell_is_still_the_one_that_told(error: Reason) -> None:
    lab = Lab()
    await lab.broken_off()
    await lab.begin()
    if error is Reason.INTERNAL:
        await lab.answer(b"", status=500)
    else:
        lab.wires[0].open.pop().set_exception(TransportError(error.status, error, "no", sent=True))
        await settle()
    assert lab.asked() == [QUESTION, "infer ours", QUESTION, "infer ours"]


async def test_a_server_that_is_not_ready_yet_is_asked_again() -> None:
    lab = Lab()
    first = await lab.begin()
    await lab.answer(b"loading", status=503)
    with pytest.raises(GatewayError, match="loading"):
        await first
    await lab.begin()
    assert lab.asked() == [QUESTION, QUESTION]


async def test_a_server_that_hangs_is_waited_for_no_longer_than_the_bound() -> None:
    endpoint = Endpoint("host:0", Wire())
    hanging = Targets(Target("lab"), FLAVORED, [endpoint], seconds=0)
    with pytest.raises(TransportError, match="did not report its server type within 0 s; `flavor`") as refused:
        await hanging.find(endpoint)
    assert (refused.value.reason, refused.value.sent) == (Reason.UNREACHABLE, False)
