"""Explains each processing stage of one request, up to the bytes for the backend or, if sending is enabled, up to the
response.

The request goes through a complete gateway (`assemble`). A Watch wraps the codecs and Connectors of the backends and
records every message to a backend and every response.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from time import perf_counter

from gateway.assembly.assembly import Assembly
from gateway.assembly.connecting import connect
from gateway.assembly.explain.decision import Decision, decide
from gateway.assembly.explain.offline import Assumption, NotSent, assemble, not_connected, without_network
from gateway.assembly.explain.recorded import Arrival
from gateway.bridge.comparison import MOST_SHOWN, TensorChange, TensorShown, compare, rows_before, shown
from gateway.config.keys import Config
from gateway.config.routes import RouteConfig
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import decoded, passed, unread
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import CALLS
from gateway.core.protocol import GrpcBinding, Limits, ListenerSettings, Protocol, Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Connector, Destination, FixedFields

BEGINNING = 400
"""The maximum number of body bytes that an explanation shows."""
_HIDDEN = "***"
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"})
"""The headers whose values are masked, because users share explanations."""
MOST_RESPONSES = 16
"""The maximum number of streamed responses to read after the request was sent to the backend."""


@frozen
class MessageShown:
    """A message: its address, its headers, and the first bytes of its body as text."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    size: int
    beginning: str
    status: int = 0
    as_it_came: bool = False
    """True if the gateway forwards the body unchanged."""


@frozen
class RequestShown:
    """The request in the gateway's canonical form."""

    operation: str
    model: str
    version: str
    id: str | None
    inputs: tuple[TensorShown, ...]
    outputs: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


@frozen
class ErrorShown:
    """The error that ends a request. `stage` is `transport`, `decode`, `route`, `fit`, `backend` or `encode`."""

    stage: str
    status: str
    reason: str
    text: str


@frozen
class CallShown:
    """A message to a backend.

    `reply`, `error` and the durations after `encode` have values only if the request was sent to the backend."""

    backend: str
    endpoint: str
    operation: str
    message: MessageShown
    encode: float
    exchange: float | None = None
    decode: float | None = None
    reply: MessageShown | None = None
    error: str = ""


@frozen
class Explanation:
    """An explanation of the processing of one request, by stage. Stages that the request does not reach are empty.
    Durations are in seconds."""

    listener: str
    protocol: str
    transport: str
    pattern: str
    received: MessageShown
    notes: tuple[str, ...] = ()
    request: RequestShown | None = None
    decision: Decision | None = None
    signature: str = ""
    inputs: tuple[TensorChange, ...] = ()
    rows: int = 0
    """The number of calls that run a model, sent or not."""
    calls: tuple[CallShown, ...] = ()
    outputs: tuple[TensorChange, ...] = ()
    """The changes from the backend's outputs to the outputs in the response."""
    sent: bool = False
    reply: MessageShown | None = None
    error: ErrorShown | None = None
    seconds: tuple[tuple[str, float], ...] = ()


class Call:
    """A record of one message to a backend."""

    def __init__(self, target: Target, request: Request | None, message: Message, encode: float) -> None:
        self.target, self.request, self.message, self.encode = target, request, message, encode
        self.exchange: float | None = None
        self.decode: float | None = None
        self.reply: Message | None = None
        self.answer: Answer | None = None
        self.error = ""
        self.fixed: tuple[bytes, ...] = ()
        """The names of headers that the connection adds or replaces."""


