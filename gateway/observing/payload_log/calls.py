"""Select a fraction of the calls for the payload log, and log the request and the responses of each call when the call
ends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from time import monotonic, time
from typing import TypeAlias, TypeGuard

from gateway.core.frozen import frozen, replace
from gateway.core.record import LONGEST_MODEL, OK, Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.surviving import log_survived
from gateway.core.tasks import spawn
from gateway.core.transport import Destination
from gateway.observing.payload_log.copies import (
    CopiedMessage,
    CopyBounds,
    KnownTensors,
    OtherNames,
    copied,
    fitted_reply,
    fitted_request,
    named,
    same_name,
    says_less,
)
from gateway.observing.payload_log.events import CallFacts, Entry, LoggedReply, LoggedRequest
from gateway.observing.payload_log.queue import EntryQueue

SECONDS_FOR_TENSORS = 5.0
"""Time limit for finding the tensors of a model, in seconds."""

MAY_QUOTE = "hidden text: it might quote a hidden value"
NO_REPLY = "no reply: the client has disconnected"

FindTensors: TypeAlias = Callable[[Request], Awaitable[KnownTensors]]
"""A function that finds the tensors of a request's model. The argument is the request without its inputs."""


@frozen
class TensorNames:
    """The tensor names in a route's calls. `inputs` and `outputs` map a client's name to the backend's name. `find`
    finds the model's tensors, for protocols whose messages lack some tensor metadata."""

    inputs: OtherNames = same_name
    outputs: OtherNames = same_name
    find: FindTensors | None = None


class PayloadLog:
    """Logs the requests and responses of a fraction of the calls, with their tensors. `bounds` limits the copy of each
    message."""

    def __init__(self, queue: EntryQueue, share: float, bounds: CopyBounds) -> None:
        self.queue = queue
        self.bounds = bounds
        self.share = share
        """The fraction of the calls for which the gateway calls `logged`."""
        self._fitting: set[asyncio.Task[None]] = set()
        """The tasks that find a model's tensors before their entries are queued."""

    def logged(self, request: Request, destination: Destination, names: TensorNames) -> Destination:
        """Return the destination with a wrapper that logs the request's call when its Record ends."""
        call = _Call(self, request, names)
        request.record.observe_also(call.ended)
        handler, stream = destination.handler, destination.stream
        return replace(
            destination,
            handler=None if handler is None else partial(call.answer, handler),
            stream=None if stream is None else partial(call.responses, stream),
        )

    def fitting(self, adding: Coroutine[None, None, None]) -> None:
        """Run a coroutine that finds a model's tensors and then queues entries."""
        task = spawn(adding)
        self._fitting.add(task)
        task.add_done_callback(self._fitting.discard)

    async def stop(self, seconds: float) -> None:
        """Pass the remaining entries to the sink, which has `seconds` to write them, and close the sink."""
        until = monotonic() + seconds
        if self._fitting:
            await asyncio.wait(self._fitting, timeout=seconds)
        await self.queue.stop(max(0.0, until - monotonic()))


