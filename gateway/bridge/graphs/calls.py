"""Sends the requests of a graph's steps. These requests address models like client requests, in the protocol GRAPH,
which has no wire format."""

from asyncio import CancelledError
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from sys import exc_info
from time import monotonic

from gateway.bridge.comparison import as_text
from gateway.bridge.graphs.graph import GraphStep
from gateway.core.errors import (
    DecodeError,
    DetailedError,
    GatewayError,
    Reason,
    Status,
    TransportError,
    invalid_input,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace_struct
from gateway.core.operations import CALLS, Operation
from gateway.core.queue_wait import note_sent
from gateway.core.record import STEP_PROTOCOL, UNRECORDED
from gateway.core.requests import DEFAULT_TRANSLATE, Answer, CallsLeft, Request, Response
from gateway.core.spans import begin
from gateway.core.tensors import Tensor
from gateway.core.transport import Destination, Select

GRAPH = STEP_PROTOCOL
"""The protocol name of step requests, and of graphs as backends. This protocol has no messages."""

CONFIG = "config"
"""The parameter of an UM-Bridge call on which a model's vector sizes can depend."""

_NOT_RUN = frozenset({Reason.OVERLOADED, Reason.NOT_READY, Reason.CIRCUIT_OPEN, Reason.MODEL_NOT_FOUND})
"""Error reasons that prove that a call was rejected before it ran."""
_NO_ANSWER = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.INTERNAL})
"""Statuses of calls that might have run without a result."""


CALLS_COUNTED, ERRORS, CANCELLED, FALLBACKS, SECONDS = "calls", "errors", "cancelled", "fallbacks", "seconds"
"""The names of a step's counters.

The first four counters count completed calls, failed calls, calls that were cancelled because the client disconnected
or another step failed, and calls to a `fallback` model. The last counter is the total duration of all calls, in
seconds."""

_ANSWERED = ""
"""The outcome of a call that is neither ERRORS nor CANCELLED."""


