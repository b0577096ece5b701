"""The class `Record`, which contains the history of one request for observers (access log, metrics, tracing).

The gateway fills a Record at five points in time:

    begun     a request has arrived, or is refused      the listener          transport.begun
    routed    it is decoded, and its route is known     the exchange          decoded, routed
    sent      an attempt goes to an endpoint            the backend           sent
    answered  that attempt has ended                    the backend           answered
    ended     the reply is written, or not needed       the transport         end, give_up; failed before an error

At the end, the record calls each Observer once. Between these points, other code records unusual steps: `retried`,
`waited`, `cached`, `gathered`, `lost`, `tell`. Without observers, the record of every request is UNRECORDED, whose
methods do nothing. Therefore, most code does not need to check whether a record exists. Only code that runs for every
request checks this, to save the call.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Final, TypeAlias

from msgspec import Struct

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import frozen, replace
from gateway.core.principal import Principal
from gateway.core.spans import Span, TraceContext, Unsampled, note

log = logging.getLogger(__name__)

OK = Status.OK.name

ID_HEADER = "x-request-id"
"""The header or metadata key with the request id, in requests and replies."""
TRACE_HEADER = "traceparent"
"""The header of W3C Trace Context. If a request has no ID_HEADER, the trace id becomes the request id."""
ROUTE_HEADER, BACKEND_HEADER, TRIES_HEADER = "gateway-route", "gateway-backend", "gateway-tries"
"""The headers or metadata keys with which some listeners report the route, the backend and the number of attempts in
replies."""
CACHE_HEADER = "gateway-cache"
"""The header for a cache's result: `hit`, `shared` or `miss`. For a hit, the header includes the response's age in
seconds."""

TIMED = 16
"""The gateway times the codecs in one out of this number of requests, at random. Reading the clock four times for each
request would cost too much."""

LONGEST_TEXT = 8192
"""Maximum length of an error message in a record, in characters."""
LONGEST_MODEL = 1024
"""Maximum length of a model's name in a record, in characters. The router rejects requests with longer names."""

GIVEN_UP = {"http": 499, "grpc": Status.CANCELLED.value, "tcp": 0}
"""The `code` of a request whose client disconnected before the reply, by transport."""

_ID, _TRACE = ID_HEADER.encode(), TRACE_HEADER.encode()
_CACHE = CACHE_HEADER.encode()
_ROUTE, _BACKEND, _TRIES = ROUTE_HEADER.encode(), BACKEND_HEADER.encode(), TRIES_HEADER.encode()

HIT: Final = "hit"
SHARED: Final = "shared"
MISS: Final = "miss"
CACHE_OUTCOMES = (HIT, SHARED, MISS)
"""The results of the `cache` policy for a call. Either the cache contains the response, or the call shares the response
to an equal call in flight, or the call goes to the backend. If a batch is split into several calls, the batch's result
is the call result that comes last in this list."""

STEP_PROTOCOL: Final = "graph"
"""The `in_protocol` of a request that a graph sends for a step."""

UNREAD: Final = "nothing"
"""The `read_for` of a request that was relayed without decoding."""

CAST_ROUNDED = "cast rounded"
"""A loss: a tensor was converted to a datatype that cannot represent all of its values, as the route's `cast` permits.
"""

Observer: TypeAlias = "Callable[[Record], None]"
"""A function, such as the access log, that receives each Record when the request has ended.

The function must be fast, because the next reply waits for it. For example, it increments a counter, or appends to a
list that other code reads later."""

Explain: TypeAlias = "Callable[[Record], list[tuple[bytes, bytes]]]"
"""Returns the reply headers that explain how the gateway processed the request."""


@frozen
class RecordDisclosure:
    """The recipients of a record's data.

    If `id` is set, clients receive the request id in replies; if `route` is set, they also receive the route. If
    `forwards` is set, backends receive the id. If `id_of_errors` is set, replies that report an error contain the id,
    regardless of `id`."""

    id: bool = False
    route: bool = False
    forwards: bool = False
    id_of_errors: bool = False


