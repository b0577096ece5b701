"""The requests that the steps of a graph are: for models, as clients name them, in the wire-less form GRAPH."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
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
    unsupported,
)
from gateway.core.frozen import replace_struct
from gateway.core.operations import CALLS, Operation
from gateway.core.spans import begin
from gateway.core.transport import Destination, Select
from gateway.core.types import DEFAULT_TRANSLATE, Answer, Request, Response, Tensor

GRAPH = "graph"
"""The name of the protocol that the steps of graphs are requests of, and graphs are backends of. It has no messages."""

CONFIG = "config"
"""The parameter of an UM-Bridge call on which also the sizes of a model's vectors depend."""

_NOT_RUN = frozenset({Reason.OVERLOADED, Reason.NOT_READY, Reason.CIRCUIT_OPEN, Reason.MODEL_NOT_FOUND})
"""With these reasons a call was refused before it ran."""
_NO_ANSWER = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.INTERNAL})
"""With these a call may have run, without a result."""


CALLS_COUNTED, ERRORS, FALLBACKS, SECONDS = "calls", "errors", "fallbacks", "seconds"
"""The counts of one step: the calls that have ended, those of them that failed, how often a model of `fallback` was
asked, and what all calls took together."""


class StepCalls:
    """Calls the models of the steps of one graph.

    - `select`: finds the destination of a step's request.
    - `is_safe`: whether a call to a destination may be repeated after it was sent.
    """

    def __init__(self, select: Select, is_safe: Callable[[Destination], bool]) -> None:
        self._select = select
        self._is_safe = is_safe
        self.counts: dict[str, Counter[str]] = {}
        """The counts of each step that was called, by its name."""

    async def call(
        self, request: Request, step: GraphStep, operation: Operation, inputs: tuple[Tensor, ...]
    ) -> Response:
        """The response of a step's model, or of its fallbacks, in the graph's `request`.

        Raises:
            GatewayError: the error of the last model that was asked, which names the step.
        """
        for at, model in enumerate((step.model, *step.fallback)):
            asked = _asked(request, operation, model, step, inputs)
            try:
                destination = self._select(asked)
            except GatewayError as error:
                if at == len(step.fallback):
                    raise of_step(error, step, model) from error
                continue
            try:
                return await self._answered(asked, destination, step)
            except GatewayError as error:
                if at == len(step.fallback) or not self._goes_on(error, destination):
                    raise of_step(error, step, model) from error
                self.counts[step.name][FALLBACKS] += 1
        raise AssertionError("a step has one model at least")

    def _goes_on(self, error: GatewayError, destination: Destination) -> bool:
        """Whether the next model may be asked after an error."""
        is_unsent = isinstance(error, TransportError) and not error.sent and error.status is Status.UNAVAILABLE
        if error.reason in _NOT_RUN or is_unsent:
            return True
        return error.status in _NO_ANSWER and self._is_safe(destination)

    async def _answered(self, asked: Request, destination: Destination, step: GraphStep) -> Response:
        record, began, is_error = asked.record, monotonic(), True
        try:
            if record.events is None:
                answer = await answer_of(asked, destination)
            else:
                with begin(record, "step", asked.span) as span:
                    span.facts = {"step": step.name, "model": asked.model, "route": destination.route}
                    answer = await answer_of(replace_struct(asked, span=span), destination)
                    if record.explain is not None and isinstance(answer, Response):
                        span.facts |= {"inputs": as_text(asked.inputs), "outputs": as_text(answer.outputs)}
            is_error = False
        except DecodeError as error:
            raise invalid_input(str(error)) from error
        finally:
            self._count(step, began, is_error=is_error)
        assert isinstance(answer, Response)
        return answer

    def _count(self, step: GraphStep, began: float, *, is_error: bool) -> None:
        counts = self.counts.get(step.name)
        if counts is None:
            counts = self.counts[step.name] = Counter({CALLS_COUNTED: 0, ERRORS: 0, SECONDS: 0})
        counts[CALLS_COUNTED] += 1
        counts[ERRORS] += is_error
        counts[SECONDS] += monotonic() - began  # type: ignore[assignment]  # a Counter takes any number

    async def stream(
        self, request: Request, step: GraphStep, inputs: tuple[Tensor, ...]
    ) -> AsyncGenerator[Response, None]:
        """The responses of a step's model. Its fallbacks are not asked.

        Raises:
            GatewayError: as `call`, also after some responses.
        """
        asked = _asked(request, Operation.STREAM, step.model, step, inputs)
        began, is_error = monotonic(), True
        try:
            destination = self._select(asked)
            if destination.stream is None:
                raise unsupported(f"model {step.model!r} does not stream")
            if asked.record.events is not None:
                span = begin(asked.record, "step", asked.span)
                span.facts = {"step": step.name, "model": asked.model, "route": destination.route}
                asked = replace_struct(asked, span=span)
            async with aclosing(destination.stream(asked)) as responses:
                async for response in responses:
                    yield response
            is_error = False
        except DecodeError as error:
            raise of_step(invalid_input(str(error)), step, step.model) from error
        except GatewayError as error:
            raise of_step(error, step, step.model) from error
        finally:
            self._count(step, began, is_error=is_error)
            if asked.span is not None and asked.span is not request.span:
                asked.span.end()

    async def ask(self, request: Request, step: GraphStep, operation: Operation, model: str, part: str = "") -> Answer:
        """The answer to a question about a step's `model`.

        Raises:
            GatewayError: which names the step.
        """
        asked = replace_struct(_asked(request, operation, model, step, ()), part=part)
        try:
            return await answer_of(asked, self._select(asked))
        except GatewayError as error:
            raise of_step(error, step, model) from error


def _asked(request: Request, operation: Operation, model: str, step: GraphStep, inputs: tuple[Tensor, ...]) -> Request:
    """A step's request. Nothing of the client's goes on but its deadline, its headers and its address."""
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
        principal=None,
        original=None,
    )


async def answer_of(request: Request, destination: Destination) -> Answer:
    """The answer of a destination that answers at once or by a Handler."""
    if destination.local is not None:
        return destination.local(request)
    assert destination.handler is not None
    return await destination.handler(request)


def of_step(error: GatewayError, step: GraphStep, model: str) -> GatewayError:
    """The error of a step's model, with the names of both."""
    text = f"step {step.name!r} (model {model!r}): {error.message}"
    if isinstance(error, DetailedError):
        brief = f"step {step.name!r} (model {model!r}): {error.brief}"
        made: GatewayError = DetailedError(error.status, error.reason, brief, error.detail, sent=error.sent)
    elif isinstance(error, TransportError):
        made = TransportError(
            error.status, error.reason, text, sent=error.sent, answered=error.answered, retry_after=error.retry_after
        )
    else:
        made = GatewayError(error.status, error.reason, text, error.retry_after)
    made.endpoint = error.endpoint
    return made
