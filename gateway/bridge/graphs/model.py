"""GraphModel handles requests for a graph, like a backend. `assembly.routers` creates it.

The gateway itself sends the requests of the steps (`calls`). The requests take routes like client requests, but have
the graph's permissions instead of the client's. The steps have the client's deadline, and end when the client
disconnects.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, closing
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from gateway.bridge.graphs.calls import StepCalls
from gateway.bridge.graphs.chain_rule import ChainRule
from gateway.bridge.graphs.evaluation import EvaluationPlan, GraphEvaluation, MemoryCounter
from gateway.bridge.graphs.expressions import Expression, Reference, references
from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.bridge.graphs.schedule import run_at_once
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import Types
from gateway.bridge.shapes import is_batch, matches
from gateway.bridge.signature_cache import SECONDS_KEPT
from gateway.bridge.signatures import MODEL_WITHOUT_METADATA, is_unknown
from gateway.core.datatypes import Kind
from gateway.core.deadlines import wait_until
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, invalid_input, refusal, unsupported
from gateway.core.frozen import replace_struct
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, Operation
from gateway.core.protocol import Models, Servers, Traits, Wire
from gateway.core.record import UNRECORDED
from gateway.core.requests import Answer, Request, Response
from gateway.core.tasks import outlived_by, spawn
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor

OPERATIONS = "operations"
"""The part of a model's metadata that contains its operations. Only derivatives require this part."""

GRAPH_TRAITS = Traits(
    Wire(derivatives=True, parameters=True),
    Models(companions=False, unknown_are_not_found=True, operations_part=OPERATIONS, platform="graph"),
    Servers(),
)

MemoryOf = Callable[[str], MemoryCounter]
"""Returns the counter for the memory that requests from a client address (`host:port`) use."""


