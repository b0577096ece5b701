"""Replays a recording: sends its requests to a server, and compares the responses with the recorded responses.

The replay converts each request for the server, and the response back to the recorded protocol. Both responses thus
have the same format, regardless of the server's protocol. If `wire` is set, the replay sends the recorded bytes
unchanged, and decodes both responses in the same way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import field
from time import monotonic

from gateway.assembly.forms import known
from gateway.client.errors import SERVER, as_client_error
from gateway.client.model_server import ModelServer
from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, TransportError, invalid_input, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message, Metadata
from gateway.core.offload import are_large
from gateway.core.protocol import GrpcBinding, Protocol, StreamBinding, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from gateway.policies.comparing import EXACT, NO_ANSWER, Difference, Elements, Outcome, Tolerance, compare
from gateway.tools.cassettes.entries import Entry

EQUAL, DIFFERENT, FAILED = "equal", "different", "failed"


class NoConnection(Exception):  # noqa: N818 - not an error of the program
    """No server accepts connections at the address."""


@frozen
class Settings:
    """Settings of a replay.

    - `in_flight`: Maximum number of concurrent requests.
    - `rate`: Maximum number of requests per second; None means no limit.
    - `seconds`: Timeout for each response.
    - `models`, `tensors`: Mappings from recorded model names and tensor names to the server's names.
    - `version`: Replaces the recorded version; None keeps the recorded version.
    - `wire`: True to send the recorded bytes unchanged.
    - `by_position`: True to pair outputs by position.
    - `by_value`: True to compare numbers by value, ignoring their datatypes.
    - `protocols`: The protocols that recorded requests can use.
    """

    in_flight: int = 1
    rate: float | None = None
    seconds: float = 10.0
    models: Mapping[str, str] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    wire: bool = False
    tolerance: Tolerance = EXACT
    by_position: bool = False
    by_value: bool = False
    protocols: Mapping[str, Protocol] = field(default_factory=known)


@frozen
class Replayed:
    """The result of sending one recorded request again.

    - `line`: The request's line in the recording. `model`, `operation`, `protocol`: as recorded.
    - `verdict`: EQUAL, DIFFERENT or FAILED (no response). `text`: the difference, or the reason for the missing
      response.
    - `distances`: The maximum `absolute`, `relative` and `ulp` distances of all elements, including distances within
      the tolerance.
    - `then`, `now`: The latencies of the recorded response and the new response, in seconds.
    """

    line: int
    model: str
    operation: str
    protocol: str
    verdict: str
    text: str
    kinds: tuple[str, ...]
    distances: Mapping[str, float]
    then: float
    now: float


async def replay(
    entries: Iterable[tuple[int, Entry]],
    server: ModelServer,
    settings: Settings,
    done: Callable[[Replayed], object] = lambda result: None,
) -> list[Replayed]:
    """Return the results of all entries, in the order of their lines. Call `done` with each result as soon as it is
    available.

    Raises:
        CassetteError: an entry is malformed.
        NoConnection: the first request could not connect.
        ValueError: an entry cannot be replayed because its protocol is unknown or, with `wire`, differs from the
            server's protocol.
    """
    results: list[Replayed] = []
    paced = _paced(iter(entries), settings.rate)
    taking = asyncio.Lock()

    async def work() -> None:
        while True:
            async with taking:
                item = await anext(paced, None)
            if item is None:
                return
            line, entry = item
            result = await _replayed(line, entry, server, settings, is_first=not results)
            results.append(result)
            done(result)

    workers = [asyncio.ensure_future(work()) for _ in range(settings.in_flight)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return sorted(results, key=lambda each: each.line)


async def _paced(entries: Iterator[tuple[int, Entry]], rate: float | None) -> AsyncIterator[tuple[int, Entry]]:
    """Yield the entries, at most `rate` per second."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    for each in entries:
        if rate is not None:
            await asyncio.sleep(due - loop.time())
            due += 1 / rate
        yield each


async def _replayed(line: int, entry: Entry, server: ModelServer, settings: Settings, *, is_first: bool) -> Replayed:
    client = settings.protocols.get(entry.protocol)
    if client is None:
        known_names = f"expected {', '.join(settings.protocols)}; use --config FILE for other forms"
        raise ValueError(f"line {line}: no protocol {entry.protocol!r}; {known_names}")
    if settings.wire and client.name != server.protocol.name:
        text = f"line {line} is a {client.name} message, but the server's protocol is {server.protocol.name}"
        raise ValueError(f"{text}; remove --wire to convert it")
    expected = _with_names(entry.outcome, settings)
    began = monotonic()
    try:
        async with asyncio.timeout(settings.seconds):
            if settings.wire:
                expected, actual = await _exchanged(entry, server)
            else:
                actual = await _answered(_renamed(entry.request, settings), server, client)
    except TimeoutError:
        actual = refusal(Reason.TIMEOUT, f"no answer within {settings.seconds:g} s")
    now = monotonic() - began
    if is_first and isinstance(actual, TransportError) and not actual.sent:
        raise NoConnection(actual.message)
    if isinstance(actual, GatewayError) and (actual.status in NO_ANSWER or actual.reason is Reason.INTERNAL):
        return _result(line, entry, now, FAILED, f"{actual.status.name}: {actual.message}")
    return await _compared(line, entry, client, expected, actual, now, settings)


async def _answered(request: Request, server: ModelServer, client: Protocol) -> Outcome:
    try:
        answer = await server.ask(request, "refuse", client)
    except DecodeError as error:
        return invalid_input(str(error))
    except TransportError as error:
        return TransportError(error.status, error.reason, _text(error, server), sent=error.sent)
    except GatewayError as error:
        return GatewayError(error.status, error.reason, _text(error, server))
    assert isinstance(answer, Response)
    return answer


