"""Sample messages of each protocol, written by its own codec: all requests and answers that it can express."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.frozen import extended, frozen
from gateway.core.messages import Message
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Answer, ControlRequest, Request, Response, SettingValue
from gateway.core.statistics import ModelStatistics, Statistics
from gateway.core.tensors import Shape, Tensor, tensor
from tests.contract.flavors import Dialect
from tests.contract.wire import LISTENER, LITERAL, arrived, or_error, returned

ANSWERS: Mapping[Operation, Answer] = {
    Operation.LIVE: True,
    Operation.READY: True,
    Operation.MODEL_READY: True,
    Operation.SERVER_METADATA: ServerInfo("contract", "1.2", ("extension",)),
    Operation.MODELS: (ModelEntry("m", "1", "READY"), ModelEntry("other")),
    Operation.CONFIG: {"name": "m", "input": [{"name": "x", "dims": [-1]}]},
    Operation.MODEL_STATISTICS: Statistics((ModelStatistics("m", "1", {"inference_count": 5}),)),
    Operation.ALL_STATISTICS: Statistics((ModelStatistics("m", "1", {"batch_stats": [{"batch_size": 1}]}),)),
    Operation.LOAD: True,
    Operation.UNLOAD: True,
    Operation.TRACE_SETTINGS: {"trace_level": ["OFF"], "trace_rate": "1"},
    Operation.LOG_SETTINGS: {"log_info": True, "log_verbose_level": 1, "log_format": "default"},
}

SETTINGS: Mapping[Operation, Mapping[str, SettingValue]] = {
    Operation.LOAD: {"config": "{}", "file:1/model": b"\0"},
    Operation.UNLOAD: {"unload_dependents": True},
    Operation.TRACE_SETTINGS: {"trace_level": ("TIMESTAMPS",), "trace_rate": None},
    Operation.LOG_SETTINGS: {"log_info": False, "log_verbose_level": 1, "log_format": "default"},
}


@frozen
class Sample:
    """One exchange: the request, and as messages the request, its answer, and an error instead of the answer."""

    request: Request
    question: Message
    answer: Message
    error: Message


def samples(dialect: Dialect) -> Iterator[Sample]:
    """Return a sample for each request that the protocol can express."""
    for request in _requests(dialect):
        found = or_error(partial(sample, dialect, request))
        if isinstance(found, Sample):
            yield found
        else:
            assert found.reason is Reason.UNSUPPORTED


def sample(dialect: Dialect, request: Request, outputs: tuple[Tensor, ...] = ()) -> Sample:
    """Return the exchange for `request`.

    Raises:
        GatewayError: UNIMPLEMENTED if the protocol cannot express the request.
    """
    protocol = dialect.protocol
    question = arrived(protocol.encode_request(request, dialect.target), protocol)
    understood = decoded(question, protocol, LISTENER)
    response = Response(outputs or small_tensors(dialect))
    answer = ANSWERS.get(understood.operation, response)
    if understood.operation in DERIVATIVES:
        answer = Response((tensor("output", np.array([0.5, 1.0])),))
    elif understood.operation is Operation.METADATA:
        answer = _signature(dialect)
    reply = protocol.encode_response(answer, understood, LITERAL)
    error = protocol.encode_error(refusal(Reason.MODEL_ERROR, "why"), understood, question)
    return Sample(request, question, returned(reply, protocol), returned(error, protocol))


def _requests(dialect: Dialect) -> Iterator[Request]:
    inputs = small_tensors(dialect)
    for operation in Operation:
        for part in dialect.traits.models.metadata_parts if operation is Operation.METADATA else ("",):
            carried = inputs if operation in (Operation.INFER, Operation.STREAM) else ()
            request = Request(operation, "m", inputs=(*carried, *extras(operation)), part=part, translate=LITERAL)
            yield extended(ControlRequest, request, SETTINGS[operation]) if operation in SETTINGS else request


def small_tensors(dialect: Dialect) -> tuple[Tensor, ...]:
    """Return a small tensor for each kind of datatype (such as float or text) that the protocol supports."""
    shape: Shape = (2,) if dialect.traits.wire.points else (1, 2)
    kinds = {datatype.kind: datatype for datatype in sorted(dialect.traits.wire.datatypes)}
    return tuple(_tensor(f"t{at}", datatype, shape) for at, datatype in enumerate(kinds.values()))


def _tensor(name: str, datatype: Datatype, shape: Shape) -> Tensor:
    elements = ["a", ""] if datatype.kind is Kind.BYTES else [1, 0]
    return tensor(name, np.array(elements, datatype.dtype).reshape(shape), datatype)


def extras(operation: Operation) -> tuple[Tensor, ...]:
    """Return the inputs that a derivative takes in addition to the model's inputs."""
    return tuple(
        tensor(name, np.array([0]) if name in INDEX_TENSORS else np.array([0.5, 1.0]))
        for name in DERIVATIVES.get(operation, ())
    )


def _signature(dialect: Dialect) -> Signature:
    traits = dialect.traits
    specs = (TensorSpec("x", Datatype.FP64, (2,) if traits.wire.points else (-1, 2)),)
    claimed = frozenset({Operation.INFER, *(DERIVATIVES if traits.wire.derivatives else ())})
    return Signature(specs, specs, claimed, "m", ("1",), traits.models.platform)