class GraphModel:
    """Handles the requests for one graph."""

    def __init__(self, graph: Graph, calls: StepCalls, memory_of: MemoryOf, clock: Callable[[], float]) -> None:
        self.graph = graph
        self.calls = calls
        self.signatures = StepSignatures(graph, calls, clock)
        self._memory_of = memory_of
        self._specs = {each.name: each for each in graph.inputs}
        self._parameters = {step.when.parameter for step in graph.steps.values() if step.when is not None} - {""}
        """The request parameters that step conditions use."""
        self._whole = self._plan(graph.outputs)

    async def __call__(self, request: Request) -> Answer:
        """Return the response to a request for the graph, or a request for the server that the graph represents.

        Raises:
            GatewayError: the error of a step, with the step's name; INVALID_ARGUMENT for unknown inputs, or inputs with
                wrong datatypes or shapes; FAILED_PRECONDITION if tensors of the steps' models do not match.
        """
        request = self.calls.begun(request)
        match request.operation:
            case Operation.INFER:
                return await self._infer(request)
            case Operation.METADATA:
                return self.signatures.signature(await self.signatures.described(request))
            case Operation.MODEL_READY:
                return await self._is_ready(request)
            case Operation.LIVE | Operation.READY:
                return True
            case Operation.SERVER_METADATA:
                return ServerInfo(self.graph.name, "")
            case Operation.MODELS:
                return (ModelEntry(self.graph.name),)
            case operation if operation in DERIVATIVES:
                return await self._derive(request)
        raise unsupported(f"{request.operation.value} is not supported by model {self.graph.name!r}, which is a graph")

    def _plan(self, values: Mapping[str, Expression]) -> EvaluationPlan:
        """Return the plan for computing these values."""
        kept = frozenset(each.step for value in values.values() for each in references(value) if each.step)
        return EvaluationPlan(self.graph, self.graph.needed(values.values()), kept)

    async def _infer(self, request: Request) -> Response:
        inputs = self._inputs(request)
        values, plan = self.graph.outputs, self._whole
        if request.outputs:
            values = self._wanted(request)
            plan = self._plan(values)
        sweep = self._begun(request, inputs, await self.signatures.types(request))
        try:
            await sweep.run(plan)
            return Response(await sweep.outputs(values), self.graph.name)
        except GatewayError as error:
            if error.status is Status.INVALID_ARGUMENT or error.reason is Reason.INVALID_OUTPUT:
                self.signatures.doubt()
            raise
        finally:
            sweep.close()

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """Stream the responses of the last step, as the requested outputs.

        All requested outputs must be outputs of the last step.

        Raises:
            GatewayError: UNIMPLEMENTED if an output comes from another step; the error of a step, with the step's name.
        """
        request = self.calls.begun(request)
        inputs, values = self._inputs(request), self._wanted(request)
        last = {each.step if isinstance(each, Reference) else "" for each in values.values()}
        if len(last) != 1 or "" in last:
            raise unsupported(f"model {self.graph.name!r} streams only outputs of one step; request fewer outputs")
        step = self.graph.steps[last.pop()]
        with closing(self._begun(request, inputs, await self.signatures.types(request))) as sweep:
            await sweep.run(EvaluationPlan(self.graph, self.graph.needed(step.inputs.values())))
            given = await sweep.inputs_of(step)
            assert given is not None, "an output that is needed is not missing"
            async with aclosing(self.calls.stream(request, step, given)) as responses:
                async for response in responses:
                    # Triton ends a stream with a response without outputs if the client requests that.
                    outputs = sweep.streamed(step, response, values) if response.outputs else ()
                    yield Response(outputs, self.graph.name)

    def _wanted(self, request: Request) -> Mapping[str, Expression]:
        """Return the requested outputs, by name."""
        if not request.outputs:
            return self.graph.outputs
        for each in request.outputs:
            if each.name not in self.graph.outputs:
                names = ", ".join(self.graph.outputs)
                raise invalid_input(f"model {self.graph.name!r} has no output {each.name!r}; expected {names}")
            if each.parameters:
                raise unsupported(f"model {self.graph.name!r} is a graph; its outputs have no parameters")
        return {each.name: self.graph.outputs[each.name] for each in request.outputs}

    def _inputs(self, request: Request) -> Mapping[str, Tensor]:
        """Return the tensors of a request, by name. Raise GatewayError if the tensors do not match the graph's
        inputs."""
        given = {each.name: each for each in request.inputs}
        rows = -1
        for name, spec in self._specs.items():
            tensor = given.get(name)
            if tensor is None:
                raise invalid_input(f"model {self.graph.name!r} needs the input {spec}")
            if tensor.datatype is not spec.datatype or not matches(tensor.shape, spec.shape):
                text = f"input {name!r} is {tensor.datatype} {list(tensor.shape)}"
                raise invalid_input(f"{text}, expected {spec.datatype} {list(spec.shape)}")
            if is_batch(spec.shape):
                if rows not in (-1, tensor.shape[0]):
                    raise invalid_input(
                        f"input {name!r} has {tensor.shape[0]} rows, and another one {rows}; send the same number"
                    )
                rows = tensor.shape[0]
        own = DERIVATIVES.get(request.operation, ())
        for name in given:
            if name not in self._specs and name not in own:
                raise invalid_input(f"model {self.graph.name!r} has no input {name!r}; remove it")
        for name in request.parameters:
            if name not in self._parameters:
                raise invalid_input(f"model {self.graph.name!r} is a graph and has no parameter {name!r}; remove it")
        return given

    def _begun(self, request: Request, inputs: Mapping[str, Tensor], types: Types) -> GraphEvaluation:
        """Return a new GraphEvaluation. The caller must close it."""
        call, memory = partial(self.calls.call, request), self._memory_of(request.peer)
        return GraphEvaluation(self.graph, inputs, request.parameters, call, types.signatures, memory)

    async def _derive(self, request: Request) -> Response:
        operation, given = request.operation, self._inputs(request)
        types = await self.signatures.described(request)
        if operation not in self.signatures.signature(types).operations:
            raise unsupported(f"{operation.value} is not supported by model {self.graph.name!r}: not every step has it")
        output = self._differentiated(given, "out_wrt", types)
        for name in DERIVATIVES[operation]:
            if name in ("sens", "vec") and name not in given:
                raise invalid_input(f"{operation.value} of model {self.graph.name!r} needs the input {name!r}")
        first, second = (
            self._differentiated(given, each, types)
            for each in (("in_wrt1", "in_wrt2") if operation is Operation.APPLY_HESSIAN else ("in_wrt",) * 2)
        )
        rows = self._rows(given)
        sens = self._vector(given, "sens", rows, types.of(self.graph.outputs[output]))
        vec = self._vector(given, "vec", rows, given[second])
        with closing(self._begun(request, given, types)) as sweep:
            rule = ChainRule(sweep, types.signatures, self.graph.outputs[output], rows)
            if operation is Operation.GRADIENT:
                found = await rule.gradient(first, sens)
            elif operation is Operation.APPLY_JACOBIAN:
                found = await rule.jacobian(first, vec)
            else:
                found = await rule.hessian(first, second, sens, vec)
        return Response((make_tensor(COMPANION_OUTPUT, found),), self.graph.name)

    def _differentiated(self, given: Mapping[str, Tensor], name: str, types: Types) -> str:
        """Return the name of the output or input at the position that the index tensor `name` contains. Raise
        GatewayError if this output or input is not a float tensor, or DecodeError if it does not exist."""
        if name == "out_wrt":
            role, specs = "output", {each: types.of(value) for each, value in self.graph.outputs.items()}
        else:
            role, specs = "input", self._specs
        found = list(specs)[_index(given, name, len(specs), role)]
        if specs[found].datatype.kind is not Kind.FLOAT:
            text = f"{role} {found!r} of model {self.graph.name!r} is {specs[found].datatype}"
            raise invalid_input(f"{text}, and has no derivatives")
        return found

    def _rows(self, given: Mapping[str, Tensor]) -> int | None:
        """Return the number of rows in the batch, or None if the graph has no batch dimension."""
        return next((given[each.name].shape[0] for each in self.graph.inputs if is_batch(each.shape)), None)

    def _vector(
        self, given: Mapping[str, Tensor], name: str, rows: int | None, of: TensorSpec | Tensor
    ) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        """Return the vector `name`, or an empty vector if `name` is missing. Raise GatewayError if the vector's length
        differs from the length of a tensor of the type `of`."""
        if name not in given:
            return np.zeros(0)
        tensor = given[name]
        wanted = of.shape if rows is None else (rows, *of.shape[1:])
        size = -1 if -1 in wanted else prod(wanted)
        if tensor.datatype.kind is not Kind.FLOAT or size not in (-1, tensor.elements):
            text = f"input {name!r} is {tensor.datatype} {list(tensor.shape)}"
            raise invalid_input(f"{text}, expected FP64 with the elements of {list(wanted)}")
        if rows is not None and tensor.shape[:1] != (rows,):
            raise invalid_input(
                f"input {name!r} has shape {list(tensor.shape)}, but the other inputs have {rows} rows; send the same "
                "number"
            )
        return tensor.array.astype(np.float64, copy=False)

    async def _is_ready(self, request: Request) -> bool:
        """Return True if the models of all steps are ready. For a step with fallbacks, one ready model is
        sufficient."""
        unready: list[str] = []

        async def ask(name: str) -> None:
            step = self.graph.steps[name]
            for model in (step.model, *step.fallback):
                if await self._is_model_ready(request, model, step):
                    return
            unready.append(name)

        await run_at_once(self.graph.steps, ask, self.graph.steps_at_once)
        return not unready

    async def _is_model_ready(self, request: Request, model: str, step: GraphStep) -> bool:
        try:
            return await self.calls.ask(request, step, Operation.MODEL_READY, model) is True
        except GatewayError:
            return False