@frozen
class ListenerRecords:
    """The data that the Records of one listener's requests share. `observers` contains the functions that receive the
    Records when the requests end. `forwards` is True if the Records can add headers to backend requests.
    `step_observers` contains the observers for the Records of graph steps. `trace` is the observer of a sampled trace
    (None without tracing), which also receives the Records of calls that continue after the request itself.
    """

    observers: tuple[Observer, ...] = ()
    telling: RecordDisclosure = RecordDisclosure()
    forwards: bool = False
    step_observers: tuple[Observer, ...] = ()
    trace: "Observer | None" = None


_NO_LISTENER = ListenerRecords()


class Record(Struct, gc=False, eq=False):
    """The record of one request: its arrival, content, processing and result.

    Unknown strings are empty, and unknown numbers are 0.

    Arrival:

    - `listener`: The listener's name; empty for a request that a graph sends for a step. `of_listener`: The shared data
      of the listener's Records, such as `observers` and `telling`.
    - `id`: The request id, accepted from the client or created.
    - `received`: The time when the listener started to process the request, in seconds on the clock `time.monotonic`.
      At this time, the complete message had arrived (over gRPC, it was also decompressed), and the processing of
      earlier messages on the connection had ended.
    - `in_protocol`: The protocol's name. `client`: The client's `host:port`; empty over unix sockets. `principal`: The
      name of the client's principal.
    - `bytes_in`: The size, in bytes, of the request's message when the exchange receives it.

    Content, after decoding and routing:

    - `operation`, `model`: Same as in Request. `route`: The name of the route, or `models.NAME` for a graph.
    - `read_for`: The reason for decoding the content, such as `translate.cast`; UNREAD if the gateway relayed the
      content without decoding it; empty if no route matched.
    - `backend`, `out_protocol`: The names of the last call's backend and its protocol; empty for a graph, because each
      of its steps has its own Record.

    Processing:

    - `endpoint`: The address of the last call. `tries`: The number of attempts to send the request to an endpoint.
    - `queued`: The number of seconds in backend queues. `upstream`: The total number of seconds of all attempts,
      including their codecs.
    - `decode`, `encode`: The number of seconds to decode the client's message and to encode the reply. It is 0 unless
      the request `is_timed` and reached this step. The gateway times one out of TIMED requests, and every request with
      spans.
    - `retries`: The number of attempts that repeat an earlier attempt, at the same endpoint or another. The cause is a
      policy, or an earlier attempt that sent nothing. If a batch is sent row by row, each row is an attempt, but not a
      retry.
    - `cache`: The result of the `cache` policy: `hit`, `shared` or `miss`; empty without a cache. `cache_age`: For a
      hit, the age of the response in seconds.
    - `losses`: The losses in translation, with CAST_ROUNDED for each rounded tensor.

    Result:

    - `status`: The name of a Status. `reason`: The value of a Reason; empty if the status is OK.
    - `code`: The reply's status code in HTTP or gRPC; 0 if replies have no status code. If the client disconnected
      before the reply, GIVEN_UP contains the code (499 over HTTP).
    - `bytes_out`: The size of the reply's body, in bytes. `ended`: The time when the request ended, on the same clock
      as `received`; 0 while the request runs.

    `events` contains the spans if an observer or an explanation needs them (in this case, the request `is_timed`), and
    is None otherwise. `context` is the request's trace context, or None without tracing. `traceparent` is the client's
    header, or empty if the header is absent. `explain` returns the reply headers that explain the request, if the
    client requested them. `added` contains additional reply headers. `tells` is True if this Record can add headers to
    the reply. `error_text` contains the first LONGEST_TEXT characters of the error message for the client.

    Every observed request has its own Record, so the speed of each instruction matters. Therefore, the Record is a
    msgspec Struct: C code creates it, and encodes it after the end of the request (`observing.batches`). The garbage
    collector does not track it. Fields are encoded in the order of their definition. First come fields with equal
    values in many requests (`listener` to `read_for`), then fields with different values (`received` to `losses`), and
    then all others.
    """

    listener: str
    in_protocol: str = ""
    principal: str = ""
    operation: str = ""
    model: str = ""
    route: str = ""
    backend: str = ""
    out_protocol: str = ""
    endpoint: str = ""
    status: str = OK
    reason: str = ""
    tries: int = 0
    code: int = 0
    cache: str = ""
    read_for: str = ""

    received: float = 0.0
    decode: float = 0.0
    encode: float = 0.0
    upstream: float = 0.0
    queued: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    retries: int = 0
    ended: float = 0.0
    id: str = ""
    client: str = ""
    losses: tuple[str, ...] = ()

    of_listener: ListenerRecords = _NO_LISTENER
    tells: bool = False
    is_timed: bool = False
    traceparent: bytes = b""
    context: TraceContext | Unsampled | None = None
    cache_age: float = 0.0
    added: Sequence[tuple[bytes, bytes]] = ()
    events: list[Span] | None = None
    explain: "Explain | None" = None
    error_text: str = ""

    @property
    def telling(self) -> RecordDisclosure:
        """The recipients of this record's data. The client receives the data in the reply, and backends receive it in
        requests."""
        return self.of_listener.telling

    def observe_also(self, observer: Observer) -> None:
        """Add an observer to call when the request has ended."""
        self.of_listener = replace(self.of_listener, observers=(*self.of_listener.observers, observer))

    def trace_with(self, observer: Observer) -> None:
        """Add the observer of a sampled trace, to call when the request has ended."""
        self.observe_also(observer)
        self.of_listener = replace(self.of_listener, trace=observer)

    def reply_fields(self) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers that this record adds to the reply. The result is empty unless `tells` is True."""
        telling = self.of_listener.telling
        fields: list[tuple[bytes, bytes]] = []
        if telling.id or (self.status != OK and telling.id_of_errors):
            fields.append((_ID, self.id.encode()))
        if telling.route and self.route:
            tries = b"%d" % self.tries
            fields.append((_ROUTE, _ascii(self.route)))
            if self.backend:
                fields.append((_BACKEND, _ascii(self.backend)))
            fields.append((_TRIES, tries))
            if self.cache:
                age = f"; age={int(self.cache_age)}" if self.cache == "hit" else ""
                fields.append((_CACHE, f"{self.cache}{age}".encode()))
        fields += self.added
        if self.explain is not None:
            fields += self.explain(self)
        return fields

    def tell(self, *fields: tuple[bytes, bytes]) -> None:
        """Add headers to the reply."""
        self.added, self.tells = (*self.added, *fields), True

    def forwarded_fields(self, span: Span | None = None) -> list[tuple[bytes, bytes]]:
        """Return the headers that this record adds to a backend request in `span`."""
        fields = [] if self.context is None else self.context.fields(span)
        if self.of_listener.telling.forwards:
            if self.traceparent and self.context is None:
                fields = [(_TRACE, self.traceparent)]
            fields = [(_ID, self.id.encode()), *fields]
        return fields

    def decoded(self, operation: str, model: str, principal: Principal | None) -> None:
        """Record that the request is decoded. Also record the principal if the listener has authentication."""
        self.operation, self.model = operation, model
        if principal is not None:
            self.principal = principal.name

    def routed(self, route: str, backend: str, read_for: str) -> None:
        """Record the route and its backend."""
        self.route, self.backend, self.read_for = route, backend, read_for

    def read(self, read_for: str) -> None:
        """Record that the gateway decodes the request instead of relaying it unread, for the reason `read_for`."""
        self.read_for = read_for

    def sent(self, backend: str, protocol: str, endpoint: str) -> None:
        """Record that an attempt goes to this endpoint of the backend, with this protocol."""
        self.tries += 1
        self.backend, self.out_protocol, self.endpoint = backend, protocol, endpoint

    def answered(self, seconds: float) -> None:
        """Record that the attempt has ended after `seconds` with a response, an error, or a cancellation."""
        self.upstream += seconds

    def retried(self) -> None:
        """Record that the next attempt repeats an earlier attempt."""
        self.retries += 1

    def waited(self, seconds: float, backend: str, place: int) -> None:
        """Record that the call has waited in the queue of `backend`. `place` is its first position in the queue."""
        self.queued += seconds
        if self.events is not None:
            note(self, "queue", seconds).facts = {"backend": backend, "place": place}

    def cached(self, outcome: str, age: float) -> None:
        """Record the result of the `cache` policy (`miss`, `shared` or `hit`), and the age of the response. If the
        record already has a result, keep the result that comes later in CACHE_OUTCOMES."""
        if not self.cache or CACHE_OUTCOMES.index(outcome) >= CACHE_OUTCOMES.index(self.cache):
            self.cache, self.cache_age = outcome, max(self.cache_age, age)

    def of_batch(self) -> "Record":
        """Return a record for the batch that starts with this request. The new record has the same id, but no observers
        and no trace."""
        of_listener = replace(self.of_listener, observers=())
        return Record(self.listener, self.in_protocol, received=monotonic(), id=self.id, of_listener=of_listener)

    def gathered(self, batch: "Record", seconds: float, requests: int, rows: int) -> None:
        """Record that this request was handled in a batch with other requests.

        The batch has a separate record. `seconds` is the time from the request's arrival at the batch to the end of the
        batch."""
        if batch.tries:
            self.backend, self.out_protocol, self.endpoint = batch.backend, batch.out_protocol, batch.endpoint
        self.tries += batch.tries
        self.retries += batch.retries
        self.queued += batch.queued
        self.upstream += batch.upstream
        if self.events is not None:
            note(self, "gather", seconds).facts = {
                "backend": batch.backend,
                "endpoint": batch.endpoint,
                "requests": requests,
                "rows": rows,
            }

    def of_step(self, operation: str, model: str) -> "Record":
        """Return a record for the request of a graph step, if this request is for a graph. The new record belongs to
        the graph's route and to the same trace. When the step has ended, pass the new record to `step_ended`."""
        of_listener = replace(self.of_listener, observers=self.of_listener.step_observers)
        return Record(
            "", STEP_PROTOCOL, self.principal, operation, model, self.route, received=monotonic(), id=self.id,
            client=self.client, of_listener=of_listener, traceparent=self.traceparent, context=self.context,
            events=self.events, explain=self.explain,
        )  # fmt: skip

    def step_ended(self, step: "Record") -> None:
        """Add the attempts and times of a step's record to this record, which belongs to the graph's request. The total
        time of steps that run in parallel can exceed the duration of the request."""
        self.tries += step.tries
        self.retries += step.retries
        self.queued += step.queued
        self.upstream += step.upstream
        self.losses += step.losses
        if step.cache:
            self.cached(step.cache, step.cache_age)
        if step.added:
            self.tell(*step.added)

    def failed(self, error: GatewayError, principal: Principal | None = None) -> None:
        """Record the error for the client. `principal` is the client's principal, if known."""
        if not self.ended:
            self.status, self.reason, self.tells = error.status.name, error.reason.value, True
            self.error_text = error.message[:LONGEST_TEXT]
            # Records live longer than their requests, and an unknown model name can be as long as a message.
            self.model = self.model[:LONGEST_MODEL]
            if principal is not None:
                self.principal = principal.name

    def because(self, reason: Reason | None) -> None:
        """Record the reason for a negative reply that is not an error, for example that a server is not ready. For a
        positive reply, `reason` is None."""
        self.reason = "" if reason is None else reason.value

    def lost(self, what: str) -> None:
        """Record a loss in translation."""
        self.losses = (*self.losses, what)

    def end(self, code: int, bytes_out: int) -> None:
        """Record the end of the reply, and call the observers. If the request has already ended, do nothing."""
        if self.ended:
            return
        self.code = code
        self.bytes_out = bytes_out
        self.ended = monotonic()
        for observe in self.of_listener.observers:
            try:
                observe(self)
            except Exception:
                log.exception("an observer of requests failed")

    def give_up(self, code: int, bytes_out: int = 0) -> None:
        """Record that the reply is unnecessary, because the client has disconnected or the connection is closed."""
        if not self.ended and self.status == OK:
            self.status, self.reason = Status.CANCELLED.name, Reason.CANCELLED.value
            self.model = self.model[:LONGEST_MODEL]
        self.end(code, bytes_out)


class _Unrecorded(Record, frozen=True, gc=False, eq=False):  # type: ignore[misc]  # msgspec allows it
    """The record of requests without observers. Its methods do nothing, and its fields cannot be set."""

    def _nothing(self, *_: object, **__: object) -> None:
        """Do nothing."""

    decoded = routed = read = sent = answered = retried = waited = cached = gathered = step_ended = _nothing
    failed = because = lost = tell = end = give_up = _nothing

    def of_batch(self) -> Record:
        return self

    def of_step(self, operation: str, model: str) -> Record:
        return self


UNRECORDED: Record = _Unrecorded("")
"""The record of every request without observers."""


@lru_cache(1024)
def _ascii(name: str) -> bytes:
    """Return a configured name as a header value."""
    return name.encode("ascii", "backslashreplace") if name.isprintable() else b"?"
