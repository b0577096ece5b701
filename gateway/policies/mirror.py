"""The policy `mirror: {backend: next, sample: 0.1, tolerance: {rtol: 1e-5}}`: also sends a sample of the calls to a
second backend, and compares both responses (traffic mirroring).

The client receives its response first. Afterward, a separate task sends the request to the mirror's backend, adapted to
this backend like requests to the route's own backend. The mirror's backend cannot affect clients: the gateway compares
and discards its responses, and counts its errors and timeouts. Requests above the limits for calls and memory are
dropped and counted.

The sample is random. Selection by hash would take time for large tensors, and would select all requests or none from a
client that repeats one request. The policy does not mirror calls of sequences, because the state of a sequence depends
on all its calls. It also skips streams and metadata queries. A call without a response from the route's own backend
(`NO_ANSWER`) is not mirrored, because the comparison would have no expected response.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import random
from time import monotonic
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from gateway.core.documented import Documented
from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import field, replace
from gateway.core.log_limit import LogLimit
from gateway.core.offload import are_large
from gateway.core.operations import CALLS, Operation
from gateway.core.record import UNRECORDED, ListenerRecords, Record, RecordDisclosure
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, Request, Response
from gateway.core.spans import MIRROR_SPAN, Span, TraceContext
from gateway.core.tasks import spawn
from gateway.core.tensors import Tensor, tensor_bytes
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.comparing import NO_ANSWER, Difference, Outcome, Tolerance, compare
from gateway.policies.context import OtherBackend, PolicyContext
from gateway.policies.mirror_counts import LONGEST_ERROR, LONGEST_MODEL, DropCause, MirrorCounts, MirrorOutcome
from gateway.policies.places import PolicyState, ShownStates, StateMetric

log = logging.getLogger(__name__)

MARK = b"gateway-mirror"
"""The header or metadata key of a mirrored request. Its value is 1."""

EQUAL, DIFFERENT, FAILED, DROPPED = "equal", "different", "failed", "dropped"
"""The outcomes of mirrored calls, in metrics and spans."""

_MIRRORED = CALLS - {Operation.STREAM}

_threads = ThreadPoolExecutor(1, thread_name_prefix="mirror")
"""The thread that compares large responses, separate from the thread that decodes and encodes client messages."""

_Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ToleranceSettings(Documented):
    """Tolerances for comparing floats. Two floats count as equal if they meet one of the limits. By default, floats
    must be identical. Integers, BOOL and BYTES must always be identical."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    rtol: _Limit = 0
    """Maximum difference relative to the value from the route's own backend, in addition to `atol`."""
    atol: _Limit = 0
    """Maximum absolute difference."""
    ulp: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Maximum difference in units in the last place (steps between adjacent floats of the datatype)."""
    nan: Literal["equal", "different"] = "equal"
    """Comparison of NaN with NaN: `equal` or `different`."""


class RenamingSettings(Documented):
    """Name of one tensor for clients and in the mirror's backend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    client: Annotated[str, Field(min_length=1)]
    """Name that clients use."""
    backend: Annotated[str, Field(min_length=1)]
    """Name in the mirror's backend."""


class RenameSettings(Documented):
    """Tensors with different names in the mirror's backend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    inputs: Annotated[tuple[RenamingSettings, ...], Field(strict=False)] | None = None
    """Renamed inputs, instead of the route's renamed inputs."""
    outputs: Annotated[tuple[RenamingSettings, ...], Field(strict=False)] | None = None
    """Renamed outputs, instead of the route's renamed outputs."""


