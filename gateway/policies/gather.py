"""The policy `gather: {rows: 64, wait: 0.002}`: dynamic batching, which combines requests into one batch if they arrive
while other requests are running.

If no similar request is in flight, the gateway sends a request immediately and unchanged. Other requests wait, and are
sent as one batch when the calls in flight have ended, the first request has waited `wait` seconds, or the waiting
requests have `rows` rows in total, whichever comes first. A lone client that sends its requests sequentially therefore
never waits.

Requests are similar if everything that the backend receives is equal except the rows (`joining.key_of`). The policy
combines only inference requests for models that accept batches. The policy does not combine streams, requests that
belong to a sequence, repeated attempts, or requests for models that are still unknown.

If a batch fails, the gateway sends its halves, then their halves, until it has found the failing requests, which get
their own errors. The gateway splits a batch only if the calls can be repeated and a row could have caused the error. A
Budget limits these additional calls. For the next SECONDS_APART, the gateway makes separate batches for each client
that sent a failing request.

A server's error message for a batch can quote any of its rows. Therefore, principals that share a batch do not see the
message.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from gateway.core.deadlines import wait_until
from gateway.core.documented import Documented
from gateway.core.errors import DetailedError, GatewayError, Reason, Status, TransportError, invalid_output
from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.models import Signature, are_rows_apart, max_batch_size
from gateway.core.operations import Operation
from gateway.core.protocol import Rows
from gateway.core.queue_wait import PartWaits, out_of_time, was_in_vain
from gateway.core.record import UNRECORDED, Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.tasks import spawn
from gateway.core.transport import Handler, StreamHandler
from gateway.policies import joining
from gateway.policies.budget import Budget
from gateway.policies.context import PolicyContext
from gateway.policies.joining import NotSplittableError
from gateway.policies.places import PolicyState, ShownStates, StateMetric

log = logging.getLogger(__name__)
_lines = LogLimit(log)

SHARE, LEAST = 0.25, 32
"""The budget for additional calls after failed batches: the maximum ratio to combined requests, and the number of calls
that are always allowed."""
SECONDS_KNOWN = 60.0
"""The time for which the gateway stores whether a model accepts batches, and its maximum batch size, in seconds."""
SECONDS_APART = 60.0
"""The time for which the gateway batches a client's requests separately after one of them made a batch fail, in
seconds."""
SECONDS_PAUSED = 10.0
"""The time for which the gateway sends the requests for a model one by one, in seconds. This time begins when a batch
fails that cannot be repeated in parts, or when the server does not respond to a query about the model."""
SECONDS_ASKED = 10.0
"""The time limit for queries about a model, in seconds."""
MOST_KNOWN = 1000
"""Maximum number of stored models, and of stored clients."""
MOST_QUESTIONS = 16
"""Maximum number of parallel queries about models."""
MOST_BYTES = 2**20
"""Maximum size of a batch's tensors, in bytes. Copying more data would take longer than another call."""
_TEXT_BYTES = 8
"""Maximum ratio between the size of a message in text form and the size of its tensors."""

METRICS = (
    StateMetric(
        "gateway_gather_requests_total", "counter", ("backend", "outcome"),
        "Requests of a `gather` policy, by outcome: `joined` with others, or sent `alone`.",
        {"joined": "joined", "alone": "alone"},
    ),
    StateMetric(
        "gateway_gather_batches_total", "counter", ("backend",), "Batches of several requests.", {"": "batches"}
    ),
    StateMetric(
        "gateway_gather_rows_total", "counter", ("backend",),
        "Rows of batches of several requests; divided by the number of batches, the mean size.",
        {"": "rows"},
    ),
    StateMetric(
        "gateway_gather_wait_seconds_total", "counter", ("backend",),
        "Seconds that joined requests waited for others.", {"": "wait_seconds"},
    ),
    StateMetric(
        "gateway_gather_failed_batches_total", "counter", ("backend", "cause"),
        "Batches that failed, by cause: `error` of the backend, or `shape` of a response that could not be split.",
        {"error": "failed", "shape": "unsplittable"},
    ),
    StateMetric(
        "gateway_gather_split_calls_total", "counter", ("backend",), "Calls for parts of batches that failed.",
        {"": "further_calls"},
    ),
)  # fmt: skip

