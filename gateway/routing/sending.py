"""Sends one attempt of a call to one endpoint, in the backend's protocol, with spans for its codec. `backend` uses this
module."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from time import monotonic
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.messages import Message, bytes_of
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.record import Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.spans import Repeated, Span, begin
from gateway.core.streaming import ask_stream
from gateway.core.tasks import outlived_by
from gateway.routing.endpoint import Endpoint
from gateway.routing.one_try import Send, span_of_try
from gateway.routing.readiness import probe
from gateway.routing.targets import Targets


def _with_spans(protocol: Protocol, record: Record, parent: Span, *, is_stream: bool = False) -> Protocol:
    """Return a copy of `protocol` whose `encode_request` and `decode_response` record spans in `record`, as children of
    `parent`. All responses in a stream share one span. Messages that are relayed without decoding have no separate
    spans; `parent` contains their data."""
    decoding = Repeated(record, "decode reply", parent) if is_stream else None
    received = 0

    def encode_request(request: Request, target: Target) -> Message:
        with begin(record, "encode request", parent) as span:
            message = protocol.encode_request(request, target)
            span.facts["bytes"] = bytes_of(message)
        parent.facts["request_bytes"] = span.facts["bytes"]
        parent.facts["method"], parent.facts["path"] = message.method, message.path
        return message

    def decode_response(reply: Message, request: Request, target: Target) -> Answer:
        nonlocal received
        received += bytes_of(reply)
        parent.facts["status"] = reply.status
        with begin(record, "decode reply", parent) if decoding is None else decoding as span:
            span.facts["bytes"] = parent.facts["reply_bytes"] = received
            return protocol.decode_response(reply, request, target)

    def relay_request(message: Message, request: Request, target: Target) -> Message | None:
        assert protocol.relay is not None
        sent = protocol.relay.request(message, request, target)
        if sent is not None:
            parent.facts["request_bytes"] = bytes_of(sent)
            parent.facts["method"], parent.facts["path"] = sent.method, sent.path
        return sent

    def relay_reply(reply: Message, request: Request, target: Target) -> Message | None:
        nonlocal received
        assert protocol.relay is not None
        parent.facts["status"] = reply.status
        passing = protocol.relay.reply(reply, request, target)
        if passing is not None:  # otherwise the codec decodes the message and counts it
            received += bytes_of(reply)
            parent.facts["reply_bytes"] = received
        return passing

    relay = protocol.relay
    relay = None if relay is None else replace(relay, request=relay_request, reply=relay_reply)
    return replace(protocol, encode_request=encode_request, decode_response=decode_response, relay=relay)


Began: TypeAlias = Callable[[Request, Endpoint], Callable[[bool], None]]
"""See `Slots.began`."""


class Sender:
    """Makes the call attempts to the endpoints of one backend, and determines the endpoints' Targets if necessary. A
    Sender does not manage slots.

    `has_tls` is True if all endpoints use TLS, regardless of the schemes in their addresses."""

    def __init__(
        self,
        target: Target,
        protocol: Protocol,
        endpoints: Sequence[Endpoint],
        clock: Callable[[], float] = monotonic,
        *,
        has_tls: bool = False,
    ) -> None:
        self.name = target.backend
        self.protocol = protocol
        self.targets = Targets(target, protocol, endpoints, clock=clock)
        self.runs_to_the_end = protocol.traits.servers.runs_to_the_end
        """True if servers continue a call after the client has disconnected."""
        self._has_tls = has_tls

    def ask(self, request: Request, endpoint: Endpoint) -> Coroutine[Any, Any, Answer]:
        """Return the response of an endpoint."""
        target = self.targets.known.get(endpoint)
        if target is None:
            return self._ask_unknown(request, endpoint)
        if request.span is not None:
            return ask(request, self._protocol_for(request), endpoint, target)
        return ask(request, self.protocol, endpoint, target)

    def to_the_end(self, began: Began, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """Send like `ask`, for a server that continues a call after the client has disconnected. The exchange runs in a
        separate task, which outlives the client's task and returns the slot when it ends. Until then, the slot must
        stay taken."""
        ended = began(request, endpoint)
        task = asyncio.get_running_loop().create_task(self.ask(request, endpoint))
        # Register this first: it must run before the client receives the response.
        task.add_done_callback(lambda task: ended(not task.cancelled() and task.exception() is None))
        return outlived_by(task)

    async def in_span(self, send: Send, request: Request, endpoint: Endpoint) -> Answer:
        """Call `send`, and add the attempt's span to the request's Record."""
        with self.span(request, endpoint) as span:
            return await send(replace(request, span=span), endpoint)

    def span(self, request: Request, endpoint: Endpoint) -> Span:
        """Start the span of an attempt and return it."""
        return span_of_try(request, self.name, endpoint, self.protocol, tls=self._has_tls)

    async def stream(
        self, request: Request, endpoint: Endpoint, span: Span | None = None, *, passthrough: bool = False
    ) -> AsyncGenerator[Response, None]:
        """Return an endpoint's responses as `streaming.ask_stream` yields them.

        If `passthrough` is True, the responses are in the protocol's passthrough form. Raises the same errors as
        `Targets.find`.
        """
        protocol = self.protocol.http.passthrough if passthrough else self.protocol
        connector = endpoint.passthrough if passthrough else endpoint
        assert protocol is not None
        assert connector is not None
        if span is not None:
            request = replace(request, span=span)
            protocol = _with_spans(protocol, request.record, span, is_stream=True)
        return ask_stream(request, protocol, connector, await self.target_of(endpoint, request.deadline))

    async def without_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        """Send and count a request that takes no slot, and return the response."""
        endpoint.enter()
        try:
            return await self.ask(request, endpoint)
        finally:
            endpoint.leave()

    async def to_each(self, request: Request, endpoint: Endpoint) -> Answer:
        """Send like `without_slot`, for a request that goes to all endpoints. If a different server has taken over the
        address and rejects the request, send the request once more, in the form that the new server expects."""
        changes = self.targets.changes.get(endpoint, 0)
        try:
            return await self.without_slot(request, endpoint)
        except GatewayError as error:
            if not await self.targets.has_changed(endpoint, request, error, changes):
                raise
        return await self.without_slot(request, endpoint)

    async def target_of(self, endpoint: Endpoint, deadline: float | None = None) -> Target:
        """Return the Target of an endpoint. Query its server type if the type is unknown. Raises GatewayError."""
        return self.targets.known.get(endpoint) or await self.targets.find(endpoint, deadline)

    async def probe(self, operation: Operation, endpoint: Endpoint) -> None:
        """Probe one endpoint like `readiness.probe`. The result is not recorded."""
        await probe(operation, self.protocol, endpoint.connector, self.targets.of(endpoint))

    def _protocol_for(self, request: Request) -> Protocol:
        """Return the protocol. For a request with spans, return a variant that records the codec's spans."""
        if request.span is None:
            return self.protocol
        return _with_spans(self.protocol, request.record, request.span)

    async def _ask_unknown(self, request: Request, endpoint: Endpoint) -> Answer:
        target = await self.targets.find(endpoint, request.deadline)
        return await ask(request, self._protocol_for(request), endpoint, target)