class Watch:
    """Records messages to backends and their responses."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._awaited: dict[int, Call] = {}
        """The Calls by the identity of the message or response that the next stage receives. The identity stays unique,
        because the Call keeps the object alive."""
        self.backend_of: Callable[[str], str] = lambda address: ""
        """Returns the name of the backend at an address."""

    def protocol(self, protocol: Protocol) -> Protocol:
        """Return a version of `protocol` that reports messages to and from backends to this Watch."""

        def encode(request: Request, target: Target) -> Message:
            began = perf_counter()
            message = protocol.encode_request(request, target)
            call = Call(target, request, message, perf_counter() - began)
            self.calls.append(call)
            self._awaited[id(message)] = call
            return message

        def decode(reply: Message, request: Request, target: Target) -> Answer:
            call, began = self._awaited.get(id(reply)), perf_counter()
            try:
                answer = protocol.decode_response(reply, request, target)
            except (DecodeError, GatewayError) as error:
                if call is not None:
                    call.error = str(error)
                raise
            if call is not None:
                call.answer, call.decode = answer, perf_counter() - began
            return answer

        return replace(protocol, encode_request=encode, decode_response=decode)

    def connect(
        self, address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
    ) -> "WatchedConnector":
        """Return a watched Connector that sends messages."""
        return WatchedConnector(self, address, connect(address, protocol, limits, ip, headers=headers), headers)

    def connect_nowhere(
        self, address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: FixedFields = ()
    ) -> "WatchedConnector":
        """Return a watched Connector that does not send messages."""
        return WatchedConnector(self, address, not_connected(address, protocol, limits, ip), headers)

    def call(self, message: Message, address: str, headers: FixedFields) -> Call:
        """Return the Call of this message, with its `headers`.

        Create the Call for a relayed message, which no codec encodes."""
        call = self._awaited.get(id(message))
        if call is None:
            call = Call(Target(self.backend_of(address), address), None, message, 0.0)
            self.calls.append(call)
        call.fixed = tuple(name for name, _ in headers)
        return call

    def replied(self, call: Call, reply: Message) -> None:
        """Store the response to a call."""
        call.reply = reply
        self._awaited[id(reply)] = call


class WatchedConnector:
    """A Connector that records the messages of `inner` in `watch`."""

    def __init__(self, watch: Watch, address: str, inner: Connector, headers: FixedFields = ()) -> None:
        self._watch, self._address, self._inner, self._headers = watch, address, inner, headers

    async def exchange(self, message: Message) -> Message:
        """Same as the method of the inner Connector."""
        call, began = self._watch.call(message, self._address, self._headers), perf_counter()
        try:
            reply = await self._inner.exchange(message)
        except GatewayError as error:
            call.error = error.message
            raise
        finally:
            call.exchange = perf_counter() - began
        self._watch.replied(call, reply)
        return reply

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Same as the method of the inner Connector."""
        call, began = self._watch.call(message, self._address, self._headers), perf_counter()
        try:
            async with aclosing(self._inner.stream(message)) as replies:
                async for reply in replies:
                    self._watch.replied(call, reply)
                    yield reply
        except GatewayError as error:
            call.error = error.message
            raise
        finally:
            call.exchange = perf_counter() - began

    async def close(self) -> None:
        """Close the inner Connector."""
        await self._inner.close()


async def explain(arrival: Arrival, config: Config, protocols: Mapping[str, Protocol], *, send: bool) -> Explanation:
    """Explain how a gateway with `config` processes the request in `arrival`. If `send` is True, also send the request
    to a backend."""
    watch = Watch()
    loop = asyncio.get_running_loop()
    assumed: tuple[Assumption, ...] = ()
    if not send:
        config, assumed = without_network(config, protocols)
    watched = {name: watch.protocol(each) for name, each in protocols.items()}
    # The first row that is not sent ends the request. Further rows in flight would fail unseen.
    reach, rows_at_once = (watch.connect, None) if send else (watch.connect_nowhere, 1)
    assembly = assemble(config, reach, watched, loop.time, rows_at_once=rows_at_once)
    found = Explanation(
        arrival.listener.name,
        arrival.protocol.name,
        arrival.protocol.transport,
        arrival.message.pattern,
        shown_message(arrival.message),
        arrival.notes,
        sent=send,
    )
    if send:
        await assembly.discovery.start()
        assembly.start()
    try:
        return await _Journey(arrival, config, assembly, watch, found, assumed).end()
    finally:
        await assembly.close()