SECONDS_UNSURE = 1.0
"""The time for which a tensor mismatch, or a failed query about a model, is stored, in seconds.

During this time, the call to the model itself reports the cause.
"""

Outcome: TypeAlias = Types | GatewayError
Ask: TypeAlias = Callable[[Request], Coroutine[Any, Any, None]]
"""Queries the models of all steps, as part of a request."""


class StepSignatures:
    """Provides the types of one graph, derived from the signatures of its steps' models. The queries for these
    signatures take the same path as the step calls.

    The signatures are queried again after SECONDS_KEPT, or after `forget`. Requests that arrive during the queries wait
    for the same responses. The queries continue even if the first request is cancelled."""

    def __init__(self, graph: Graph, calls: StepCalls, clock: Callable[[], float]) -> None:
        self._graph = graph
        self._calls = calls
        self._clock = clock
        self._until = 0.0
        """The time at which the stored types expire; 0 before the first query and after `forget`."""
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

        The queries belong to `request`. The result omits models that cannot be queried; the calls to these models
        report the cause.

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
        """Run the queries once for all requests that arrive before the queries end.

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
        """Return True if no types were forgotten since the query started."""
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
        """Return the inputs and outputs of a step's model, or empty lists if the model has no metadata. Raises
        GatewayError."""
        try:
            return await self._of_step(request, step, "")
        except GatewayError as error:
            if error.status in MODEL_WITHOUT_METADATA:
                return Signature()
            raise

    async def _of_step(self, request: Request, step: GraphStep, part: str) -> Signature:
        """Return a part of the metadata of a step's model. If this model cannot be queried, use the step's first
        fallback that can."""
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


def _index(tensors: Mapping[str, Tensor], name: str, count: int, role: str) -> int:
    """Return the position that an index tensor contains, or 0 if the tensor is missing.

    Raises:
        DecodeError: the position differs between rows, or the model has no such input or output.
    """
    if name not in tensors:
        return 0
    array = tensors[name].array
    if array.dtype.kind not in "iu":
        raise DecodeError(f"index {name!r} is {tensors[name].datatype}, expected INT64")
    found = set(array.reshape(-1).tolist())
    if not found:
        return 0
    if len(found) != 1:
        raise DecodeError(f"index {name!r} differs in some rows; send one request for each")
    [at] = found
    if not 0 <= at < count:
        raise DecodeError(f"index {name!r} is {at}, but the model has {count} {role}s; count from 0")
    return int(at)
