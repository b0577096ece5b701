"""Queries the model signatures for a graph's steps, and stores them for some time. The queries take the same path as
the step calls."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias

from gateway.bridge.graphs.calls import StepCalls
from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.bridge.graphs.schedule import run_at_once
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import Types
from gateway.bridge.signature_cache import SECONDS_KEPT
from gateway.bridge.signatures import MODEL_WITHOUT_METADATA, is_unknown
from gateway.core.deadlines import wait_until
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace_struct
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.record import UNRECORDED
from gateway.core.requests import Request
from gateway.core.tasks import outlived_by, spawn

OPERATIONS = "operations"
"""The part of a model's metadata that contains its operations, which only derivatives need."""

SECONDS_UNSURE = 1.0
"""How long a tensor mismatch, or a failed query about a model, is stored, in seconds.

During this time, the call to the model itself reports the cause.
"""

Outcome: TypeAlias = Types | GatewayError
Ask: TypeAlias = Callable[[Request], Coroutine[Any, Any, None]]
"""Queries the models of all steps, as part of a request."""


class StepSignatures:
    """Provides the types of one graph.

    Types are queried again after SECONDS_KEPT, or after `forget`. Requests that arrive during the queries wait for the
    same responses. The queries continue even if the first request is cancelled."""

    def __init__(self, graph: Graph, calls: StepCalls, clock: Callable[[], float]) -> None:
        self._graph = graph
        self._calls = calls
        self._clock = clock
        self._until = 0.0
        """When the stored types expire; 0 before the first query and after `forget`."""
        self._kept: Outcome = Types(graph, {})
        self._claimed_until = 0.0
        self._claimed: Mapping[str, Signature] = {}
        """The signatures, including operations."""
        self._asking: dict[Ask, asyncio.Task[None]] = {}
        """The queries in progress."""

    def forget(self) -> None:
        """Query the types again before the next call, because a server has recovered and might have different
        models."""
        self._until = self._claimed_until = 0.0
        self._asking.clear()

    def doubt(self) -> None:
        """Query the signatures again before the next call (at most once in SECONDS_UNSURE), because a step's model has
        rejected its inputs, or its outputs contradict the signature."""
        now = self._clock()
        if self._until - now <= SECONDS_KEPT - SECONDS_UNSURE:
            self._until = min(self._until, now)

    async def types(self, request: Request) -> Types:
        """Return the types for a call of the graph.

        The queries belong to `request`. The result omits models that cannot be queried, because their own calls report
        the cause.

        Raises:
            GatewayError: FAILED_PRECONDITION if a tensor does not match the input that it is used for.
        """
        if self._clock() >= self._until:
            if self._until:
                # Parallel requests continue with the stored types, without queries of their own.
                self._until = self._clock() + SECONDS_UNSURE
            await self._asked_for_all(self._ask_for_tensors, request)
        if isinstance(self._kept, GatewayError):
            raise refusal(self._kept.reason, self._kept.message)
        return self._kept

    async def _asked_for_all(self, ask: Ask, request: Request) -> None:
        """Run the queries once for all requests that arrive in the meantime.

        Raises the errors of the queries, or GatewayError (DEADLINE_EXCEEDED) if the deadline of this request has
        passed."""
        asking = self._asking.get(ask)
        if asking is None:
            # Other requests might still wait for the responses after this request has ended.
            question = replace_struct(request, deadline=None, record=UNRECORDED, span=None)
            asking = self._asking[ask] = spawn(ask(question))
            asking.add_done_callback(partial(self._were_asked, ask))
        if request.deadline is None:
            await outlived_by(asking)
        else:
            await wait_until(request.deadline, outlived_by(asking), self._too_late)

    def _were_asked(self, ask: Ask, asking: "asyncio.Task[None]") -> None:
        if self._is_current(ask, asking):
            del self._asking[ask]

    def _is_current(self, ask: Ask, asking: "asyncio.Task[None] | None") -> bool:
        """Return True if nothing was forgotten since a query started."""
        return asking is not None and self._asking.get(ask) is asking

    def _too_late(self) -> GatewayError:
        text = (
            f"model {self._graph.name!r}: its steps' models did not report their tensors before the deadline; try again"
        )
        return refusal(Reason.TIMEOUT, text)

    async def _ask_for_tensors(self, request: Request) -> None:
        found: dict[str, Signature] = {}
        unsure: list[GatewayError] = []

        async def ask(name: str) -> None:
            try:
                signature = await self._tensors(request, self._graph.steps[name])
            except GatewayError as error:
                unsure.append(error)
                return
            if not is_unknown(signature):
                found[name] = signature

        await self._of_all(ask)
        is_current = self._is_current(self._ask_for_tensors, asyncio.current_task())
        if self._until and not is_current:
            return  # newer responses are already stored
        types = Types(self._graph, found)
        try:
            self.check(types)
            self._kept = types
        except GatewayError as error:
            unsure.append(error)
            self._kept = error
        if is_current:
            self._until = self._clock() + (SECONDS_UNSURE if unsure else SECONDS_KEPT)

    async def described(self, request: Request) -> Types:
        """Return the types, including the operations of all models.

        Raises:
            GatewayError: the error of a step's model that cannot be queried, or FAILED_PRECONDITION as in `types`.
        """
        if self._clock() >= self._claimed_until:
            await self._asked_for_all(self._ask_for_operations, request)
        return Types(self._graph, self._claimed)

    async def _ask_for_operations(self, request: Request) -> None:
        found: dict[str, Signature] = {}

        async def ask(name: str) -> None:
            step = self._graph.steps[name]
            signature = await self._tensors(request, step)
            if is_unknown(signature):
                return
            claimed = await self._of_step(request, step, OPERATIONS)
            found[name] = Signature(signature.inputs, signature.outputs, claimed.operations)

        await self._of_all(ask)
        self.check(Types(self._graph, found))
        is_current = self._is_current(self._ask_for_operations, asyncio.current_task())
        if is_current or not self._claimed_until:
            self._claimed = found
        if is_current:
            self._claimed_until = self._clock() + SECONDS_KEPT

    async def _of_all(self, ask: Callable[[str], Awaitable[None]]) -> None:
        await run_at_once(self._graph.steps, ask, self._graph.steps_at_once)

    async def _tensors(self, request: Request, step: GraphStep) -> Signature:
        """Return the inputs and outputs of a step's model; empty if it has no metadata. Raises GatewayError."""
        try:
            return await self._of_step(request, step, "")
        except GatewayError as error:
            if error.status in MODEL_WITHOUT_METADATA:
                return Signature()
            raise

    async def _of_step(self, request: Request, step: GraphStep, part: str) -> Signature:
        """Return a part of the metadata of a step's model or, if it cannot be queried, of its first fallback that
        can."""
        models = (step.model, *step.fallback)
        for at, model in enumerate(models):
            try:
                answer = await self._calls.ask(request, step, Operation.METADATA, model, part)
            except GatewayError as error:
                if at + 1 < len(models) and error.status not in MODEL_WITHOUT_METADATA:
                    continue
                raise
            assert isinstance(answer, Signature)
            return answer
        raise AssertionError("a step has one model at least")

    def check(self, types: Types) -> None:
        """Raise GatewayError (FAILED_PRECONDITION) if a tensor does not match the input that it is used for."""
        try:
            types.check()
        except GraphError as error:
            raise misfit(self._graph, error) from error

    def signature(self, types: Types) -> Signature:
        """Return the graph's own signature. Raise GatewayError (FAILED_PRECONDITION) if an output's type is unknown."""
        try:
            return types.signature()
        except GraphError as error:
            raise misfit(self._graph, error) from error


def misfit(graph: Graph, error: GraphError) -> GatewayError:
    """Return the error for the client, including the position in the graph to which `error` refers."""
    place = ".".join(map(str, error.place))
    return refusal(Reason.FAILED_PRECONDITION, f"model {graph.name!r}: {place}: {error.message}")