_OF_ROWS = frozenset(
    {
        Status.INVALID_ARGUMENT, Status.INTERNAL, Status.UNKNOWN, Status.OUT_OF_RANGE, Status.FAILED_PRECONDITION,
        Status.ABORTED, Status.DATA_LOSS,
    }
)  # fmt: skip
"""Errors that a single row could have caused. After any other error, the parts of the batch would also fail."""

_NOT_NOW = frozenset(
    {Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED, Status.ABORTED, Status.CANCELLED}
)
"""Errors after which a server might still report a model's configuration later. After any other error, the gateway
assumes that the server never reports it."""


class Settings(Documented):
    """Dynamic batching: while other requests run, combines waiting requests into one batch, for models that accept
    batches."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    sees_fitted_requests: ClassVar[bool] = True
    sees_one_try: ClassVar[bool] = True

    rows: Annotated[int, Field(ge=2, le=65536)] = 64
    """Maximum number of rows in a batch. The gateway sends a request with this many rows unchanged."""
    wait: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False)] = 0.002
    """Maximum time that a request waits for other requests, in seconds. A request waits only while similar requests are
    in flight."""
    by: Literal["auto", "none", "client", "principal"] = "auto"
    """Clients whose requests the gateway can combine. `auto`: requests from the same principal, and requests from all
    clients without a principal. `none`: requests from all clients. `client`: requests from the same IP address.
    `principal`: requests from the same principal, or, for clients without a principal, from the same IP address."""
    models: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Models whose requests the gateway combines: names at the backend, or globs. List only models with independent
    rows, whose tensors all have the rows in the first dimension. Default: models whose batch dimension is known,
    because the protocol is MIP, or because the server reports a `max_batch_size` above 0 and a first dimension of -1
    for each tensor."""


class GatherCounts:
    """Counts since the start. Only the event loop's thread changes them, and the thread that renders metrics reads
    them."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """Number of requests by outcome: `joined` with other requests, or sent `alone`."""
        self.batches = 0
        self.batched_rows = 0
        self.failed = 0
        """Number of failed batches."""
        self.unsplittable = 0
        """Number of batches whose response could not be split."""
        self.further = 0
        """Number of additional calls for parts of failed batches."""
        self.waited = 0.0
        """Total waiting time of joined requests, in seconds."""
        self.largest = 0
        """Number of rows in the largest batch."""

    def shown(self) -> dict[str, object]:
        """Return the counts as JSON."""
        joined, batches = self.requests["joined"], self.batches
        return {
            "joined": joined,
            "alone": self.requests["alone"],
            "batches": batches,
            "rows": self.batched_rows,
            "largest": self.largest,
            "mean_rows": round(self.batched_rows / batches, 2) if batches else None,
            "wait_seconds": round(self.waited, 6),
            "mean_wait_seconds": round(self.waited / joined, 6) if joined else None,
            "saved_calls": joined - batches - self.further,
            "failed": self.failed,
            "unsplittable": self.unsplittable,
            "further_calls": self.further,
        }


class Gather(PolicyState):
    """The counts of one `gather` entry under `policies:`, for `/status` and metrics."""

    def __init__(self, settings: Settings) -> None:
        self.place = "gather"
        self.counts = GatherCounts()

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """Take over the counts. See PolicyState."""
        self.counts = before.counts

    def status(self) -> Mapping[str, object]:
        """Return the counts as JSON. See PolicyState."""
        return self.counts.shown()


state = ShownStates(Gather)


class _Marks:
    """Stores up to MOST_KNOWN values, each for a limited time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[Hashable, float] = OrderedDict()

    def add(self, key: Hashable, seconds: float) -> None:
        self._until[key] = self._clock() + seconds
        self._until.move_to_end(key)
        if len(self._until) > MOST_KNOWN:
            self._until.popitem(last=False)

    def __contains__(self, key: Hashable) -> bool:
        until = self._until.get(key)
        if until is None:
            return False
        if until > self._clock():
            return True
        del self._until[key]
        return False


class _Model:
    """The data about a model: the maximum number of `rows` in a batch (0 if the model accepts no batches), and the
    names of its `outputs`."""

    __slots__ = ("outputs", "rows", "until")

    def __init__(self) -> None:
        self.rows = 0
        self.outputs: tuple[str, ...] = ()
        self.until = 0.0
        """The time at which the model must be queried again."""


@frozen
class _Failure:
    """A GatewayError as a value, because asyncio logs futures whose exceptions are never retrieved."""

    error: Exception