class StepCalls:
    """Calls the models of one graph's steps.

    - `select`: Finds the destination of a step's request.
    - `is_safe`: Returns whether a call to a destination can be repeated after it was sent.
    - `most`: The maximum number of calls for one client request, including calls of nested graphs.
    """

    def __init__(self, select: Select, is_safe: Callable[[Destination], bool], most: int) -> None:
        self._select = select
        self._is_safe = is_safe
        self._most = most
        self.counts: dict[str, Counter[str]] = {}
        """The counts of each step that was called, by step name."""

    def begun(self, request: Request) -> Request:
        """Return the graph's request, with a counter that limits the calls of its steps. Nested graphs share the
        outermost graph's counter."""
        if request.calls_left is not None:
            return request
        return replace_struct(request, calls_left=CallsLeft(self._most))

    def _count_call(self, request: Request) -> None:
        left = request.calls_left
        assert left is not None, "`begun` has set it"
        if not left.number:
            text = f"the request needs more than {self._most} calls; raise limits.calls_per_request"
            raise refusal(Reason.FAILED_PRECONDITION, text)
        left.number -= 1

    async def call(
        self, request: Request, step: GraphStep, operation: Operation, inputs: tuple[Tensor, ...]
    ) -> Response:
        """Call a step's model, or its fallbacks, as part of the graph's `request`, and return the response.

        Raises:
            GatewayError: the error of the model that was called last, with the name of the step.
        """
        for asked, destination, is_last in self._tries(request, step, operation, inputs):
            try:
                return await self._answered(asked, destination, step)
            except GatewayError as error:
                if is_last or not self._goes_on(error, destination):
                    raise of_step(error, step, asked.model, others_ran=_has_run(request)) from error
        raise AssertionError("a step has one model at least")

    def _tries(
        self, request: Request, step: GraphStep, operation: Operation, inputs: tuple[Tensor, ...]
    ) -> Iterator[tuple[Request, Destination, bool]]:
        """Yield the requests to a step's model and its fallbacks, in order. Each request comes with its destination,
        and with True if it is the last one. If no route matches the last request, raise a GatewayError that contains
        the step's name."""
        for at, model in enumerate((step.model, *step.fallback)):
            self._count_call(request)
            asked = _asked(request, operation, model, step, inputs)
            is_last = at == len(step.fallback)
            try:
                destination = self._select(asked)
            except GatewayError as error:
                if is_last:
                    raise of_step(error, step, model) from error
                continue
            if at:
                self._counts_of(step)[FALLBACKS] += 1
            yield asked, destination, is_last

    def _goes_on(self, error: GatewayError, destination: Destination) -> bool:
        """Return True if the step can call the next model after this error."""
        is_unsent = isinstance(error, TransportError) and not error.sent and error.status is Status.UNAVAILABLE
        if error.reason in _NOT_RUN or is_unsent:
            return True
        return error.status in _NO_ANSWER and self._is_safe(destination)

    async def _answered(self, asked: Request, destination: Destination, step: GraphStep) -> Response:
        with _recorded(asked, destination) as own:
            return await self._counted(own, destination, step)

    async def _counted(self, asked: Request, destination: Destination, step: GraphStep) -> Response:
        record, began, end = asked.record, monotonic(), ERRORS
        try:
            if record.events is None:
                answer = await answer_of(asked, destination)
            else:
                with begin(record, "step", asked.span) as span:
                    span.facts = {"step": step.name, "model": asked.model, "route": destination.route}
                    answer = await answer_of(replace_struct(asked, span=span), destination)
                    if record.explain is not None and isinstance(answer, Response):
                        span.facts |= {"inputs": as_text(asked.inputs), "outputs": as_text(answer.outputs)}
            end = _ANSWERED
            assert asked.calls_left is not None, "`begun` has set it"
            asked.calls_left.has_run = True
        except DecodeError as error:
            raise invalid_input(str(error)) from error
        except CancelledError:
            end = CANCELLED
            raise
        finally:
            self._count(step, began, end)
            if end is not _ANSWERED and _has_run(asked):
                note_sent()
        assert isinstance(answer, Response)
        return answer

    def _counts_of(self, step: GraphStep) -> Counter[str]:
        counts = self.counts.get(step.name)
        if counts is None:
            counts = self.counts[step.name] = Counter({CALLS_COUNTED: 0, ERRORS: 0, CANCELLED: 0, SECONDS: 0})
        return counts

    def _count(self, step: GraphStep, began: float, end: str) -> None:
        counts = self._counts_of(step)
        counts[CALLS_COUNTED] += 1
        if end is not _ANSWERED:
            counts[end] += 1
        counts[SECONDS] += monotonic() - began  # type: ignore[assignment]  # a Counter takes any number

    async def stream(
        self, request: Request, step: GraphStep, inputs: tuple[Tensor, ...]
    ) -> AsyncGenerator[Response, None]:
        """Yield the responses of a step's model. A fallback is called only before the first response.

        Raises:
            GatewayError: same as `call`, possibly after some responses.
        """
        for asked, destination, is_last in self._tries(request, step, Operation.STREAM, inputs):
            is_begun = False
            try:
                async with aclosing(self._streamed(asked, destination, step)) as responses:
                    async for response in responses:
                        is_begun = True
                        yield response
                return
            except GatewayError as error:
                if is_begun or is_last or not self._goes_on(error, destination):
                    raise of_step(error, step, asked.model, others_ran=_has_run(request)) from error

    async def _streamed(
        self, asked: Request, destination: Destination, step: GraphStep
    ) -> AsyncGenerator[Response, None]:
        with _recorded(asked, destination) as own:
            async with aclosing(self._counted_stream(own, destination, step)) as responses:
                async for response in responses:
                    yield response

    async def _counted_stream(
        self, asked: Request, destination: Destination, step: GraphStep
    ) -> AsyncGenerator[Response, None]:
        began, end, span = monotonic(), ERRORS, None
        try:
            if destination.stream is None:
                raise unsupported(f"model {asked.model!r} does not stream; use another operation")
            if asked.record.events is not None:
                span = begin(asked.record, "step", asked.span)
                span.facts = {"step": step.name, "model": asked.model, "route": destination.route}
                asked = replace_struct(asked, span=span)
            async with aclosing(destination.stream(asked)) as responses:
                async for response in responses:
                    yield response
            end = _ANSWERED
        except DecodeError as error:
            raise invalid_input(str(error)) from error
        except (CancelledError, GeneratorExit):
            end = CANCELLED
            raise
        finally:
            self._count(step, began, end)
            if span is not None:
                span.__exit__(*exc_info())  # adds the error that ends the stream, if any

    async def ask(self, request: Request, step: GraphStep, operation: Operation, model: str, part: str = "") -> Answer:
        """Return the response to a query about a step's `model`.

        Raises:
            GatewayError: the error of the query, with the name of the step.
        """
        if operation is Operation.MODEL_READY:  # model metadata is cached
            self._count_call(request)
        asked = replace_struct(_asked(request, operation, model, step, ()), part=part)
        record = request.record.of_step(operation.value, model)  # do not call `ended`, because queries are not counted
        try:
            return await answer_of(replace_struct(asked, record=record), self._select(asked))
        except GatewayError as error:
            raise of_step(error, step, model) from error
        finally:
            request.record.step_ended(record)