class _Journey:
    """One request on its way through the gateway."""

    def __init__(
        self,
        arrival: Arrival,
        config: Config,
        assembly: Assembly,
        watch: Watch,
        found: Explanation,
        assumed: Sequence[Assumption],
    ) -> None:
        self._assumed = assumed
        self._arrival, self._config, self._assembly = arrival, config, assembly
        self._watch, self._found = watch, found
        watch.backend_of = self._backend_at
        self._stage = "transport"
        self._seconds: list[tuple[str, float]] = []
        self._request: Request | None = None

    async def end(self) -> Explanation:
        """Process the request until it ends or is ready to be sent to a backend, and return its explanation."""
        protocol, message = self._arrival.protocol, self._arrival.message
        try:
            if self._arrival.refused is not None:
                raise self._arrival.refused
            reply: Message | None = await self._answered(message, protocol)
        except NotSent:
            reply = None
        except (DecodeError, GatewayError) as error:
            known = refusal(Reason.INVALID_INPUT, str(error)) if isinstance(error, DecodeError) else error
            shown_error = ErrorShown(self._stage_of_error(), known.status.name, known.reason.value, known.message)
            self._found = replace(self._found, error=shown_error)
            reply = protocol.encode_error(known, self._request, message)
        came = self._arrival.message.parts
        calls = tuple(_shown_call(each, self._config.references, came) for each in self._watch.calls)
        inputs = self._inputs()
        return replace(
            self._found,
            calls=calls[:MOST_SHOWN],
            notes=(*self._found.notes, *self._about_credentials(), *self._assumptions(), *self._about_steps()),
            rows=0 if self._is_graph() else max(len(self._model_calls()), rows_before(inputs)),
            inputs=inputs,
            signature=self._signature(),
            reply=None if reply is None else shown_message(reply),
            seconds=tuple(self._seconds),
        )

    async def _answered(self, message: Message, protocol: Protocol) -> Message:
        listener = self._arrival.listener
        message = replace(message, received=asyncio.get_running_loop().time())
        settings = ListenerSettings(listener.name, listener.limits, listener.model)
        passing = protocol.http.is_passthrough
        router = self._assembly.passthrough if passing else self._assembly.router
        request = None
        if protocol.relay is not None:
            self._stage = "route"
            request = self._passing(message, protocol, settings)
        self._stage, began = "decode", perf_counter()
        if request is None:
            request = self._request = decoded(message, protocol, settings)
            self._took("decode", began)
            self._found = replace(self._found, request=_shown_request(request))
        self._stage, began = "route", perf_counter()
        decision = decide(request, self._config, self._assembly, passthrough=passing)
        self._found = replace(self._found, decision=decision)
        began = perf_counter()
        destination = router.select(request)
        self._took("route", began)
        if request.flaw and not self._found.sent:
            # A running gateway would first query the backend for the model, and then report this error.
            self._stage = "decode"
            raise DecodeError(request.flaw)
        self._stage, began = "fit", perf_counter()
        answers = await self._asked(destination, request, is_stream=_is_stream(message, protocol))
        self._took("backend", began)
        self._stage, began = "encode", perf_counter()
        if request.unread is not None:
            return passed(answers[-1])
        self._found = replace(self._found, outputs=self._outputs(answers))
        reply = protocol.encode_response(answers[-1], request, destination.translate)
        self._took("encode", began)
        return reply

    def _passing(self, message: Message, protocol: Protocol, settings: ListenerSettings) -> Request | None:
        """Return the request if the gateway relays it without decoding.

        If the request can be decoded, the explanation shows its content."""
        request = unread(message, protocol, settings)
        if request is None or self._assembly.router.select(request).relay is not protocol.relay:
            return None
        with suppress(DecodeError, GatewayError):
            read = self._request = decoded(message, protocol, settings)
            self._found = replace(self._found, request=_shown_request(read))
        return request

    async def _asked(self, destination: Destination, request: Request, *, is_stream: bool) -> list[Answer]:
        if destination.local is not None:
            return [destination.local(request)]
        if not is_stream and destination.handler is not None:
            return [await destination.handler(request)]
        assert destination.stream is not None
        found: list[Answer] = []
        async with aclosing(destination.stream(request)) as responses:
            async for response in responses:
                found.append(response)
                if len(found) == MOST_RESPONSES:
                    break
        return found or [Response()]

    def _backend_at(self, address: str) -> str:
        """Return the backend of the matching route that has an endpoint at this address."""
        decision = self._found.decision
        names = [each.backend for each in decision.backends] if decision else []
        backends = ((name, self._assembly.backends[name]) for name in names)
        return next((name for name, each in backends if address in {one.address for one in each.endpoints}), "")

    def _assumptions(self) -> list[str]:
        """Return the assumptions about the route and its backends."""
        decision = self._found.decision
        places = {decision.route, *(each.backend for each in decision.backends)} if decision else set[str]()
        return [each.text for each in self._assumed if each.place in places]

    def _about_credentials(self) -> list[str]:
        listener = self._arrival.listener
        if listener.auth is None:
            return []
        text = (
            f"listener {listener.name!r} requires credentials; this explanation checks neither them nor the permissions"
        )
        return [f"{text}: a client may get 401 or 403 instead"]

    def _about_steps(self) -> list[str]:
        if not self._is_graph() or self._found.sent:
            return []
        return ["shown is what the first step sends; the others wait for answers, or for their turn: --send shows them"]

    def _took(self, stage: str, began: float) -> None:
        self._seconds.append((stage, perf_counter() - began))

    def _stage_of_error(self) -> str:
        return "backend" if self._stage == "fit" and self._watch.calls else self._stage

    def _model_calls(self) -> list[Call]:
        return [each for each in self._watch.calls if each.request is None or each.request.operation in CALLS]

    def _inputs(self) -> tuple[TensorChange, ...]:
        calls = self._model_calls()
        if self._request is None or not calls or calls[0].request is None or self._is_graph():
            return ()
        route = self._route()
        renamings = () if route is None else route.translate.rename.inputs
        return compare(self._request.inputs, calls[0].request.inputs, renamings)

    def _outputs(self, answers: list[Answer]) -> tuple[TensorChange, ...]:
        before = next((each.answer for each in self._model_calls() if isinstance(each.answer, Response)), None)
        after = answers[-1]
        if before is None or not isinstance(after, Response) or self._is_graph():
            return ()
        route = self._route()
        renamings = () if route is None else route.translate.rename.outputs
        # On the way from the backend to the client, the two names of a tensor are swapped.
        back = [replace(each, client=each.backend, backend=each.client) for each in renamings]
        return compare(before.outputs, after.outputs, back)

    def _is_graph(self) -> bool:
        """True if the model is a graph, whose steps have their own tensors."""
        return self._found.decision is not None and bool(self._found.decision.steps)

    def _route(self) -> RouteConfig | None:
        decision = self._found.decision
        return next((each for each in self._config.routes if decision and decision.route == each.name), None)

    def _signature(self) -> str:
        """If the request runs the model, return a description of the source of the model's signature."""
        route, request = self._route(), self._request
        if route is None or request is None or request.operation not in CALLS:
            return ""
        if route.signature is not None and route.signature.inputs and route.signature.outputs:
            return "the route's `signature`"
        asked = [each for each in self._watch.calls if each.request and each.request.operation not in CALLS]
        if asked and self._model_calls():
            return "the backend's metadata"
        if asked:
            return (
                "the backend's metadata, which would be asked for first; what follows depends on it. `signature` on the"
                " route takes its place, and --send asks"
            )
        side = self._assembly.backend_sides[route.main_backend]
        if not side.traits.models.trusted_metadata:
            return (
                "unknown: the gateway does not use the metadata of these servers, so tensors keep their datatypes and "
                "shapes"
            )
        if self._found.error is not None:
            return ""
        return "not needed: tensors pass unchanged"