class _Member:
    """A request that is waiting for its batch, or that has been sent."""

    __slots__ = ("began", "bytes", "reply", "request", "rows", "task", "was_sent")

    def __init__(self, request: Request, rows: int, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.rows = rows
        self.bytes = size
        self.began = loop.time()
        self.reply: asyncio.Future[Answer | _Failure] = loop.create_future()
        self.task: asyncio.Task[Any] | None = None
        """The task that sends the request separately after its batch has failed."""
        self.was_sent = False
        """True if the request's batch was sent. The batch might still wait for a slot."""

    def answer(self, reply: Answer | _Failure) -> None:
        """Pass the response to the request, unless its client has disconnected."""
        if not self.reply.done():
            self.reply.set_result(reply)


class _Batch:
    """Members that are sent together. `waits` contains the queue waits of the calls that send them."""

    __slots__ = ("members", "task", "waits")

    def __init__(self, members: list[_Member]) -> None:
        self.members = members
        self.task: asyncio.Task[None] | None = None
        self.waits = PartWaits()

    @property
    def is_over(self) -> bool:
        """True if no client is still waiting for the batch."""
        return all(each.reply.done() for each in self.members)

    def left(self, member: _Member) -> None:
        """Handle a client that has stopped waiting. After the last client, cancel the batch."""
        if member.task is not None:
            member.task.cancel()
        if self.task is not None and self.is_over:
            self.task.cancel()


class _Kind:
    """The requests with one key: the number of calls `in_flight`, and the waiting requests."""

    __slots__ = ("apart", "bytes", "in_flight", "key", "model", "rows", "timer", "waiting")

    def __init__(self, key: Hashable, model: _Model, apart: str | None) -> None:
        self.key = key
        self.model = model
        self.apart = apart
        """The only client of these requests if this client's requests are batched separately."""
        self.in_flight = 0
        self.waiting: dict[_Member, _Batch] = {}
        self.rows = self.bytes = 0
        """The totals of the waiting requests."""
        self.timer: asyncio.TimerHandle | None = None


class Gathering:
    """One item under `policies:`. The method `answer` is the Handler."""

    def __init__(
        self, handler: Handler, settings: Settings, context: PolicyContext, counts: Callable[[], GatherCounts]
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._context = context
        self._clock = context.clock
        self._counts = counts
        self._kinds: dict[Hashable, _Kind] = {}
        self._models: OrderedDict[tuple[str, str], _Model] = OrderedDict()
        self._questions: set[tuple[str, str]] = set()
        self._apart = _Marks(context.clock)
        self._paused = _Marks(context.clock)
        self._budgets = {apart: Budget(SHARE, LEAST, context.clock) for apart in (False, True)}

    # Selecting requests

    async def answer(self, request: Request) -> Answer:
        """Send the request alone or in a batch, and return its response."""
        rows = joining.rows_of(request)
        if rows is None:
            return await self._handler(request)
        model = self._models.get((request.model, request.version))
        if model is None:
            return await self._answer_and_learn(request)
        if model.until <= self._clock():
            self._ask_about((request.model, request.version))
        apart = request.client if request.client in self._apart else None
        size = joining.bytes_of(request)
        is_paused = (request.model, request.version, apart) in self._paused
        if rows >= model.rows or size > self._most_bytes // 2 or is_paused:
            self._counts().requests["alone"] += 1
            return await self._handler(request)
        key = joining.key_of(request, self._context.models.forward_headers), self._by(request), apart
        self._budgets[apart is not None].add_call()
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(key, model, apart)
        if kind.in_flight:
            return await self._wait(kind, _Member(request, rows, size, asyncio.get_running_loop()))
        self._counts().requests["alone"] += 1
        kind.in_flight = 1
        try:
            return await self._handler(request)
        finally:
            self._ended(kind)

    @property
    def _most_bytes(self) -> int:
        return min(MOST_BYTES, self._context.models.limits.message // _TEXT_BYTES)

    def _by(self, request: Request) -> str:
        match self._settings.by:
            case "auto":
                return "" if request.principal is None else request.principal.name
            case "none":
                return ""
            case "client":
                return request.peer.rpartition(":")[0]
            case _:
                return request.client

    # Data about models

    async def _answer_and_learn(self, request: Request) -> Answer:
        """Return the response to a request for an unknown model. Query data about the model only after a successful
        response, because clients can send any name."""
        self._counts().requests["alone"] += 1
        answer = await self._handler(request)
        self._ask_about((request.model, request.version))
        return answer

    def _ask_about(self, key: tuple[str, str]) -> None:
        if key not in self._questions and len(self._questions) < MOST_QUESTIONS:
            self._questions.add(key)
            spawn(self._learn(key))

    async def _learn(self, key: tuple[str, str]) -> None:
        """Query the backend for data about a model and version."""
        try:
            rows, outputs, seconds = await self._found(*key)
        finally:
            self._questions.discard(key)
        known = self._models.setdefault(key, _Model())
        known.rows, known.outputs, known.until = rows, outputs, self._clock() + seconds
        self._models.move_to_end(key)
        if len(self._models) > MOST_KNOWN:
            self._models.popitem(last=False)

    async def _found(self, model: str, version: str) -> tuple[int, tuple[str, ...], float]:
        """Return the maximum number of rows in a batch, the names of the outputs, and the time for which to store this
        data, in seconds."""
        known, names = self._context.models, self._settings.models
        if known.rows is Rows.ONE or (names and not any(fnmatchcase(model, each) for each in names)):
            return 0, (), SECONDS_KNOWN
        try:
            async with asyncio.timeout(SECONDS_ASKED):
                most = await self._most_rows(model, version) if known.have_config else None
                signature, seconds = await self._signature(model, version)
        except (GatewayError, TimeoutError):
            return 0, (), SECONDS_PAUSED
        outputs = tuple(each.name for each in signature.outputs)
        takes = bool(names) or known.rows is Rows.FIRST or are_rows_apart(signature, most)
        rows = min(self._settings.rows, most or self._settings.rows) if takes else 0
        return rows if rows > 1 else 0, outputs if all(outputs) else (), seconds

    async def _most_rows(self, model: str, version: str) -> int | None:
        """Return the `max_batch_size` that the server reports, or None.

        Raises:
            GatewayError: the server is unreachable or cannot respond now.
        """
        try:
            config = await self._handler(Request(Operation.CONFIG, model, version))
        except GatewayError as error:
            if isinstance(error, TransportError) or error.status in _NOT_NOW:
                raise
            return None
        return max_batch_size(config) if isinstance(config, Mapping) else None

    async def _signature(self, model: str, version: str) -> tuple[Signature, float]:
        """Return the signature (empty if it is unavailable) and the time for which to store it, in seconds."""
        try:
            return await self._context.models.signature(model, version), SECONDS_KNOWN
        except GatewayError:
            return Signature(), SECONDS_PAUSED

    # Waiting requests

    async def _wait(self, kind: _Kind, member: _Member) -> Answer:
        """Let a request wait for other requests, and return its response."""
        if kind.rows + member.rows > kind.model.rows or kind.bytes + member.bytes > self._most_bytes:
            self._send(kind)
        if not kind.waiting:
            loop = asyncio.get_running_loop()
            kind.timer = loop.call_later(self._settings.wait, self._send, kind)
        batch = next(iter(kind.waiting.values()), None) or _Batch([])
        kind.waiting[member] = batch
        kind.rows += member.rows
        kind.bytes += member.bytes
        if kind.rows >= kind.model.rows:
            self._send(kind)
        replying = self._reply(kind, member, batch)
        if member.request.deadline is not None:
            replying = wait_until(member.request.deadline, replying, lambda: _too_late(member))
        reply = await replying
        if isinstance(reply, _Failure):
            raise reply.error
        return reply

    async def _reply(self, kind: _Kind, member: _Member, batch: _Batch) -> Answer | _Failure:
        try:
            return await member.reply
        finally:
            if member.reply.cancelled():
                self._left(kind, member, batch)
            batch.waits.note(member.began, go_on=not batch.is_over)

    def _left(self, kind: _Kind, member: _Member, batch: _Batch) -> None:
        """Handle a client that has stopped waiting: do not send its request, or discard its response."""
        if kind.waiting.pop(member, None) is None:
            batch.left(member)
            return
        kind.rows -= member.rows
        kind.bytes -= member.bytes
        if not kind.waiting and kind.timer is not None:
            kind.timer.cancel()

    def _send(self, kind: _Kind) -> None:
        """Send the waiting requests."""
        if kind.timer is not None:
            kind.timer.cancel()
        if not kind.waiting:
            return
        batch = next(iter(kind.waiting.values()))
        batch.members = list(kind.waiting)
        for member in batch.members:
            member.was_sent = True
        kind.waiting = {}
        kind.rows = kind.bytes = 0
        kind.in_flight += 1
        counts, now = self._counts(), asyncio.get_running_loop().time()
        if len(batch.members) == 1:
            counts.requests["alone"] += 1
        else:
            counts.requests["joined"] += len(batch.members)
            counts.waited += sum(now - each.began for each in batch.members)
        batch.task = batch.waits.spawn(self._run(kind, batch))
        batch.task.add_done_callback(lambda _: self._ended(kind))

    def _ended(self, kind: _Kind) -> None:
        """Handle the end of a call in flight."""
        kind.in_flight -= 1
        if not kind.in_flight:
            if kind.waiting:
                self._send(kind)
            else:
                self._kinds.pop(kind.key, None)

    # Batches

    async def _run(self, kind: _Kind, batch: _Batch) -> None:
        """Send the members, and pass each its response."""
        try:
            await self._compute(kind, batch.members, batch.waits)
        except Exception as error:  # an error in the gateway itself, which each request reports
            for member in batch.members:
                member.answer(_Failure(error))
        finally:
            for member in batch.members:
                member.reply.cancel()

    async def _compute(self, kind: _Kind, members: Sequence[_Member], waits: PartWaits) -> bool:
        """Pass the members their responses, with one batch if possible. Return True if all members succeeded. For
        `waits`, see `_Batch`."""
        members = [each for each in members if not each.reply.done()]
        if not members:
            return True
        if len(members) == 1:
            return await self._by_itself(members[0])
        record = _record(members)
        joined = joining.join([each.request for each in members], record)
        rows = [each.rows for each in members]
        counts = self._counts()
        counts.batches += 1
        counts.batched_rows += sum(rows)
        counts.largest = max(counts.largest, sum(rows))
        try:
            answer = await self._handler(joined)
        except GatewayError as error:
            counts.failed += 1
            return await self._failed(kind, members, error, waits)
        finally:
            _note(record, members, sum(rows))
        if not isinstance(answer, Response):
            raise TypeError(f"the response to a batch is {type(answer).__name__}, expected a Response")
        wanted = [each.name for each in joined.outputs] or kind.model.outputs
        try:
            answers = joining.split(answer, rows, wanted)
        except NotSplittableError as error:
            counts.unsplittable += 1
            return await self._not_splittable(kind, members, str(error), waits)
        for member, each in zip(members, answers, strict=True):
            member.answer(each)
        return True

    async def _by_itself(self, member: _Member) -> bool:
        """Make a separate call for one member, and pass it the response. Return True if the call succeeded."""
        member.task = asyncio.current_task()
        try:
            member.answer(await self._handler(member.request))
        except GatewayError as error:
            member.answer(_Failure(error))
            return False
        finally:
            member.task = None
        return True

    async def _failed(self, kind: _Kind, members: Sequence[_Member], error: GatewayError, waits: PartWaits) -> bool:
        """Pass the members of a failed batch their responses or errors. Return True if all members succeeded in smaller
        parts."""
        request = members[0].request
        of_rows = error.status in _OF_ROWS or error.reason is Reason.TOO_LARGE
        is_unsent = isinstance(error, TransportError) and not error.sent
        if not of_rows or not (is_unsent or self._context.may_repeat(request)):
            if of_rows:
                self._pause(kind, request)
            shared = self._for_all(error, members)
            for member in members:
                member.answer(_Failure(_of_batch(shared, len(members), of_rows)))
            return False
        halves = _halves(members)
        parts = halves if self._may_spend(kind, len(halves)) else [[each] for each in members]
        if parts is not halves:
            self._pause(kind, request)
        self._counts().further += len(parts)
        ended = await _all((self._compute(kind, part, waits) for part in parts), waits)
        for part, was_answered in zip(parts, ended, strict=True):
            if len(part) == 1 and not was_answered:
                self._apart.add(part[0].request.client, SECONDS_APART)
        if all(ended):
            # No single request failed, so the batch was the cause: the model accepts only smaller batches.
            largest = max(sum(each.rows for each in part) for part in parts)
            kind.model.rows = min(kind.model.rows, largest if largest > 1 else 0)
        return all(ended)

    def _for_all(self, error: GatewayError, members: Sequence[_Member]) -> GatewayError:
        """Return the error with a message that all clients of the batch can see."""
        principals = {None if each.request.principal is None else each.request.principal.name for each in members}
        if len(principals) == 1 or not _may_quote_rows(error):
            return error
        owner, text = self._context.owner, "%s: a batch of requests of %d principals failed: %s"
        _lines.write(owner, logging.WARNING, text, owner, len(principals), error.message)
        told = f"{owner} failed a batch with requests of several principals; the reason is in the gateway's log"
        hidden = GatewayError(error.status, error.reason, told, error.retry_after)
        hidden.endpoint = error.endpoint
        return hidden

    def _may_spend(self, kind: _Kind, calls: int) -> bool:
        budget = self._budgets[kind.apart is not None]
        return all(budget.spend() for _ in range(calls))

    def _pause(self, kind: _Kind, request: Request) -> None:
        self._paused.add((request.model, request.version, kind.apart), SECONDS_PAUSED)

    async def _not_splittable(self, kind: _Kind, members: Sequence[_Member], why: str, waits: PartWaits) -> bool:
        """Send the members of a batch sequentially, because the batch's response cannot be split. Return False."""
        kind.model.rows = 0
        kind.model.until = self._clock() + SECONDS_KNOWN
        request = members[0].request
        if self._context.may_repeat(request):
            self._counts().further += len(members)
            await _all((self._compute(kind, [each], waits) for each in members), waits)
            return False
        text = (
            f"{self._context.owner}: the response of model {request.model!r} to a batch of {len(members)} requests"
            f" cannot be split ({why}), so its requests are not combined for {SECONDS_KNOWN:g} s;"
            " check `models` of the policy gather"
        )
        for member in members:
            member.answer(_Failure(invalid_output(text)))
        return False


def _halves(members: Sequence[_Member]) -> list[Sequence[_Member]]:
    middle = len(members) // 2
    return [members[:middle], members[middle:]]


async def _all(parts: Iterable[Coroutine[Any, Any, bool]], waits: PartWaits) -> list[bool]:
    """Return, for each part, whether it succeeded. A part that was cancelled because its client has disconnected counts
    as a success."""
    tasks = [waits.spawn(part) for part in parts]
    try:
        await asyncio.wait(tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [True if task.cancelled() else task.result() for task in tasks]


def _too_late(member: _Member) -> GatewayError:
    was_sent = member.was_sent and not was_in_vain()
    text = "the request's deadline has passed"
    if was_sent:
        text = out_of_time(text).message
    return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=was_sent)


def _may_quote_rows(error: GatewayError) -> bool:
    """Return True if the error message might come from a server: from a response or its output. Otherwise, the gateway
    created the message, because no server was called, or because the server was unreachable or did not respond in
    time."""
    if not error.endpoint:
        return isinstance(error, DetailedError)
    own = isinstance(error, TransportError) and error.reason in (Reason.UNREACHABLE, Reason.TIMEOUT)
    return not own or isinstance(error, DetailedError)


def _of_batch(error: GatewayError, requests: int, of_rows: bool) -> GatewayError:
    """Return the batch's error for one of its requests."""
    hint = "; set `safe: true` on the backend to find the failing requests" if of_rows else ""
    own = error.__class__.__new__(error.__class__)
    own.__dict__.update(error.__dict__)
    own.message = f"{error.message} (a batch of {requests} requests{hint})"
    own.args = (own.message,)
    return own


def _record(members: Sequence[_Member]) -> Record:
    """Return the record of a batch: the record of the first request with an observer."""
    records = [member.request.record for member in members]
    return next((each for each in records if each is not UNRECORDED), UNRECORDED).of_batch()


def _note(batch: Record, members: Sequence[_Member], rows: int) -> None:
    """Add the result of a batch to the records of its requests."""
    now = asyncio.get_running_loop().time()
    for member in members:
        member.request.record.gathered(batch, now - member.began, len(members), rows)


def wrap_stream(handler: StreamHandler, settings: Settings, context: PolicyContext) -> StreamHandler:
    """Return `handler` itself, because streams are not combined."""
    return handler


def wrap(handler: Handler, settings: Settings, context: PolicyContext) -> Handler:
    """Wrap `handler` to combine requests into batches.

    The Handler raises:
        GatewayError: the request's own error, or the error of its batch if the batch cannot be repeated in parts;
            DEADLINE_EXCEEDED if the request's deadline has passed; INTERNAL (invalid-output) if the response to a batch
            cannot be split."""
    shown = state(settings)
    return Gathering(handler, settings, context, lambda: shown.counts).answer
