"""Spans, which are the steps in processing one request. The request's Record stores spans (`Record.events`) if tracing
or an explanation needs them. Otherwise, no code in this module runs.

`TraceContext` is the request's position in a distributed trace. The headers `traceparent` and `tracestate` of W3C Trace
Context encode this position.
"""

import re
from collections.abc import Callable, Sequence
from itertools import count
from random import getrandbits, random
from time import monotonic
from typing import Protocol

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import frozen

TRACE_PARENT, TRACE_STATE = b"traceparent", b"tracestate"
TRACE_HEADERS = frozenset({"traceparent", "tracestate"})
MIRROR_SPAN = "mirror"
"""The span name for a mirrored call."""
LONGEST_STATE = 512
"""Maximum length of the `tracestate` that the gateway forwards, in characters. According to W3C Trace Context, section
3.3.1.5, the limit should be at least 512."""
LONGEST_ERROR = 1024
"""Maximum length of an error message in a span, in characters."""
MOST_SPANS = 256
"""Maximum number of spans of one request. The limit is necessary because a batch can make thousands of calls."""

# W3C Trace Context, section 3.2: version, trace id, parent id, flags; later versions can add fields after the flags.
_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class Span:
    """A step in processing one request.

    - `name`: request, mirror, gather, step, decode, queue, try, encode request, decode reply, fit, fit reply or encode.
    - `id`: 64 random bits. `parent`: The span that contains this span; None for the request itself.
    - `began`, `ended`: Times on the clock of the Record (`time.monotonic`), in seconds. `ended` is 0 until the span
      ends.
    - `facts`: The span's attributes, by name.
    - `error`: The message of the error that ended the span. `failure`: The error's Status and Reason, if it has them.
    """

    __slots__ = ("began", "ended", "error", "facts", "failure", "id", "name", "parent")

    def __init__(self, name: str, parent: "Span | None", began: float) -> None:
        self.name, self.parent, self.began = name, parent, began
        self.ended = 0.0
        self.id = getrandbits(64) or 1
        self.facts: dict[str, object] = {}
        self.error = ""
        self.failure: tuple[Status, Reason] | None = None

    def end(self) -> None:
        """Record that the span ends now."""
        self.ended = monotonic()

    def __enter__(self) -> "Span":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end()
        if error is not None:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Record the error that ended the span."""
        self.error = str(error)[:LONGEST_ERROR] or type(error).__name__
        if isinstance(error, GatewayError):
            self.failure = error.status, error.reason


class Spanned(Protocol):
    """A Record in its role as owner of the request's spans. `events` is None if nothing needs the spans."""

    events: list[Span] | None


def begin(record: Spanned, name: str, parent: Span | None = None) -> Span:
    """Return a new span that starts now, and add it to the record unless the record already contains MOST_SPANS
    spans."""
    span = Span(name, parent, monotonic())
    if record.events is not None and len(record.events) < MOST_SPANS:
        record.events.append(span)
    return span


def note(record: Spanned, name: str, seconds: float, parent: Span | None = None) -> Span:
    """Record a span that ends now and took `seconds`."""
    span = begin(record, name, parent)
    span.ended, span.began = span.began, span.began - seconds
    return span


class Repeated:
    """One span for repeated work, such as encoding each response of a stream.

    The span lasts from the start of the first repetition to the end of the last. Its facts are `times` (the number of
    repetitions) and `busy_seconds` (the total duration of the work). Use a `with` statement for each repetition."""

    def __init__(self, record: Spanned, name: str, parent: Span | None = None) -> None:
        self._record, self._name, self._parent = record, name, parent
        self._span: Span | None = None
        self._times, self._busy, self._began = 0, 0.0, 0.0

    def __enter__(self) -> Span:
        if self._span is None:
            self._span = begin(self._record, self._name, self._parent)
        self._began = monotonic()
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        span = self._span
        assert span is not None
        span.__exit__(kind, error, traceback)
        self._times += 1
        self._busy += span.ended - self._began
        span.facts |= {"times": self._times, "busy_seconds": self._busy}


@frozen
class TraceContext:
    """The position of a request in its trace. A trace contains the spans of one request in all services on its path.
    `parent` is the id of the parent span, and is 0 at the root. `id` is the id of the request's own span. `state` is
    the value of `tracestate`, which the gateway forwards unchanged."""

    trace: int
    parent: int
    id: int
    is_sampled: bool
    state: bytes = b""

    def fields(self, span: Span | None = None) -> list[tuple[bytes, bytes]]:
        """Return the headers for a backend call in `span` or, if `span` is None, in the request's own span."""
        flags = b"01" if self.is_sampled else b"00"
        parent = b"00-%032x-%016x-%s" % (self.trace, self.id if span is None else span.id, flags)
        return [(TRACE_PARENT, parent), (TRACE_STATE, self.state)] if self.state else [(TRACE_PARENT, parent)]


_unsampled_parent: Callable[[], bytes] = map(
    (b"00-%016x%%016x-%016x-00" % (getrandbits(64), getrandbits(64) or 1)).__mod__, count(1)
).__next__
"""Makes the `traceparent` of a new trace, with flags that ask downstream services not to sample the trace either.

The ids consist of this process's random digits and a counter, because random ids would cost more. No service records
these ids."""


class Unsampled:
    """The context of every request that starts an unsampled trace. Each call to a backend has a new trace id."""

    is_sampled = False

    def fields(self, span: Span | None = None) -> list[tuple[bytes, bytes]]:
        """Return the headers for a backend call."""
        return [(TRACE_PARENT, _unsampled_parent())]


UNSAMPLED = Unsampled()


def read_context(parent: bytes, raw: Sequence[tuple[bytes, bytes]], sample: float) -> TraceContext | Unsampled:
    """Return the context of a request with these headers. `parent` is the value of `traceparent`.

    If `parent` is missing or invalid, the request is the root of a new trace. The gateway samples new traces with the
    probability `sample`."""
    found = _TRACEPARENT.fullmatch(parent) if parent else None
    if found is None or (found[1] == b"00" and found[5]):
        if random() >= sample:
            return UNSAMPLED
        return TraceContext(getrandbits(128) or 1, 0, getrandbits(64) or 1, True)
    state = b",".join(text for name, text in raw if name == TRACE_STATE)
    if len(state) > LONGEST_STATE or not state.isascii() or not state.decode().isprintable():
        state = b""
    is_sampled = bool(int(found[4], 16) & _SAMPLED)
    return TraceContext(int(found[2], 16), int(found[3], 16), getrandbits(64) or 1, is_sampled, state)