class Settings(Documented):
    """Traffic mirroring: copies a sample of a route's calls to a second backend, and compares the responses. Clients
    receive the responses of the route's own backend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    not_shared: ClassVar[bool] = True
    other_backends: ClassVar[tuple[str, ...]] = ("backend",)
    sees_one_try: ClassVar[bool] = True

    backend: Annotated[str, Field(min_length=1)]
    """Name of the backend that receives the mirrored calls. This backend's policies, limits and queue apply."""
    sample: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Fraction of the calls to mirror, chosen at random."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """Name of the model in the mirror's backend. Default: the name in the route's own backend."""
    version: str | None = None
    """Version of the model in the mirror's backend. Default: the version in the route's own backend. Empty: no
    version."""
    rename: RenameSettings = RenameSettings()
    """Tensors with different names in the mirror's backend. The rest of the route's `translate` applies to both
    backends."""
    outputs: Literal["names", "positions"] = "names"
    """Pairing of outputs: by `names`, or by `positions` if the models use different names."""
    tolerance: ToleranceSettings = ToleranceSettings()
    """Tolerances for comparing floats."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10
    """Maximum duration of a mirrored call, in seconds, including the wait in the backend's queue."""
    calls: Annotated[int, Field(ge=1)] = 16
    """Maximum number of mirrored calls in flight. Above this number, the gateway does not mirror calls, and counts them
    as dropped."""
    memory: Annotated[int, Field(ge=1)] = 64 * 2**20
    """Maximum size of the tensors in mirrored calls in flight and in their responses, in bytes. Above this size, the
    gateway does not mirror calls, and counts them as dropped."""
    values: Annotated[int, Field(ge=0, le=100)] = 1
    """Maximum number of differing elements per output in logs and on status pages. 0: no values."""


class MirrorRecord(Record, gc=False, eq=False):
    """The Record of a mirrored call. Metrics and the access log cover only client requests; therefore, the Record has
    no observers unless the client's request is traced. In this case, the call is a span of that request, named
    `mirror`, with its own child spans. The call has the header MARK and, if ids are forwarded to backends, the id of
    the client's request.

    - `client_id`: the id of the client's request.
    - `told`: the attributes of the call's span.
    """

    client_id: str = ""
    told: dict[str, object] = field(default_factory=dict)

    def ended_as(self, outcome: str, **why: str) -> None:
        """Record the result of the call, with the kinds of differences or the reason for the failure. Spans do not
        contain tensor values."""
        self.told |= {"outcome": outcome, **why}

    def forwarded_fields(self, span: Span | None = None) -> list[tuple[bytes, bytes]]:
        """Return the header fields of any Record, and the mark. If the request has no id, omit the id header."""
        fields = super().forwarded_fields(span)
        return [*(fields if self.id else fields[1:]), (MARK, b"1")]


def mirror_record(client: Record, backend: str = "", operation: str = "", model: str = "") -> MirrorRecord:
    """Return the Record of a mirrored call that begins now. `client` is the Record of the client's request, and
    `backend` is the name of the mirror's backend."""
    record = MirrorRecord("", of_listener=ListenerRecords(telling=RecordDisclosure(forwards=True), forwards=True))
    record.client_id = client.id
    if client.telling.forwards:
        record.id, record.traceparent = client.id, client.traceparent
    context = record.context = client.context
    observe = client.of_listener.trace
    if isinstance(context, TraceContext) and observe is not None:
        root = Span(MIRROR_SPAN, None, monotonic())
        root.facts = record.told
        record.told |= {"backend": backend, "outcome": DROPPED}
        record.backend = backend
        record.operation, record.model = operation, model[:LONGEST_MODEL]
        record.events, record.is_timed = [root], True
        record.trace_with(observe)
        record.context = replace(context, parent=context.id, id=root.id)
    return record


