"""GraphModel answers requests for a model that is a graph, as a backend does.

Its steps are requests of the gateway itself, in the wire-less form GRAPH: they take routes as a client's requests do,
with the permissions of the graph, not of its client. They share the client's deadline, and end when it leaves.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from functools import partial

import numpy as np

from gateway.bridge.graphs.chain_rule import ChainRule, has_rows, index
from gateway.bridge.graphs.expressions import Reference
from gateway.bridge.graphs.graph import Graph, Step
from gateway.bridge.graphs.sweep import Array, Sweep
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import Types
from gateway.bridge.shapes import matches
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    Status,
    TransportError,
    invalid_input,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INFER, Operation
from gateway.core.protocol import Models, Servers, Traits, Wire
from gateway.core.transport import Destination, Select
from gateway.core.types import (
    DEFAULT_TRANSLATE,
    Answer,
    ModelEntry,
    NotReady,
    Request,
    Response,
    ServerInfo,
    Signature,
    Tensor,
)
from gateway.core.types import tensor as make_tensor

GRAPH = "graph"
"""The name of the protocol that the steps of graphs are requests of, and graphs are backends of. It has no messages."""

GRAPH_TRAITS = Traits(
    Wire(derivatives=True, parameters=True),
    Models(companions=False, unknown_are_not_found=True, platform="graph"),
    Servers(),
)

_ELSEWHERE = frozenset({Status.NOT_FOUND, Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.INTERNAL})
"""With these a step's model cannot answer, and its fallback is asked."""


