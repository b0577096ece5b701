"""The destinations of the payload log: a file with one line per event, in CloudEvents' JSON Event Format, and an HTTP
receiver, which gets the same CloudEvents as from KServe's logger."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from random import uniform
from time import monotonic
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from gateway.core.errors import GatewayError, TransportError
from gateway.core.frozen import frozen
from gateway.core.messages import Headers, Message
from gateway.core.transport import Connector
from gateway.observing.line_file import LineFile
from gateway.observing.own_thread import in_own_thread
from gateway.observing.payload_log import events
from gateway.observing.payload_log.events import HEADER_LENGTH, Entry, Event, EventForm, event, structured


class PayloadFile:
    """A Sink that appends to the file at `path`. Raises OSError if the file cannot be opened."""

    def __init__(self, path: str, form: EventForm) -> None:
        self._file = LineFile(path)
        self._form = form
        self._is_writing = False

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        """Append the events of `batch`."""
        self._is_writing = True
        return await in_own_thread("payload-log", partial(self._write, batch))

    def _write(self, batch: Sequence[Entry]) -> tuple[int, str]:
        try:
            self._file.write(b"".join([structured(event(each, self._form)) + b"\n" for each in batch]))
        except OSError as error:
            lost = len(batch) - self._file.written_lines
            return lost, f"{self._file.path}: {error.strerror or 'writing failed'}"
        finally:
            self._is_writing = False
        return 0, ""

    def reopen(self) -> None:
        """Reopen the file before the next write."""
        self._file.reopen()

    async def close(self) -> None:
        """Close the file, unless an abandoned thread is still writing to it, because another file could soon get the
        same file descriptor."""
        if not self._is_writing:
            self._file.close()


ContentMode: TypeAlias = Literal["binary", "structured", "batch"]
"""The format of events in requests (CloudEvents' HTTP Protocol Binding, sections 3.1 to 3.3)."""

AT_ONCE = 8
"""Maximum number of parallel requests to the receiver."""
_TRY_AGAIN = frozenset({429, 503})
"""The statuses with which a receiver rejects an event that it might accept later."""
_FIRST_PAUSE = 0.2
"""Seconds before the second attempt. The delay doubles before each further attempt."""

_STRUCTURED, _BATCH = b"application/cloudevents+json", b"application/cloudevents-batch+json"
_HEADER_LENGTH = b"inference-header-content-length"


@frozen
class EventReceiver:
    """The destination and format of events. `headers` contains the headers of each request. `timeout` is the time limit
    for all attempts to send a request, in seconds."""

    url: str
    headers: Mapping[str, str]
    mode: ContentMode
    timeout: float


class PayloadReceiver:
    """A Sink that sends events through `connector`, which it closes."""

    def __init__(self, receiver: EventReceiver, connector: Connector, form: EventForm) -> None:
        self._receiver = receiver
        self._connector = connector
        self._form = form
        parts = urlsplit(receiver.url)
        self._path, self._query = parts.path or "/", parts.query
        self._own = [(name.encode(), each.encode()) for name, each in receiver.headers.items()]
        self._headers: dict[bytes, Headers] = {}
        """The headers that many requests share, by content type."""

    def reopen(self) -> None:
        """Do nothing, because a receiver has no file."""

    async def close(self) -> None:
        """Close all connections."""
        await self._connector.close()

    async def send(self, batch: Sequence[Entry]) -> tuple[int, str]:
        """Send the events of `batch`. If the receiver is unreachable or does not respond in time, drop the rest of the
        batch in favor of newer entries."""
        messages = await in_own_thread("payload-log", partial(self._messages, batch))
        sending = _Sending(self, messages)
        await asyncio.gather(*[sending.run() for _ in range(min(AT_ONCE, len(messages)))])
        lost = sending.lost + sum(number for _, number in sending.rest)
        return lost, sending.why

    def _messages(self, batch: Sequence[Entry]) -> list[tuple[Message, int]]:
        """Return the requests for a batch, and the number of events in each."""
        found = [event(each, self._form) for each in batch]
        match self._receiver.mode:
            case "binary":
                return [(self._binary(each), 1) for each in found]
            case "structured":
                return [(self._message(_STRUCTURED, events.structured(each)), 1) for each in found]
            case "batch":
                return [(self._message(_BATCH, events.batch(found)), len(found))]

    def _binary(self, each: Event) -> Message:
        further = events.headers(each)
        if (length := each.attributes.get(HEADER_LENGTH)) is not None:
            further.append((_HEADER_LENGTH, str(length).encode()))
        return self._message(each.content.encode(), each.data, further)

    def _message(self, content: bytes, body: bytes, further: Sequence[tuple[bytes, bytes]] = ()) -> Message:
        headers = self._headers.get(content)
        if headers is None:
            headers = self._headers[content] = Headers([(b"content-type", content), *self._own])
        return Message("POST", self._path, headers, (body,), query=self._query, further=further)

    async def sent(self, message: Message) -> tuple[str, bool]:
        """Send a request, and retry if the receiver is unreachable or its response allows another attempt. Return the
        reason if the request was not accepted, or an empty string. Also return True if the receiver responded."""
        until, pause = monotonic() + self._receiver.timeout, _FIRST_PAUSE
        while True:
            why, status, is_sent = await self._try(message, until - monotonic())
            wait = pause * uniform(0.8, 1.2)
            if (is_sent and status not in _TRY_AGAIN) or monotonic() + wait > until:
                return why, status != 0
            await asyncio.sleep(wait)
            pause *= 2

    async def _try(self, message: Message, seconds: float) -> tuple[str, int, bool]:
        """Return the reason if the receiver did not accept the request (or an empty string), the status of the response
        (or 0), and True if the request might have reached the receiver. Without a response, the log never repeats such
        a request, because it never sends an event twice."""
        try:
            async with asyncio.timeout(seconds):
                reply = await self._connector.exchange(message)
        except TimeoutError:
            return f"no answer within {self._receiver.timeout:g} s", 0, True
        except GatewayError as error:
            return error.message, 0, not isinstance(error, TransportError) or error.sent
        taken = 200 <= reply.status < 300
        return "" if taken else f"the receiver answered {reply.status}", reply.status, True


class _Sending:
    """Sends the requests of one batch. `rest` contains the unsent requests."""

    def __init__(self, receiver: PayloadReceiver, messages: Sequence[tuple[Message, int]]) -> None:
        self.rest = list(reversed(messages))
        self.lost = 0
        self.why = ""
        self._receiver = receiver
        self._has_answers = True

    async def run(self) -> None:
        """Send one request after another while the receiver responds."""
        while self.rest and self._has_answers:
            message, number = self.rest.pop()
            why, has_answer = await self._receiver.sent(message)
            self._has_answers = self._has_answers and has_answer
            if why:
                self.lost += number
                self.why = why
