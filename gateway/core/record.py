"""`Record`: what became of one request, for those who observe requests (access log, metrics, tracing).

A Record is filled at five moments, by the one who owns the moment:

    begun     a request has arrived, or is refused      the listener          transport.begun
    routed    it is decoded, and its route is known     the exchange          decoded, routed
    sent      a try of it goes to an endpoint           the backend           sent
    answered  that try has ended                        the backend           answered
    ended     the reply is written, or nobody waits     the transport         end, give_up; failed before an error

Then each Observer is called, once. In between, those who do something out of the ordinary say so: `retried`, `waited`,
`cached`, `gathered`, `lost`, `tell`. Where nobody observes, every request has UNRECORDED, on which all of these do
nothing. So nobody has to ask whether there is a record. Only where every request passes it is asked, to save the call.
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
"""The header or metadata key of the request id, in requests and replies."""
TRACE_HEADER = "traceparent"
"""The header of W3C Trace Context, whose trace id is the request id of a request that has no ID_HEADER."""
ROUTE_HEADER, BACKEND_HEADER, TRIES_HEADER = "gateway-route", "gateway-backend", "gateway-tries"
"""The headers or metadata keys of a reply that name what answered it, on listeners that tell."""
CACHE_HEADER = "gateway-cache"
"""The same, for what a cache did: `hit`, `shared` or `miss`, a hit with its age in seconds."""

TIMED = 16
"""The codecs of one in so many requests, chosen at random, are timed: reading the clock four times for each request
costs more than is learnt from it."""

LONGEST_TEXT = 8192
"""Characters of an error's text that are kept."""
LONGEST_MODEL = 1024
"""Characters of a model's name that a record keeps. The router refuses longer names."""

GIVEN_UP = {"http": 499, "grpc": Status.CANCELLED.value, "tcp": 0}
"""The `code` of a request whose client left before the reply, by transport."""

_ID, _TRACE = ID_HEADER.encode(), TRACE_HEADER.encode()
_CACHE = CACHE_HEADER.encode()
_ROUTE, _BACKEND, _TRIES = ROUTE_HEADER.encode(), BACKEND_HEADER.encode(), TRIES_HEADER.encode()

HIT: Final = "hit"
SHARED: Final = "shared"
MISS: Final = "miss"
CACHE_OUTCOMES = (HIT, SHARED, MISS)
"""The outcomes of the policy `cache` for a call: its answer was kept; it shares the answer to an equal call on its way;
the backend is asked. Of a batch that is several calls, the last of these is told."""

UNREAD: Final = "nothing"
"""What the content of a request that passed unread was read for."""

CAST_ROUNDED = "cast rounded"
"""A loss: a tensor was converted, as the route's `cast` allows, to a datatype that does not hold one of its values."""

Observer: TypeAlias = "Callable[[Record], None]"
"""A function that is called with each Record when its request has ended, for example the access log. It must be quick,
since the next reply waits for it: it adds to a counter, or appends to a list that something else reads later."""

Explain: TypeAlias = "Callable[[Record], list[tuple[bytes, bytes]]]"
"""The headers of a reply that explain what became of the request so far."""


@frozen
class RecordDisclosure:
    """Who is told of a record: `id` and `route` to clients in their replies, `forwards` the id to backends.
    `id_of_errors`: replies that report an error have the id, whatever `id` is."""

    id: bool = False
    route: bool = False
    forwards: bool = False
    id_of_errors: bool = False


@frozen
class ListenerRecords:
    """The data that the Records of one listener's requests share: who is told of them when they end, and what is told
    of them. `forwards`: requests to backends may have headers because of them."""

    observers: tuple[Observer, ...] = ()
    telling: RecordDisclosure = RecordDisclosure()
    forwards: bool = False


_NO_LISTENER = ListenerRecords()


