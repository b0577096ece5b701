"""The policy `cache: {bytes: 1073741824, seconds: 3600}`: equal calls receive the same stored response. If several
equal calls are in flight, only one is sent.

Two calls are equal if no server can distinguish them (`cached_answers.request_key`). On a backend, requests have the
model's names, datatypes and shapes. Therefore, calls from different client protocols can be equal.

The policy requires `safe: true` on the backend. Calls of sequences, streams, and metadata queries pass through. Errors
are not stored.

A call without a stored response runs in its own task, a SharedCall. The task continues while at least one caller waits
for the response, even if the first caller has disconnected. The first caller's deadline applies, and is sent to servers
that accept deadlines. If this deadline ends the call, or if the server has rejected the first caller, the next waiting
caller repeats the call.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from gateway.core.documented import Documented
from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import replace
from gateway.core.offload import in_thread
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.queue_wait import PartWaits
from gateway.core.record import CACHE_OUTCOMES, HIT, MISS, SHARED, Record
from gateway.core.redis import redis_url
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor_bytes
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.cached_answers import AnswerStore, SharedAnswers, form_of_message, own_copy, request_key
from gateway.policies.context import MessageReach, PolicyContext
from gateway.policies.places import PolicyState, ShownStates, StateMetric
from gateway.policies.shared_server import SharedServer

METRICS = (
    StateMetric(
        "gateway_cache_calls_total", "counter", ("owner", "outcome"),
        "Calls of a `cache` policy, by outcome: hit (stored response), shared (with an equal call in flight) or miss.",
        {"hit": "hits", "shared": "shared", "miss": "misses"},
    ),
    StateMetric(
        "gateway_cache_evictions_total", "counter", ("owner",), "Responses that a cache evicted.",
        {"": "evicted"},
    ),
    StateMetric("gateway_cache_answers", "gauge", ("owner",), "Responses stored in a cache.", {"": "answers"}),
    StateMetric(
        "gateway_cache_bytes", "gauge", ("owner",), "Memory of stored responses, in bytes.", {"": "bytes"}
    ),
)  # fmt: skip

LARGE = 2**20
"""The size, in bytes, above which tensors are hashed or copied in a thread. Hashing this size takes 0.6 ms, or 3 ms on
a processor without SHA-256 instructions."""
SLACK = 0.1
"""The maximum time, in seconds, by which a server that knows the deadline ends the call early."""

_OF_CLIENT = frozenset({Reason.RATE_LIMITED, Reason.PERMISSION_DENIED, Reason.UNAUTHENTICATED})
"""Reasons for which a server can reject one client but not another."""

_CACHED = frozenset({Operation.INFER, Operation.EXPLAIN, *DERIVATIVES})
_CACHE_CONTROL = b"cache-control"


class RedisSettings(Documented):
    """The second tier of the cache, which several gateways share."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    url: Annotated[SecretStr, AfterValidator(redis_url)]
    """URL of a Redis or Valkey server, such as `redis://host:6379/0`. Needs the package `redis`: `pip install
    "modelglot[redis]"`."""
    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the cache. Caches with the same name share their responses, so use the same name only for gateways whose
    servers have the same models."""
    max_response_bytes: Annotated[int, Field(ge=1, le=4 * 2**20)] = 2**20
    """Maximum size of the tensors of a response in Redis, in bytes."""


class Settings(Documented):
    """Stores responses of calls that run a model, and returns them for equal calls. If equal calls arrive while one of
    them is in flight, the gateway sends only one call. Needs `safe: true` on the backend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    needs_safe: ClassVar[str] = "answers equal calls with one call"

    bytes: Annotated[int, Field(ge=2**16)] = 2**28
    """Maximum memory for stored responses, in bytes. If the memory is full, the gateway evicts the least recently used
    responses. The gateway does not store a response that needs more than an eighth of this memory."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3600
    """Time for which the gateway stores a response, in seconds."""
    redis: RedisSettings | None = None
    """Redis server on which several gateways share responses, in addition to the cache in each gateway's memory."""


