"""Records the requests and responses of a running gateway. A separate thread writes them to the file.

The recorder runs between a listener and `answer`. It receives a client's message, the decoded Request, the response
from the route's handler, and the encoded response. On the event loop, the recorder only stores references to them. If
too much data is waiting, the recorder drops and counts entries. Recording does not affect clients.

The recorder stores no credentials. It stores only the headers in HEADERS and the query parameters in QUERY, because any
other header or parameter could contain a key. It removes the credential from messages of byte streams.
"""

import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from queue import SimpleQueue
from random import random
from time import monotonic
from urllib.parse import parse_qsl, urlencode

from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input
from gateway.core.exchange import answer
from gateway.core.frozen import frozen, replace
from gateway.core.log_limit import LogLimit
from gateway.core.messages import Headers, Message, bytes_of
from gateway.core.protocol import ListenerSettings, Protocol, StreamBinding
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor_bytes
from gateway.core.transport import Destination, EventualReply, Exchange, Handler, Select
from gateway.policies.comparing import NO_ANSWER, Outcome
from gateway.tools.cassettes.entries import RECORDED, Entry
from gateway.tools.cassettes.files import LARGEST_ENTRY, CassetteFile

log = logging.getLogger(__name__)

MOST_WAITING = 2**26
"""Maximum total size of entries that wait for the writer, in bytes. A single entry can be larger if no other entry is
waiting."""

HEADERS = frozenset(
    {
        b"content-type", b"accept", b"inference-header-content-length", b"ce-specversion", b"ce-source", b"ce-type",
        b"ce-id", b"exception_what", b"gateway-reason", b"retry-after",
    }
)  # fmt: skip
"""The recorded headers, a fixed list that omits some headers that codecs read, such as `user-agent`."""
QUERY = frozenset({"model", "streaming", "return-ndarray", "errors"})
"""The recorded query parameters, a fixed list that omits a stream parameter with a different configured name."""


@frozen
class Bounds:
    """The limits of a recording: at most `requests` entries and `size` bytes, and only a fraction (`share`) of the
    requests for models that match one of the globs in `models`."""

    requests: int
    size: int
    models: Sequence[str] = ("*",)
    share: float = 1.0


class Recorder:
    """Writes requests and responses to a recording. `random` returns numbers from 0 (included) to 1 (excluded).

    `recorded` counts the written entries; `left_out` counts the dropped entries, by cause."""

    def __init__(self, file: CassetteFile, bounds: Bounds, random: Callable[[], float] = random) -> None:
        self.recorded = 0
        self.left_out: Counter[str] = Counter()
        self._file = file
        self._bounds = bounds
        self._random = random
        self._taken = 0
        self._bytes = 0
        self._is_full = False
        self._lock = threading.Lock()
        self._entries: SimpleQueue[tuple[Entry, Protocol, int] | None] = SimpleQueue()
        self._lines = LogLimit(log)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def tap(self, listener: ListenerSettings, select: Select) -> Exchange:
        """Return the function that a listener calls instead of `answer` to record its messages. The function decodes
        all messages, because if it decoded only the recorded ones, malformed calls would fail at random."""
        listener = replace(listener, relays=frozenset())

        def exchange(message: Message, protocol: Protocol) -> EventualReply:
            if self._is_full or self._random() >= self._bounds.share:
                return answer(message, protocol, listener, select)
            call = _Call(self, message, protocol, select)
            reply = answer(message, protocol, listener, call.select)
            return reply if isinstance(reply, Message) else call.noted(reply)

        return exchange

    def takes(self, request: Request) -> bool:
        """Return whether the recorder will record the request when the response is available."""
        return (
            request.operation in RECORDED
            and not request.flaw
            and any(fnmatchcase(request.model, glob) for glob in self._bounds.models)
        )

    def add(self, entry: Entry, protocol: Protocol) -> None:
        """Queue an entry for writing, without blocking."""
        size = _bytes(entry)
        if self._is_full:
            return
        if size > LARGEST_ENTRY:
            self._leave_out("size", f"it has {size} bytes; the maximum is {LARGEST_ENTRY}")
            return
        with self._lock:
            has_room = not self._bytes or self._bytes + size <= MOST_WAITING
            self._bytes += size if has_room else 0
        if not has_room:
            self._leave_out("slow", "writing the file is too slow")
            return
        self._taken += 1
        self._entries.put((entry, protocol, size))
        if self._taken >= self._bounds.requests:
            self._end(f"{self._taken} requests are recorded")

    def close(self, seconds: float = 10.0) -> None:
        """Stop recording, and spend at most `seconds` on writing the waiting entries."""
        self._is_full = True
        self._entries.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._entries.get()) is not None:
            entry, protocol, size = item
            try:
                if self._file.append(_without_secrets(entry, protocol), self._bounds.size):
                    self.recorded += 1
                else:
                    self.left_out["size of the file"] += 1
                    self._end(
                        f"with the next request, the file would exceed {self._bounds.size} bytes; raise --size for more"
                    )
            except OSError as error:
                self._leave_out("error", error.strerror or "writing the file failed")
            except (TypeError, DecodeError) as error:
                self._leave_out("form", f"the file format cannot represent it: {error}")
            except Exception:
                log.exception("the recorder failed")
            with self._lock:
                self._bytes -= size
        self._file.close()

    def _end(self, why: str) -> None:
        if not self._is_full:
            self._is_full = True
            log.info("recording to %s has ended: %s", self._file.path, why)

    def _leave_out(self, cause: str, why: str) -> None:
        self.left_out[cause] += 1
        self._lines.write(cause, logging.WARNING, "left out a request: %s", why)