class GraphModel:
    """Answers for one graph. `select` finds the destination of a step's request."""

    def __init__(self, graph: Graph, select: Select) -> None:
        self.graph = graph
        self._select = select
        self.counts: dict[str, object] = {}

    async def __call__(self, request: Request) -> Answer:
        """The answer to a request for the graph, or for the server that it stands for.

        Raises:
            GatewayError: the error of a step, which it names.
        """
        match request.operation:
            case Operation.INFER:
                return await self._infer(request)
            case Operation.METADATA:
                return (await self._types(request)).signature()
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

    async def _infer(self, request: Request) -> Response:
        wanted = self._wanted(request)
        sweep = self._sweep(request, self._inputs(request))
        values = {name: self.graph.outputs[name] for name in wanted}
        await sweep.run(self.graph.needed(values.values()))
        return Response(await sweep.outputs(values), self.graph.name)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        """The responses of the last step, if all outputs that are asked for are outputs of one step, the last one;
        each with these outputs.

        Raises:
            GatewayError: UNIMPLEMENTED, an output is of another kind; the error of a step, which it names.
        """
        values = {name: self.graph.outputs[name] for name in self._wanted(request)}
        last = {each.step if isinstance(each, Reference) else "" for each in values.values()}
        if len(last) != 1 or "" in last:
            raise unsupported(f"model {self.graph.name!r} streams only if all outputs are those of one step")
        step = self.graph.steps[last.pop()]
        sweep = self._sweep(request, self._inputs(request))
        await sweep.run(name for name in self.graph.needed(step.inputs.values()))
        inputs = await sweep.inputs_of(step)
        assert inputs is not None, "an output that is needed is not missing"
        asked = self._request(request, Operation.STREAM, step.model, step, inputs)
        destination = self._select(asked)
        assert destination.stream is not None
        try:
            async with aclosing(destination.stream(asked)) as responses:
                async for response in responses:
                    yield Response(sweep.streamed(step, response, values), self.graph.name)
        except GatewayError as error:
            raise _of_step(error, step) from error

    def _wanted(self, request: Request) -> Iterable[str]:
        """The names of the outputs that are asked for."""
        if not request.outputs:
            return self.graph.outputs
        for each in request.outputs:
            if each.name not in self.graph.outputs:
                names = ", ".join(self.graph.outputs)
                raise invalid_input(f"model {self.graph.name!r} has no output {each.name!r}, but {names}")
            if each.parameters:
                raise unsupported(f"model {self.graph.name!r} is a graph; its outputs have no parameters")
        return [each.name for each in request.outputs]

    def _inputs(self, request: Request) -> Mapping[str, Tensor]:
        given = {each.name: each for each in request.inputs}
        for spec in self.graph.inputs:
            if spec.name not in given:
                raise invalid_input(f"model {self.graph.name!r} needs the input {spec}")
            tensor = given[spec.name]
            if tensor.datatype is not spec.datatype or not matches(tensor.shape, spec.shape):
                text = f"input {spec.name!r} is {tensor.datatype} {list(tensor.shape)}"
                raise invalid_input(f"{text}, expected {spec.datatype} {list(spec.shape)}")
        known = {each.name for each in self.graph.inputs} | set(DERIVATIVES.get(request.operation, ()))
        for name in given:
            if name not in known:
                raise invalid_input(f"model {self.graph.name!r} has no input {name!r}")
        return given

    def _sweep(self, request: Request, inputs: Mapping[str, Tensor]) -> Sweep:
        return Sweep(
            self.graph, inputs, request.parameters, partial(self._call, request), partial(self._signature, request)
        )

    async def _derive(self, request: Request) -> Response:
        signatures = await self._signatures(request)
        types = Types(self.graph, signatures)
        own = self._checked(types)
        if request.operation not in own.operations:
            text = f"{request.operation.value} is not supported by model {self.graph.name!r}: not every step has it"
            raise unsupported(text)
        given = self._inputs(request)
        outputs, names = list(self.graph.outputs), [each.name for each in self.graph.inputs]
        output = outputs[index(given, "out_wrt", len(outputs), "output")]
        first, second = (
            names[index(given, each, len(names), "input")]
            for each in (("in_wrt1", "in_wrt2") if request.operation is Operation.APPLY_HESSIAN else ("in_wrt",) * 2)
        )
        for each in DERIVATIVES[request.operation]:
            if each in ("sens", "vec") and each not in given:
                raise invalid_input(f"{request.operation.value} of model {self.graph.name!r} needs the input {each!r}")
        vector = given["vec" if "vec" in given else "sens"]
        rows = vector.shape[0] if has_rows(own) and vector.shape else None
        rule = ChainRule(
            self._sweep(request, given), signatures, self.graph.outputs[output], dict.fromkeys((first, second)), rows
        )
        await rule.evaluate()
        if request.operation is Operation.APPLY_JACOBIAN:
            found = await rule.jacobian({first: vector.array})
        elif request.operation is Operation.GRADIENT:
            found = _of(await rule.gradient(vector.array), first, given, rows)
        else:
            found = _of(await rule.hessian(given["sens"].array, {second: vector.array}), first, given, rows)
        return Response((make_tensor(COMPANION_OUTPUT, found),), self.graph.name)

    async def _is_ready(self, request: Request) -> Answer:
        """Whether the models of all steps are ready; of a step with fallbacks one of them."""
        for step in self.graph.steps.values():
            reasons = [await self._why_not_ready(request, model, step) for model in (step.model, *step.fallback)]
            if all(reasons):
                return NotReady(f"step {step.name!r}: {reasons[0]}")
        return True

    async def _why_not_ready(self, request: Request, model: str, step: Step) -> str:
        asked = self._request(request, Operation.MODEL_READY, model, step, ())
        try:
            answer = await _answer(self._select(asked), asked)
        except GatewayError as error:
            return error.message
        if answer is True:
            return ""
        return answer.text if isinstance(answer, NotReady) else f"model {model!r} is not ready"

    async def _types(self, request: Request) -> Types:
        types = Types(self.graph, await self._signatures(request))
        self._checked(types)
        return types

    def _checked(self, types: Types) -> Signature:
        try:
            types.check()
            return types.signature()
        except GraphError as error:
            place = ".".join(map(str, error.place))
            text = f"model {self.graph.name!r}: {place}: {error.message}" if place else error.message
            raise refusal(Reason.FAILED_PRECONDITION, text) from error

    async def _signatures(self, request: Request) -> Mapping[str, Signature]:
        steps = self.graph.steps.values()
        found = await asyncio.gather(*(self._signature(request, step) for step in steps))
        return dict(zip(self.graph.steps, found, strict=True))

    async def _signature(self, request: Request, step: Step) -> Signature:
        """The signature of a step's model. Raises GatewayError, naming the step."""
        asked = self._request(request, Operation.METADATA, step.model, step, ())
        try:
            answer = await _answer(self._select(asked), asked)
        except GatewayError as error:
            raise _of_step(error, step) from error
        assert isinstance(answer, Signature)
        return answer

    async def _call(self, request: Request, step: Step, operation: Operation, inputs: tuple[Tensor, ...]) -> Response:
        """The response of a step's model, or of its fallbacks."""
        for at, model in enumerate((step.model, *step.fallback)):
            asked = self._request(request, operation, model, step, inputs)
            try:
                answer = await _answer(self._select(asked), asked)
            except DecodeError as error:
                raise _of_step(invalid_input(str(error)), step) from error
            except GatewayError as error:
                if error.status in _ELSEWHERE and at < len(step.fallback):
                    continue
                raise _of_step(error, step) from error
            assert isinstance(answer, Response)
            return answer
        raise AssertionError("a step has one model at least")

    def _request(
        self, request: Request, operation: Operation, model: str, step: Step, inputs: tuple[Tensor, ...]
    ) -> Request:
        """A step's request. Nothing of the client's goes on but its deadline and headers, and who it is for queues."""
        return replace(
            request,
            operation=operation,
            model=model,
            version=step.version if model == step.model else "",
            id=None,
            inputs=inputs,
            outputs=(),
            parameters=dict(step.parameters) if operation is INFER else {},
            part="",
            origin=None,
            schemaless=False,
            listener="",
            protocol=GRAPH,
            path="",
            translate=DEFAULT_TRANSLATE,
            tries=None,
            principal=None,
            original=None,
        )


async def _answer(destination: Destination, request: Request) -> Answer:
    if destination.local is not None:
        return destination.local(request)
    assert destination.handler is not None
    return await destination.handler(request)


def _of(gradients: Mapping[str, Array], name: str, given: Mapping[str, Tensor], rows: int | None) -> Array:
    """The gradient with respect to an input; zeros if the output does not depend on it."""
    found = gradients.get(name)
    if found is not None:
        return found
    zeros = np.zeros(given[name].shape)
    return zeros.reshape(-1) if rows is None else zeros.reshape(rows, -1)


def _of_step(error: GatewayError, step: Step) -> GatewayError:
    """The error of a step, with its name and that of its model."""
    text = f"step {step.name!r} (model {step.model!r}): {error.message}"
    if isinstance(error, TransportError):
        made: GatewayError = TransportError(
            error.status, error.reason, text, sent=error.sent, answered=error.answered, retry_after=error.retry_after
        )
    else:
        made = GatewayError(error.status, error.reason, text, error.retry_after)
    made.endpoint = error.endpoint
    return made