class SharedCall:
    """A call in flight that a cache shares among all equal calls (single-flight).

    - `leader`: the request that is sent.
    - `waiting`: the futures of the calls that wait for the response, or for the error as a value, in order of arrival.
      Each call has its own future, which is cheaper than `asyncio.shield`.
    - `waits`: the times that the shared call spends in queues.
    """

    __slots__ = ("leader", "task", "waiting", "waits")

    task: "asyncio.Task[None]"

    def __init__(self, leader: Request) -> None:
        self.leader = leader
        self.waiting: dict[asyncio.Future[Answer | Exception], None] = {}
        self.waits = PartWaits()

    @property
    def is_awaited(self) -> bool:
        """True if a call is still waiting for the response."""
        return any(not each.done() for each in self.waiting)

    def tell(self, found: Answer | Exception) -> None:
        """Pass the response or the error to all waiting calls."""
        for each in self.waiting:
            if not each.done():
                each.set_result(found)

    def ended(self, task: "asyncio.Task[None]") -> None:
        """Handle the end of the task. If the task was cancelled from outside, for example because the gateway is
        stopping, cancel all waiting calls."""
        if task.cancelled():
            for each in self.waiting:
                each.cancel()

    def is_ended_by_leader(self, error: Exception) -> bool:
        """Return True if the call failed only because the deadline of `leader` has passed."""
        if not isinstance(error, GatewayError) or error.status is not Status.DEADLINE_EXCEEDED:
            return False
        deadline = self.leader.deadline
        return deadline is not None and asyncio.get_running_loop().time() >= deadline - SLACK

    def is_refused_to_leader(self, error: Exception, request: Request) -> bool:
        """Return True if the call failed because of its caller, and `request` comes from a different caller."""
        is_of_client = isinstance(error, GatewayError) and error.reason in _OF_CLIENT
        return is_of_client and request.client != self.leader.client


class Cache(PolicyState):
    """The state of a `cache` policy: stored responses, and calls in flight."""

    keeps_answers = True

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self.place = "cache"
        self.store = AnswerStore(settings.bytes, settings.seconds, clock)
        self.outcomes = dict.fromkeys(CACHE_OUTCOMES, 0)
        self._flights: dict[bytes, SharedCall] = {}
        self._redis: SharedAnswers | None = None
        if settings.redis is not None:
            server = SharedServer(settings.redis.url.get_secret_value(), lambda: self.place, clock)
            self._redis = SharedAnswers(
                server, settings.redis.name, settings.seconds, settings.redis.max_response_bytes
            )

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """Keep the counts. Keep the responses unless new responses could differ from them. See PolicyState."""
        if is_unchanged:
            self.store, self.outcomes = before.store, before.outcomes

    def clear(self) -> None:
        """Remove all responses, because the servers might now have different models. Calls in flight continue for their
        waiting callers, but the responses are not stored."""
        self.store.clear()
        self._flights.clear()
        if self._redis:
            self._redis.forget()

    async def call(self, handler: Handler, request: Request, reach: MessageReach) -> Answer:
        """Return a stored response, the response of an equal call in flight, or the response of `handler`."""
        control = request.headers.first.get(_CACHE_CONTROL)
        if control is not None and b"no-store" in control.lower():
            return await handler(request)
        if tensor_bytes(request.inputs) > LARGE:
            key = await in_thread(_key, request, reach)
        else:
            key = _key(request, reach)
        if control is not None and b"no-cache" in control.lower():
            self._note(request.record, MISS)
            generation = self.store.generation
            answer = await handler(request)
            await self._keep(key, answer, generation)
            return answer
        found = self.store.get(key)
        if found is not None:
            response, age = found
            self._note(request.record, HIT, age)
            return replace(response, id=request.id)
        while True:
            flight = self._flights.get(key)
            if flight is None:
                return await self._lead(key, handler, request)
            self._note(request.record, SHARED)
            shared = await self._wait(key, flight)
            if isinstance(shared, Response):
                return replace(shared, id=request.id)
            if not isinstance(shared, Exception):
                return shared
            if not flight.is_ended_by_leader(shared) and not flight.is_refused_to_leader(shared, request):
                raise _copy(shared)
            self.outcomes[SHARED] -= 1

    async def _lead(self, key: bytes, handler: Handler, request: Request) -> Answer:
        flight = self._flights[key] = SharedCall(request)
        flight.task = flight.waits.spawn(self._fly(key, flight, handler, request))
        flight.task.add_done_callback(flight.ended)
        answer = await self._wait(key, flight)
        if isinstance(answer, Exception):
            raise _copy(answer)  # text that is added for one client must not reach the others
        return answer

    async def _wait(self, key: bytes, flight: SharedCall) -> Answer | Exception:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer | Exception] = loop.create_future()
        flight.waiting[future], joined = None, loop.time()
        try:
            return await future
        finally:
            del flight.waiting[future]
            flight.waits.note(joined, go_on=flight.is_awaited)
            if not flight.waiting and not flight.task.done():
                self._land(key, flight)  # an equal call that arrives now starts a new SharedCall
                flight.task.cancel()

    async def _fly(self, key: bytes, flight: SharedCall, handler: Handler, request: Request) -> None:
        """Run the call, and pass the result to the waiting calls."""
        try:
            found = await self._asked(key, handler, request)
        finally:
            self._land(key, flight)
        flight.tell(found)

    async def _asked(self, key: bytes, handler: Handler, request: Request) -> Answer | Exception:
        """Return the response, or the error as a value, because an exception would never be retrieved if all callers
        have disconnected."""
        generation, epoch = self.store.generation, None
        try:
            if self._redis is not None:
                found, epoch = await self._redis.get(key)
                if found is not None:
                    response, age = found
                    self._note(request.record, HIT, age)
                    self.store.put(key, response, generation, age)
                    return replace(response, id=request.id)
            self._note(request.record, MISS)
            answer = await handler(request)
            await self._keep(key, answer, generation, epoch)
            return answer
        except Exception as error:
            return error

    def _land(self, key: bytes, flight: SharedCall) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _keep(self, key: bytes, answer: Answer, generation: int, epoch: "bytes | None" = None) -> None:
        if not isinstance(answer, Response):
            return
        if tensor_bytes(answer.outputs) > LARGE:
            response = await in_thread(own_copy, answer)
        else:
            response = own_copy(answer)
        self.store.put(key, response, generation)
        if self._redis is not None and epoch is not None and generation == self.store.generation:
            self._redis.put(key, response, epoch)

    def _note(self, record: Record, outcome: str, age: float = 0.0) -> None:
        self.outcomes[outcome] += 1
        record.cached(outcome, age)

    def status(self) -> Mapping[str, object]:
        """Return the size of the content, the outcomes of calls, the reasons why responses were removed and, if the
        cache uses Redis, whether Redis responds."""
        store = self.store
        shown: dict[str, object] = {
            "answers": len(store),
            "bytes": store.bytes,
            "hits": self.outcomes[HIT],
            "shared": self.outcomes[SHARED],
            "misses": self.outcomes[MISS],
            "evicted": store.evicted,
            "expired": store.expired,
            "too_large": store.too_large,
            "cleared": store.cleared,
        }
        if self._redis is None:
            return shown
        return {**shown, "redis": "up" if self._redis.server.is_reached else "down", "redis_hits": self._redis.hits}

    async def close(self, seconds: float) -> None:
        """Close the connections to Redis."""
        if self._redis:
            await self._redis.close()