def _is_stream(message: Message, protocol: Protocol) -> bool:
    if isinstance(protocol.binding, GrpcBinding):
        return message.pattern in protocol.binding.streams
    form = protocol.http
    asked = (form.wants_stream, form.body_wants_stream)
    return form.is_passthrough or any(wants is not None and wants(message) for wants in asked)


def _shown_call(call: Call, references: Mapping[str, str], came: tuple[Buffer, ...]) -> CallShown:
    operation = "message" if call.request is None else call.request.operation.value
    reply = None if call.reply is None else shown_message(call.reply)
    exchange = call.exchange if call.reply is not None or call.error else None
    as_it_came = call.message.parts is came
    own = [field for field in call.message.headers.raw if field[0] not in call.fixed]
    sent = replace(call.message, headers=Headers((*own, *((name, _HIDDEN.encode()) for name in call.fixed))))
    message = _with_references(replace(shown_message(sent), as_it_came=as_it_came), references)
    return CallShown(
        backend=call.target.backend,
        endpoint=call.target.address,
        operation=operation,
        message=message,
        encode=call.encode,
        exchange=exchange,
        decode=call.decode,
        reply=reply,
        error=call.error,
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def shown_message(message: Message) -> MessageShown:
    """Return `message` in the form that explanations use."""
    size = sum(len(part) for part in message.parts)
    beginning = b""
    for part in message.parts:
        beginning += bytes(part[: BEGINNING - len(beginning)])
    text = "".join(
        each if each.isprintable() else _escaped(each) for each in beginning.decode(errors="backslashreplace")
    )
    path = f"{message.path}?{message.query}" if message.query else message.path
    headers = tuple((name, _HIDDEN if name in SECRET_HEADERS else text) for name, text in message.headers)
    return MessageShown(message.method, path, headers, size, text, message.status)


def _with_references(message: MessageShown, references: Mapping[str, str]) -> MessageShown:
    """Return `message` with references instead of values from files or environment variables. These values could be
    secrets, and forms can insert them into headers and bodies."""
    beginning = message.beginning
    for text, reference in references.items():
        beginning = beginning.replace(json.dumps(text), json.dumps(reference))
    headers = tuple((name, references.get(text, text)) for name, text in message.headers)
    return replace(message, headers=headers, beginning=beginning)


def _shown_request(request: Request) -> RequestShown:
    return RequestShown(
        request.operation.value,
        request.model,
        request.version,
        request.id,
        tuple(map(shown, request.inputs[:MOST_SHOWN])),
        tuple(each.name for each in request.outputs[:MOST_SHOWN]),
        tuple((name, str(each)[:BEGINNING]) for name, each in request.parameters.items()),
    )