async def _exchanged(entry: Entry, server: ModelServer) -> tuple[Outcome, Outcome]:
    """Return the recorded response, and the new response to the same bytes, both decoded in the same way."""
    protocol = server.protocol
    try:
        message = _sent(entry.message, protocol)
    except DecodeError as error:
        return entry.outcome, invalid_input(f"the recorded message is malformed: {error}")
    try:
        reply = await server.exchange(message)
    except TransportError as error:
        return entry.outcome, TransportError(error.status, error.reason, _text(error, server), sent=error.sent)
    return _read(entry.reply, entry.request, server), _read(reply, entry.request, server)


def _sent(message: Message, protocol: Protocol) -> Message:
    """Return the recorded message, split into the parts that the protocol's transport sends."""
    if isinstance(protocol.binding, StreamBinding):
        header_size, body = protocol.binding.framing.header_size, message.body
        if len(body) < header_size or protocol.binding.framing.size(body[:header_size]) != len(body) - header_size:
            raise DecodeError("the message's length differs from the length in its header")
        message = replace(message, parts=(body[:header_size], body[header_size:]))
        with_credential = protocol.binding.with_credential
        # `with_credential` also splits the message into the parts that connectors of these protocols expect.
        return message if with_credential is None else with_credential(message, b"")
    if isinstance(protocol.binding, GrpcBinding):
        return replace(message, headers=Metadata())
    return message


def _read(reply: Message, request: Request, server: ModelServer) -> Outcome:
    protocol = server.protocol
    if isinstance(protocol.binding, StreamBinding) and len(reply.parts) == 1:
        size = protocol.binding.framing.header_size
        reply = replace(reply, parts=(reply.body[:size], reply.body[size:]))
    try:
        answer = protocol.decode_response(reply, request, Target(SERVER, server.address))
    except DecodeError as error:
        return GatewayError(*_MALFORMED, f"the reply is malformed: {error}")
    except GatewayError as error:
        return GatewayError(error.status, error.reason, error.message)
    assert isinstance(answer, Response)
    return answer


_MALFORMED = Reason.INVALID_OUTPUT.status, Reason.INVALID_OUTPUT


def _text(error: GatewayError, server: ModelServer) -> str:
    return str(as_client_error(error, server.address))


def _renamed(request: Request, settings: Settings) -> Request:
    names = settings.tensors
    return replace(
        request,
        model=settings.models.get(request.model, request.model),
        version=request.version if settings.version is None else settings.version,
        inputs=tuple(replace(each, name=names.get(each.name, each.name)) for each in request.inputs),
        outputs=tuple(replace(each, name=names.get(each.name, each.name)) for each in request.outputs),
    )


def _with_names(outcome: Outcome, settings: Settings) -> Outcome:
    if isinstance(outcome, GatewayError) or not settings.tensors:
        return outcome
    names = settings.tensors
    return replace(
        outcome, outputs=tuple(replace(each, name=names.get(each.name, each.name)) for each in outcome.outputs)
    )


# --- Comparing ---


async def _compared(
    line: int, entry: Entry, client: Protocol, expected: Outcome, actual: Outcome, now: float, settings: Settings
) -> Replayed:
    tensors = tuple(each for outcome in (expected, actual) if isinstance(outcome, Response) for each in outcome.outputs)
    wire = client.traits.wire
    by_position = settings.by_position or wire.unnamed
    by_value = settings.by_value or wire.untyped

    def differences() -> tuple[Difference | None, Difference | None]:
        ours, theirs = _by_value(expected, actual) if by_value else (expected, actual)
        exact = compare(ours, theirs, by_position=by_position)
        if exact is None:
            return None, None
        return exact, compare(ours, theirs, settings.tolerance, by_position=by_position)

    exact, difference = await asyncio.to_thread(differences) if are_large(tensors) else differences()
    distances = {} if exact is None else _distances(exact)
    if difference is None:
        return _result(line, entry, now, EQUAL, distances=distances)
    text = str(difference)
    if isinstance(actual, GatewayError):
        text = f"{text}: {actual.message}"
    return _result(line, entry, now, DIFFERENT, text, tuple(sorted(difference.kinds)), distances)


def _result(
    line: int,
    entry: Entry,
    now: float,
    verdict: str,
    text: str = "",
    kinds: tuple[str, ...] = (),
    distances: Mapping[str, float] | None = None,
) -> Replayed:
    request = entry.request
    return Replayed(
        line=line,
        model=request.model,
        operation=request.operation.value,
        protocol=entry.protocol,
        verdict=verdict,
        text=text,
        kinds=kinds,
        distances=distances or {},
        then=entry.seconds,
        now=now,
    )


def _distances(difference: Difference) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in difference.outputs:
        elements = each.elements or Elements(0, 0)
        largest = {"absolute": elements.absolute, "relative": elements.relative, "ulp": elements.ulp}
        for name, distance in largest.items():
            if distance is not None:
                found[name] = max(found.get(name, 0.0), distance.value)
    return found


def _by_value(expected: Outcome, actual: Outcome) -> tuple[Outcome, Outcome]:
    """Return both responses, with all numbers converted to FP64 if the datatypes differ."""
    if not isinstance(expected, Response) or not isinstance(actual, Response):
        return expected, actual
    if sorted(each.datatype for each in expected.outputs) == sorted(each.datatype for each in actual.outputs):
        return expected, actual
    return _as_fp64(expected), _as_fp64(actual)


def _as_fp64(response: Response) -> Response:
    outputs = tuple(
        tensor(each.name, each.array.astype("<f8"), Datatype.FP64) if each.datatype in NUMBERS else each
        for each in response.outputs
    )
    return replace(response, outputs=outputs)