def _key(request: Request, reach: MessageReach) -> bytes:
    """Return the key of a request in the cache, including the parts of the client's message that reach the servers."""
    more: tuple[object, ...] = ()
    if reach.is_unfitted:
        more = (request.protocol,)
    if reach.headers:
        more += tuple([(name, request.headers.all(name)) for name in reach.headers])
    if request.protocol in reach.forms:
        more += form_of_message(request.origin)
    return request_key(request, more)


def _copy(error: Exception) -> Exception:
    """Return a copy of a call's error for another waiting call. If several calls raised one exception in parallel,
    their tracebacks would be mixed."""
    copy = error.__class__.__new__(error.__class__)
    copy.__dict__.update(error.__dict__)
    copy.args = error.args
    return copy


state = ShownStates(Cache)


def wrap_stream(handler: StreamHandler, settings: Settings, context: PolicyContext) -> StreamHandler:
    """Return `handler` itself, because streams pass through."""
    return handler


def wrap(handler: Handler, settings: Settings, context: PolicyContext) -> Handler:
    """Return a Handler that calls `handler` once for equal calls.

    The Handler raises:
        GatewayError: raised by `handler`.
    """
    cache = state(settings)
    # Do this once for all Handlers of the entry.
    context.hidden_state(settings, lambda: context.on_new_models(cache.clear))
    may_repeat, reach = context.may_repeat, context.reach

    async def with_cache(request: Request) -> Answer:
        if request.operation not in _CACHED or request.flaw or not may_repeat(request):
            return await handler(request)
        return await cache.call(handler, request, reach)

    return with_cache