def _asked(request: Request, operation: Operation, model: str, step: GraphStep, inputs: tuple[Tensor, ...]) -> Request:
    """Create a step's request.

    The step's request has only the deadline, the headers, the address and the principal's name of the client's request.
    Fair queueing therefore treats it like a request from that client. The step has permission for every model that the
    graph calls."""
    if operation in CALLS:
        parameters = dict(step.parameters)
    else:
        parameters = {name: value for name, value in step.parameters.items() if name == CONFIG}
    return replace_struct(
        request,
        operation=operation,
        model=model,
        version=step.version if model == step.model else "",
        id=None,
        inputs=inputs,
        outputs=(),
        parameters=parameters,
        part="",
        origin=None,
        schemaless=False,
        flaw="",
        listener="",
        protocol=GRAPH,
        path="",
        translate=DEFAULT_TRANSLATE,
        tries=None,
        principal=None if request.principal is None else request.principal.unrestricted,
    )


@contextmanager
def _recorded(asked: Request, destination: Destination) -> Iterator[Request]:
    """Yield a step's request with its own Record, which names the step's backend. At the end, add its attempts and
    times to the Record of the graph's request."""
    of_graph = asked.record
    if of_graph is UNRECORDED:
        yield asked
        return
    record = of_graph.of_step(asked.operation.value, asked.model)
    record.routed(of_graph.route, destination.backend, "")
    try:
        yield replace_struct(asked, record=record)
    except GatewayError as error:
        record.failed(error)
        raise
    except (CancelledError, GeneratorExit):
        record.give_up(0)
        raise
    except Exception:
        record.failed(refusal(Reason.INTERNAL, "an unexpected error"))
        raise
    finally:
        record.end(0, 0)
        of_graph.step_ended(record)


async def answer_of(request: Request, destination: Destination) -> Answer:
    """Return the response of a destination, from its fixed response or its Handler."""
    if destination.local is not None:
        return destination.local(request)
    assert destination.handler is not None
    return await destination.handler(request)


def _has_run(request: Request) -> bool:
    """Return True if any step of the client's request has run."""
    return request.calls_left is not None and request.calls_left.has_run


def of_step(error: GatewayError, step: GraphStep, model: str, *, others_ran: bool = False) -> GatewayError:
    """Return the error from a step's model, with the names of the step and the model.

    `others_ran` is True if an earlier step has run. In this case, a retry policy must not treat the request as
    unsent."""
    text = f"step {step.name!r} (model {model!r}): {error.message}"
    if isinstance(error, DetailedError):
        brief = f"step {step.name!r} (model {model!r}): {error.brief}"
        sent = error.sent or others_ran
        made: GatewayError = DetailedError(error.status, error.reason, brief, error.detail, sent=sent)
    elif isinstance(error, TransportError):
        made = TransportError(
            error.status, error.reason, text, sent=error.sent or others_ran, answered=error.answered,
            retry_after=error.retry_after,
        )  # fmt: skip
    else:
        made = GatewayError(error.status, error.reason, text, error.retry_after)
    made.endpoint = error.endpoint
    return made