class Record(Struct, gc=False, eq=False):
    """The record of one request: its arrival, contents, processing and result. Texts are empty and numbers 0 where
    nothing is known.

    How it came:

    - `listener`: its name. `of_listener`: what its records have in common, `observers` and `telling` among it.
    - `id`: the request id, accepted from the client or made.
    - `received`: when the listener began with it, on the clock `time.monotonic`, in seconds: its whole message had
      arrived, and it was its turn among the messages of its connection; over gRPC, it was decompressed too.
    - `in_protocol`: a name. `client`: `host:port`, empty over unix sockets. `principal`: who the client is.
    - `bytes_in`: bytes of its message as the exchange got it.

    What it is, once it is decoded and routed:

    - `operation`, `model`: as in Request. `route`: the route's name; `models.NAME` for that to a graph.
    - `read_for`: what its content was read for, such as `translate.cast`; UNREAD if it passed unread; empty if it came
      to no route.
    - `backend`, `out_protocol`: names; of the backend asked last, if there were several.

    What was done:

    - `endpoint`: the address asked last. `tries`: how often a request was sent, or tried to be sent, to an endpoint.
    - `queued`: seconds in queues of backends. `upstream`: seconds of all tries together, including their codecs.
    - `decode`, `encode`: seconds to decode the client's message and to encode the reply, if the request `is_timed`; 0
      if not, and where it did not come so far. One in TIMED is, and each whose spans are noted.
    - `retries`: how many of the tries repeat an earlier one, at the same endpoint or another, by a policy or because
      nothing could be sent. (A batch that is sent row by row has a try for each row, and no retries.)
    - `cache`: what the policy `cache` did: `hit`, `shared` or `miss`, empty where there is none. `cache_age`: of a hit,
      the age of its answer in seconds.
    - `losses`: what a translation lost: CAST_ROUNDED for each tensor.

    How it ended:

    - `status`: the name of a Status. `reason`: the value of a Reason, empty if the status is OK.
    - `code`: the wire's own status of the reply: that of HTTP or gRPC; 0 where replies have none. A client that left
      before has 499 over HTTP.
    - `bytes_out`: bytes of the reply's body. `ended`: when, on the same clock as `received`; 0 until then.

    `events`: spans, where an observer or an explanation wants them (then it `is_timed`); None: nobody does. `context`:
    the request's place in a trace; None where nobody traces. `traceparent`: that of the client, empty for none.
    `explain`: makes the header of the reply that explains the request, where the client asked for it. `added`: further
    headers of the reply. `tells`: the reply may have headers because of this record. `error_text`: what the client is
    told of an error, its first LONGEST_TEXT characters.

    Every observed request has a Record of its own, and each instruction for it counts. So it is made, and read when its
    request has ended (`observing.batches`), by msgspec, which is written in C, and it is not searched for cycles of
    references. The order of the fields is that in which they are read: what many requests have in common (`listener` to
    `read_for`), what differs (`received` to `losses`), and the others.
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
        """Who is told of this record, in the reply and in requests to backends."""
        return self.of_listener.telling

    def observe_also(self, observer: Observer) -> None:
        """Tell another observer when the request has ended."""
        self.of_listener = replace(self.of_listener, observers=(*self.of_listener.observers, observer))

    @property
    def seconds(self) -> float:
        """From the arrival of the message to the end of the reply."""
        return self.ended - self.received

    def reply_fields(self) -> Sequence[tuple[bytes, bytes]]:
        """The headers that the reply has because of this record; none unless `tells`."""
        telling = self.of_listener.telling
        fields: list[tuple[bytes, bytes]] = []
        if telling.id or (self.status != OK and telling.id_of_errors):
            fields.append((_ID, self.id.encode()))
        if telling.route and self.route:
            tries = b"%d" % self.tries
            fields += ((_ROUTE, _ascii(self.route)), (_BACKEND, _ascii(self.backend)), (_TRIES, tries))
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
        """The headers that a request to a backend, made in `span`, has because of this record."""
        fields = [] if self.context is None else self.context.fields(span)
        if self.of_listener.telling.forwards:
            if self.traceparent and self.context is None:
                fields = [(_TRACE, self.traceparent)]
            fields = [(_ID, self.id.encode()), *fields]
        return fields

    def decoded(self, operation: str, model: str, principal: Principal | None) -> None:
        """The request is decoded, and its client known where the listener asks for credentials."""
        self.operation, self.model = operation, model
        if principal is not None:
            self.principal = principal.name

    def routed(self, route: str, backend: str, read_for: str) -> None:
        """The route is found, and the backend that it leads to."""
        self.route, self.backend, self.read_for = route, backend, read_for

    def read(self, read_for: str) -> None:
        """The request, which had passed unread so far, is read after all."""
        self.read_for = read_for

    def sent(self, backend: str, protocol: str, endpoint: str) -> None:
        """A try goes to this endpoint of the backend, in this protocol."""
        self.tries += 1
        self.backend, self.out_protocol, self.endpoint = backend, protocol, endpoint

    def answered(self, seconds: float) -> None:
        """The try has ended after so many seconds: with an answer, an error, or because it was given up."""
        self.upstream += seconds

    def retried(self) -> None:
        """The next try repeats an earlier one."""
        self.retries += 1

    def waited(self, seconds: float, backend: str, place: int) -> None:
        """The call has waited in the queue of `backend`, at first at this place."""
        self.queued += seconds
        if self.events is not None:
            note(self, "queue", seconds).facts = {"backend": backend, "place": place}

    def cached(self, outcome: str, age: float) -> None:
        """The policy `cache` has done this: `miss`, `shared` or `hit`, with the age of the answer. Of several calls
        the last of CACHE_OUTCOMES is kept."""
        if not self.cache or CACHE_OUTCOMES.index(outcome) >= CACHE_OUTCOMES.index(self.cache):
            self.cache, self.cache_age = outcome, max(self.cache_age, age)

    def of_batch(self) -> "Record":
        """A record for the batch that begins with this request: with its id, without observers and without a trace."""
        of_listener = replace(self.of_listener, observers=())
        return Record(self.listener, self.in_protocol, received=monotonic(), id=self.id, of_listener=of_listener)

    def gathered(self, batch: "Record", seconds: float, requests: int, rows: int) -> None:
        """The request was answered with others as one batch, which has a record of its own. `seconds`: from its arrival
        at the batch to the end of that."""
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

    def failed(self, error: GatewayError, principal: Principal | None = None) -> None:
        """Note the error that the client is told. `principal`: who that is, if it is known."""
        if not self.ended:
            self.status, self.reason, self.tells = error.status.name, error.reason.value, True
            self.error_text = error.message[:LONGEST_TEXT]
            # Records outlive their requests, and a name that no route has may be as long as a message.
            self.model = self.model[:LONGEST_MODEL]
            if principal is not None:
                self.principal = principal.name

    def because(self, reason: Reason | None) -> None:
        """Why a reply without an error says no, such as that of a server that is not ready; None if it says yes."""
        self.reason = "" if reason is None else reason.value

    def lost(self, what: str) -> None:
        """A translation has lost something."""
        self.losses = (*self.losses, what)

    def end(self, code: int, bytes_out: int) -> None:
        """The reply is written: tell the observers. Does nothing if it has ended before."""
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
        """Nobody waits for the reply any more: the client has left, or the connection was closed."""
        if not self.ended and self.status == OK:
            self.status, self.reason = Status.CANCELLED.name, Reason.CANCELLED.value
            self.model = self.model[:LONGEST_MODEL]
        self.end(code, bytes_out)


class _Unrecorded(Record, frozen=True, gc=False, eq=False):  # type: ignore[misc]  # msgspec allows it
    """The record of requests that nobody observes. Its methods do nothing, and its fields cannot be set."""

    def _nothing(self, *_: object, **__: object) -> None:
        """Do nothing."""

    decoded = routed = read = sent = answered = retried = waited = cached = gathered = _nothing
    failed = because = lost = tell = end = give_up = _nothing

    def of_batch(self) -> Record:
        return self


UNRECORDED: Record = _Unrecorded("")
"""The record of every request where nobody observes."""


@lru_cache(1024)
def _ascii(name: str) -> bytes:
    """A name of the configuration as the value of a header."""
    return name.encode("ascii", "backslashreplace") if name.isprintable() else b"?"
