"""The signatures of the models of a graph's steps, asked for as the steps are, and kept for a while."""

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
from gateway.core.operations import Operation
from gateway.core.record import UNRECORDED
from gateway.core.tasks import outlived_by, spawn
from gateway.core.types import Request, Signature

OPERATIONS = "operations"
"""The part of a model's metadata that has its operations: only derivatives need it."""

SECONDS_UNSURE = 1.0
"""How long it is kept that tensors do not fit, or that a model cannot be asked: its own call tells why."""

Outcome: TypeAlias = Types | GatewayError
Ask: TypeAlias = Callable[[Request], Coroutine[Any, Any, None]]
"""Asks the models of all steps, in a request."""


class StepSignatures:
    """Tells the types of one graph. Kept ones are asked for again after SECONDS_KEPT, or after `forget`. Requests that
    come while they are asked for wait for the same answers; the first one's leaving does not end the questions."""

    def __init__(self, graph: Graph, calls: StepCalls, clock: Callable[[], float]) -> None:
        self._graph = graph
        self._calls = calls
        self._clock = clock
        self._until = 0.0
        """0 if nothing was asked yet, or was forgotten."""
        self._kept: Outcome = Types(graph, {})
        self._claimed_until = 0.0
        self._claimed: Mapping[str, Signature] = {}
        """The signatures with operations."""
        self._asking: dict[Ask, asyncio.Task[None]] = {}
        """The questions that wait for answers."""

    def forget(self) -> None:
        """Ask again: a server has recovered, and may have other models."""
        self._until = self._claimed_until = 0.0
        self._asking.clear()

    def doubt(self) -> None:
        """Ask again at the next call, at most once in SECONDS_UNSURE: the model of a step has refused its inputs, or
        has answered with other tensors than it told."""
        now = self._clock()
        if self._until - now <= SECONDS_KEPT - SECONDS_UNSURE:
            self._until = min(self._until, now)

    async def types(self, request: Request) -> Types:
        """The types for a call of the graph, asked for in `request`. Models that cannot be asked are left out: the call
        itself says what is wrong with them.

        Raises:
            GatewayError: FAILED_PRECONDITION, a tensor does not fit its place.
        """
        if self._clock() >= self._until:
            if self._until:
                # The requests beside this one go on with what is kept, and do not ask as well.
                self._until = self._clock() + SECONDS_UNSURE
            await self._asked_for_all(self._ask_for_tensors, request)
        if isinstance(self._kept, GatewayError):
            raise refusal(self._kept.reason, self._kept.message)
        return self._kept

    async def _asked_for_all(self, ask: Ask, request: Request) -> None:
        """Ask, for all requests that come meanwhile. Raises GatewayError: what asking does; DEADLINE_EXCEEDED, that of
        this request is over."""
        asking = self._asking.get(ask)
        if asking is None:
            # Others wait for the answers beyond the end of this request.
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
        """Whether nothing was forgotten since a question was asked."""
        return asking is not None and self._asking.get(ask) is asking

    def _too_late(self) -> GatewayError:
        text = f"model {self._graph.name!r}: the models of its steps have not told their tensors before the deadline"
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
            return  # newer answers are known
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
        """The types with the operations of all models.

        Raises:
            GatewayError: the error of a step's model that cannot be asked; FAILED_PRECONDITION as `types`.
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
        """The inputs and outputs of a step's model; none if it has no metadata. Raises GatewayError."""
        try:
            return await self._of_step(request, step, "")
        except GatewayError as error:
            if error.status in MODEL_WITHOUT_METADATA:
                return Signature()
            raise

    async def _of_step(self, request: Request, step: GraphStep, part: str) -> Signature:
        """A part of the metadata of a step's model, or of the first of its fallbacks that can be asked."""
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
        """Raise GatewayError: FAILED_PRECONDITION, a tensor does not fit its place."""
        try:
            types.check()
        except GraphError as error:
            raise misfit(self._graph, error) from error

    def signature(self, types: Types) -> Signature:
        """The graph's own signature. Raises GatewayError: FAILED_PRECONDITION, an output's type is not told."""
        try:
            return types.signature()
        except GraphError as error:
            raise misfit(self._graph, error) from error


def misfit(graph: Graph, error: GraphError) -> GatewayError:
    """The error for a client, with the place in the graph that `error` is about."""
    place = ".".join(map(str, error.place))
    return refusal(Reason.FAILED_PRECONDITION, f"model {graph.name!r}: {place}: {error.message}")