class Mirror(PolicyState):
    """The mirrored calls of one `mirror` entry under `policies:`. `random` returns numbers from 0 (inclusive) to 1
    (exclusive)."""

    def __init__(self, settings: Settings, random: Callable[[], float] = random) -> None:
        self.place = "mirror"
        self.settings = settings
        self.counts = MirrorCounts()
        limits = settings.tolerance
        self._tolerance = Tolerance(limits.rtol, limits.atol, limits.ulp, limits.nan)
        self._random = random
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._lines = LogLimit(log)

    def takes(self, request: Request) -> bool:
        """Return True if this request must be mirrored."""
        return (
            request.operation in _MIRRORED
            and self._random() < self.settings.sample
            and not request.flaw
            and not request.parameters.get("sequence_id")
        )

    async def call(self, handler: Handler, beside: Handler, request: Request) -> Answer:
        """Return the response of `handler`. Afterward, also send the request to `beside`."""
        began = monotonic()
        try:
            answer = await handler(request)
        except GatewayError as error:
            if error.status not in NO_ANSWER:
                # a copy without the traceback, which refers to the request
                self._begin(beside, request, GatewayError(error.status, error.reason, ""), began)
            raise
        except DecodeError:
            self._begin(beside, request, invalid_input(""), began)
            raise
        if isinstance(answer, Response):
            self._begin(beside, request, replace(answer, origin=None), began)
        return answer

    def _begin(self, beside: Handler, request: Request, expected: Outcome, began: float) -> None:
        counts, settings = self.counts, self.settings
        size = tensor_bytes(request.inputs) + tensor_bytes(_outputs(expected))
        if self._is_closed:
            self._drop(DropCause.STOPPING, "the route has ended")
        elif counts.in_flight >= settings.calls:
            self._drop(DropCause.CALLS, f"{counts.in_flight} mirrored calls are in flight (mirror.calls)")
        elif counts.bytes + size > settings.memory:
            text = f"{counts.bytes} bytes are in use, and the next call has {size} (mirror.memory)"
            self._drop(DropCause.MEMORY, text)
        else:
            counts.in_flight += 1
            counts.bytes += size
            task = spawn(self._run(beside, self._copy(request), expected, size, monotonic() - began))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _copy(self, request: Request) -> Request:
        """Return the request for the mirror's backend, with its own deadline. To save memory, omit the bytes of the
        message, because no backend codec reads them."""
        seconds, origin = self.settings.seconds, request.origin
        return replace(
            request,
            origin=None if origin is None else replace(origin, parts=(), record=UNRECORDED),
            deadline=asyncio.get_running_loop().time() + seconds,
            time_limit=seconds,
            translate=DEFAULT_TRANSLATE,
            tries=None,
            span=None,
            record=mirror_record(request.record, self.settings.backend, request.operation.value, request.model),
        )

    def _drop(self, cause: DropCause, why: str) -> None:
        self.counts.dropped(cause)
        self._lines.write(cause, logging.WARNING, "%s: requests without a mirror: %s", self.place, why)

    async def _run(
        self, beside: Handler, request: Request, expected: Outcome, size: int, expected_seconds: float
    ) -> None:
        counts, record = self.counts, request.record
        assert isinstance(record, MirrorRecord)
        began = monotonic()
        try:
            actual = await self._ask(beside, request)
            if isinstance(actual, GatewayError) and (actual.status in NO_ANSWER or actual.reason is Reason.INTERNAL):
                self._failed(actual, record)
                return
            counts.answered(expected_seconds, monotonic() - began)
            more = tensor_bytes(_outputs(actual))
            size += more
            counts.bytes += more
            await self._compare(expected, actual, request, record)
        except asyncio.CancelledError:
            counts.dropped(DropCause.STOPPING)
            raise
        except Exception as error:  # a response that cannot be compared must not affect clients
            self._failed(as_gateway_error(error), record)
        finally:
            counts.in_flight -= 1
            counts.bytes -= size
            record.end(0, 0)

    async def _ask(self, beside: Handler, request: Request) -> Outcome:
        """Return the response or the error of the mirror's backend."""
        seconds = self.settings.seconds
        try:
            async with asyncio.timeout(seconds):
                answer = await beside(request)
        except TimeoutError:
            return refusal(Reason.TIMEOUT, f"no answer within {seconds:g} s (mirror.seconds)")
        except Exception as error:
            return as_gateway_error(error)
        assert isinstance(answer, Response)
        return answer

    def _failed(self, error: GatewayError, record: MirrorRecord) -> None:
        self.counts.failed(error)
        record.ended_as(FAILED, reason=error.reason.value)
        text = "%s: backend %r does not answer a mirrored request: %s"
        self._lines.write("failed", logging.WARNING, text, self.place, self.settings.backend, error.message)

    async def _compare(self, expected: Outcome, actual: Outcome, request: Request, record: MirrorRecord) -> None:
        """Compare both responses. Use a thread for large responses."""
        outputs = (*_outputs(expected), *_outputs(actual))
        if are_large(outputs):
            loop = asyncio.get_running_loop()
            difference = await loop.run_in_executor(_threads, self._difference, expected, actual)
        else:
            difference = self._difference(expected, actual)
        if difference is None:
            self.counts.equal()
            record.ended_as(EQUAL)
            return
        name = record.client_id
        told = str(difference)
        if isinstance(actual, GatewayError):
            told = f"{told}: {actual.message[:LONGEST_ERROR]}"
        record.ended_as(DIFFERENT, differences=", ".join(sorted(difference.kinds)))
        self.counts.differed(difference, told, name, request.operation.value, request.model)
        text = "%s: backend %r answers a request for model %r differently: %s (request id %s)"
        model = request.model[:LONGEST_MODEL]
        self._lines.write(
            "different", logging.WARNING, text, self.place, self.settings.backend, model, told, name or "-"
        )

    def _difference(self, expected: Outcome, actual: Outcome) -> Difference | None:
        by_position = self.settings.outputs == "positions"
        return compare(expected, actual, self._tolerance, by_position=by_position, shown=self.settings.values)

    async def ended(self) -> None:
        """Return when no mirrored calls are in flight."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def take_over(self, before: Self, *, is_unchanged: bool) -> None:
        """Keep the counts if the settings are the same. See PolicyState."""
        if before.settings == self.settings:
            self.counts = before.counts

    def status(self) -> Mapping[str, object]:
        """Return the mirror's current results as JSON."""
        return {"backend": self.settings.backend, "sample": self.settings.sample, **self.counts.shown()}

    async def close(self, seconds: float) -> None:
        """Stop starting calls, wait at most `seconds` for calls in flight, and then cancel them."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=min(seconds, self.settings.seconds))
        for task in self._tasks:
            task.cancel()


state = ShownStates(Mirror)

METRICS = (
    StateMetric(
        "gateway_mirror_requests_total", "counter", ("route", "backend", "outcome"),
        "Requests selected by a `mirror` policy, by outcome: equal, different, failed or dropped.",
        {outcome.value: outcome.value for outcome in MirrorOutcome},
    ),
    StateMetric(
        "gateway_mirror_differences_total", "counter", ("route", "backend", "kind"),
        "Mirrored requests with different responses, by difference: status, missing output, extra output, datatype, "
        "shape or values. One request can count several times.",
        {"": "differences"},
    ),
    StateMetric(
        "gateway_mirror_failures_total", "counter", ("route", "backend", "reason"),
        "Mirrored requests without a response of the mirror's backend, by reason.",
        {"": "failures"},
    ),
    StateMetric(
        "gateway_mirror_drops_total", "counter", ("route", "backend", "cause"),
        "Requests that were not mirrored, by cause: the limit of calls or memory, or a stop of the gateway.",
        {"": "drops"},
    ),
    StateMetric(
        "gateway_mirror_calls_in_flight", "gauge", ("route", "backend"),
        "Mirrored calls in flight, until the responses are compared.",
        {"": "in_flight"},
    ),
)  # fmt: skip


def wrap(handler: Handler, settings: Settings, context: PolicyContext) -> Handler:
    """Wrap `handler` to also send a sample of its calls to the mirror's backend.

    The Handler raises the errors of `handler`."""
    mirror = state(settings)
    rename = settings.rename
    there = OtherBackend(
        settings.backend, settings.model, settings.version, _pairs(rename.inputs), _pairs(rename.outputs)
    )
    beside = context.beside(there)

    def with_mirror(request: Request) -> Awaitable[Answer]:
        return mirror.call(handler, beside, request) if mirror.takes(request) else handler(request)

    return with_mirror


def wrap_stream(handler: StreamHandler, settings: Settings, context: PolicyContext) -> StreamHandler:
    """Return `handler` itself, because streams are not mirrored."""
    return handler


def _pairs(renamings: tuple[RenamingSettings, ...] | None) -> tuple[tuple[str, str], ...] | None:
    return None if renamings is None else tuple((each.client, each.backend) for each in renamings)


def _outputs(outcome: Outcome) -> tuple[Tensor, ...]:
    return outcome.outputs if isinstance(outcome, Response) else ()