class _Call:
    """A call in the payload log. The exchange needs the request and the response in memory until the Record ends. The
    log copies them only at that time, after the client has received the response."""

    def __init__(self, log: PayloadLog, request: Request, names: TensorNames) -> None:
        self._log = log
        self._names = names
        self._request: Request | None = request
        self._response: Response | None = None
        self._numbered = 0
        """The number of responses of a stream so far."""
        self._is_given_up = False
        """True if the queue had no capacity for the request. In this case, the log also omits the responses."""
        self._hides = False
        """True if the request contains values that must stay hidden."""
        self._facts: CallFacts | None = None

    async def answer(self, handler: Callable[[Request], Awaitable[Answer]], request: Request) -> Answer:
        """Return the response of `handler`."""
        answer = await handler(request)
        if isinstance(answer, Response):
            self._response = answer
        return answer

    async def responses(
        self, stream: Callable[[Request], AsyncGenerator[Response, None]], request: Request
    ) -> AsyncGenerator[Response, None]:
        """Yield the responses of `stream`. Each response is logged before the client receives it, because the next
        response can take a long time."""
        async with aclosing(stream(request)) as responses:
            async for response in responses:
                self._numbered += 1
                try:
                    self._log_reply(request.record, response)
                except Exception as error:
                    log_survived("the payload log", error)
                yield response

    def ended(self, record: Record) -> None:
        """Log the call when its Record ends."""
        response, self._response = self._response, None
        if record.status != OK:
            self._log_error(record)
        elif response is not None:
            self._log_reply(record, response)
        elif self._request is not None:  # a stream without a response
            self._add(self._known_facts(record), [])
        self._request = None

    def _log_reply(self, record: Record, response: Response) -> None:
        facts = self._known_facts(record)
        message = copied(response.outputs, response.parameters, self._log.bounds, others=self._names.outputs)
        message = named(message, (), "output", self._log.bounds, self._names.outputs)
        ended = _unix(record.ended or monotonic())
        self._add(facts, [LoggedReply(facts, message, ended, version=response.version, number=self._numbered)])

    def _log_error(self, record: Record) -> None:
        facts = self._known_facts(record)
        number = self._numbered + 1 if self._numbered else 0
        text = record.error_text or NO_REPLY
        error = LoggedReply(facts, None, _unix(record.ended), record.status, record.reason, text, number=number)
        self._add(facts, [error])

    def _known_facts(self, record: Record) -> CallFacts:
        """Return the known facts about the call. All events of the call share these facts, so all events of a stream
        contain the backend of the first event."""
        if self._facts is None:
            request = self._request
            assert request is not None
            # Clients choose these values, which can be as long as a message.
            id, model, version = ((each or "")[:LONGEST_MODEL] for each in (request.id, request.model, request.version))
            self._facts = CallFacts(
                id=record.id,
                message_id=id,
                model=model,
                version=version,
                operation=request.operation.value,
                route=record.route,
                backend=record.backend,
                protocol=request.protocol,
                received=_unix(record.received),
            )
        return self._facts

    def _add(self, facts: CallFacts, replies: list[LoggedReply]) -> None:
        """Queue the responses. The first response and the request are queued together or not at all."""
        if self._is_given_up:
            return
        request, self._request = self._request, None
        entries: list[Entry] = list(replies)
        message = CopiedMessage()
        if request is not None:
            message = copied(request.inputs, request.parameters, self._log.bounds, request.outputs, self._names.inputs)
            self._hides = bool(self._log.bounds.hide) and (message.hides or says_less(message))
            entries.insert(0, LoggedRequest(facts, message))
        if self._hides:
            entries = [replace(each, text=MAY_QUOTE) if is_error(each) else each for each in entries]
        if not self._log.queue.reserve(sum(each.held for each in entries)):
            self._is_given_up = request is not None
            self._log.queue.drop(len(entries))
        elif request is not None and says_less(message):
            # Keep no reference to the memory of the request's tensors.
            self._log.fitting(self._add_fitted(replace(request, inputs=(), origin=None), entries))
        else:
            self._log.queue.add(entries)

    async def _add_fitted(self, request: Request, entries: list[Entry]) -> None:
        """Queue a request whose protocol carries less metadata than V2, and its response, with the model's tensor
        metadata."""
        known, names, bounds = KnownTensors(), self._names, self._log.bounds
        if names.find is not None:
            try:
                async with asyncio.timeout(SECONDS_FOR_TENSORS):
                    known = await names.find(request)
            except Exception:  # regardless of the reason, the tensors are unknown
                known = KnownTensors()
        try:
            self._log.queue.add([_fitted(each, known, bounds, names.inputs) for each in entries])
        except Exception as error:
            log_survived("the payload log", error)
            self._log.queue.give_up(entries)


def _fitted(entry: Entry, known: KnownTensors, bounds: CopyBounds, others: OtherNames) -> Entry:
    if isinstance(entry, LoggedRequest):
        return replace(entry, message=fitted_request(entry.message, known, bounds, others))
    return entry if entry.message is None else replace(entry, message=fitted_reply(entry.message, known))


def is_error(entry: Entry) -> TypeGuard[LoggedReply]:
    """Return True if an entry is an error instead of a response."""
    return isinstance(entry, LoggedReply) and entry.message is None


def _unix(seconds: float) -> float:
    """Return the Unix time of a moment on the Records' clock."""
    return time() - monotonic() + seconds