class _Call:
    """One request that might be recorded."""

    def __init__(self, recorder: Recorder, message: Message, protocol: Protocol, select: Select) -> None:
        self._recorder = recorder
        self._message = message
        self._protocol = protocol
        self._select = select
        self._began = monotonic()
        self._request: Request | None = None
        self._destination = Destination()
        self._outcome: Outcome | None = None

    def select(self, request: Request) -> Destination:
        """Return the Destination that the router selects, with a handler that also records the response."""
        destination = self._select(request)
        if destination.handler is None or not self._recorder.takes(request):
            return destination
        self._request, self._destination = request, destination
        return replace(destination, handler=self._noting(destination.handler))

    def _noting(self, handler: Handler) -> Handler:
        async def handle(request: Request) -> Answer:
            try:
                answer = await handler(request)
            except GatewayError as error:
                if error.status not in NO_ANSWER and error.reason is not Reason.INTERNAL:
                    # a copy without the traceback, which would keep the request in memory
                    self._outcome = GatewayError(error.status, error.reason, error.message)
                raise
            except DecodeError as error:
                self._outcome = invalid_input(str(error))
                raise
            if isinstance(answer, Response):
                self._outcome = answer
            return answer

        return handle

    async def noted(self, eventual: Awaitable[Message]) -> Message:
        """Return the encoded response, and record the request with its outcome."""
        reply = await eventual
        if self._request is not None and self._outcome is not None:
            seconds = monotonic() - self._began
            entry = Entry(
                at=(datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="microseconds"),
                protocol=self._protocol.name,
                listener=self._request.listener,
                route=self._destination.route,
                backend=self._destination.backend,
                request=self._request,
                message=self._message,
                outcome=self._outcome,
                reply=reply,
                seconds=seconds,
            )
            self._recorder.add(entry, self._protocol)
        return reply


def _bytes(entry: Entry) -> int:
    outputs = entry.outcome.outputs if isinstance(entry.outcome, Response) else ()
    return tensor_bytes((*entry.request.inputs, *outputs)) + bytes_of(entry.message) + bytes_of(entry.reply)


def _without_secrets(entry: Entry, protocol: Protocol) -> Entry:
    """Return the entry without its client's credential, and with only the headers and parameters in the two lists."""
    message = entry.message
    binding = protocol.binding
    if isinstance(binding, StreamBinding) and binding.with_credential is not None:
        message = binding.with_credential(message, b"")
    parameters = [each for each in parse_qsl(message.query, keep_blank_values=True) if each[0] in QUERY]
    message = replace(message, headers=_read_by_codecs(message.headers), query=urlencode(parameters))
    return replace(entry, message=message, reply=replace(entry.reply, headers=_read_by_codecs(entry.reply.headers)))


def _read_by_codecs(headers: Headers) -> Headers:
    return Headers([(name, text) for name, text in headers.raw if name in HEADERS])
