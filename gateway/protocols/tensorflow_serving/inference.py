"""The messages of Classify, Regress and MultiInference, whose inputs are examples.

    | field of   | requests of Classify, Regress | responses | MultiInferenceRequest | InferenceResult |
    |------------|-------------------------------|-----------|-----------------------|-----------------|
    | model_spec | 1                             | 2         | in each task          | 1               |
    | input      | 2                             |           | 2                     |                 |
    | result     |                               | 1         |                       | 2 or 3          |
    | tasks      |                               |           | 1                     |                 |

A MultiInference with one task becomes a request for this task. Several tasks become one request with the parameter
TASKS, which only this protocol supports. In this case, the names of each task's outputs begin with its signature, as in
`SIGNATURE/scores`.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer, Message
from gateway.core.protobuf.fields import FieldCount, MessageAllowance, write_field
from gateway.core.protobuf.schema import parse
from gateway.core.protobuf.wire import LENGTH, fields
from gateway.core.tensors import ParameterValue, Tensor
from gateway.protocols.tensorflow_serving import schema
from gateway.protocols.tensorflow_serving.model_spec import Servable, read_any_spec, read_spec, write_spec
from gateway.protocols.tensorflow_serving.results import read_result, write_result
from gateway.protocols.tensorflow_serving.schema import METHOD_NAMES, SERVING_DEFAULT, Payload

TASKS = "MultiInference tasks"
"""The parameter with the tasks of a MultiInference: a JSON list of pairs (method, signature). Clients are unlikely to
use this name."""

_SPEC, _INPUT = 1, 2
_RESULT, _RESPONSE_SPEC = 1, 2
_RESULTS = {Payload.CLASSIFY: 2, Payload.REGRESS: 3}
_METHODS = {name: method for method, name in METHOD_NAMES.items()}


@frozen
class Task:
    """One task of a MultiInference: the method (`classify` or `regress`) and the signature, which is empty for the
    default signature."""

    method: str
    signature: str

    @property
    def prefix(self) -> str:
        """The prefix of the task's output names."""
        return f"{self.signature or SERVING_DEFAULT}/"


class ExampleMessage(Message, frozen=True):
    """A client's message with examples, with the data for its response and for a request to a backend that speaks this
    protocol.

    The fields are the method, the number of examples and, for MultiInference, the tasks."""

    called: str = ""
    examples: int = 0
    tasks: tuple[Task, ...] = ()
    joinable: ClassVar[bool] = False


# --- Requests ---


def read_request(body: Buffer) -> tuple[Buffer | None, Buffer]:
    """Return the ModelSpec and the Input of a ClassificationRequest or RegressionRequest. Raise DecodeError if the
    request is malformed."""
    return _joined(body, _SPEC), _joined(body, _INPUT) or b""


def write_request(servable: Servable, examples: bytes) -> tuple[bytes, ...]:
    """Return a ClassificationRequest or RegressionRequest in parts. Raise the same errors as `write_spec`."""
    return (write_field(_SPEC, write_spec(servable)) + write_field(_INPUT, examples),)


def _joined(body: Buffer, number: int) -> Buffer | None:
    """Return the value of a message field, joined from all occurrences as in protobuf, or None if the field is
    missing."""
    allowance = MessageAllowance(0)
    found = []
    for each in fields(body):
        allowance.spend(0)
        if each[:2] == (number, LENGTH):
            found.append(body[each.value : each.end])
    return (found[0] if len(found) == 1 else b"".join(found)) if found else None


def read_tasks(body: Buffer, limit: int) -> tuple[Servable, tuple[Task, ...], Buffer]:
    """Return the model and version of a MultiInferenceRequest, its tasks, and its Input. `limit` is `limits.message`.

    Raises:
        DecodeError: the request is malformed, has no tasks, or has tasks with an unknown method, different models, or
            the same signature.
    """
    count = FieldCount(limit)
    given = count.values(body, 1)
    if not given:
        raise DecodeError("tasks is empty; MultiInference has at least one task")
    models, tasks = set(), []
    for each in given:
        method = parse(schema.InferenceTask, each).method_name
        if method not in _METHODS:
            raise DecodeError(f"method_name is {method[:80]!r}; expected one of {', '.join(_METHODS)}")
        spec = read_spec(_joined(each, 1))
        models.add((spec.model, spec.version))
        tasks.append(Task(_METHODS[method], spec.signature))
    if len(models) > 1:
        raise DecodeError("the tasks of a MultiInference have different models or versions; expected the same in all")
    _check_signatures(tasks)
    [(model, version)] = models
    return Servable(model, version), tuple(tasks), _joined(body, _INPUT) or b""


def _check_signatures(tasks: Sequence[Task]) -> None:
    seen = set()
    for each in tasks:
        if each.prefix in seen:
            raise DecodeError(f"Duplicate evaluation of signature: {each.prefix[:-1]}")
        seen.add(each.prefix)


def write_tasks(servable: Servable, tasks: Sequence[Task], examples: bytes) -> tuple[bytes, ...]:
    """Return a MultiInferenceRequest in parts. Raise the same errors as `write_spec`."""
    written = []
    for task in tasks:
        spec = write_spec(Servable(servable.model, servable.version, task.signature))
        written.append(write_field(1, write_field(1, spec) + write_field(2, METHOD_NAMES[task.method].encode())))
    return (b"".join(written) + write_field(_INPUT, examples),)


def tasks_text(tasks: Sequence[Task]) -> str:
    """Return the value of the parameter TASKS."""
    return msgspec.json.encode([(each.method, each.signature) for each in tasks]).decode()


def tasks_of(text: ParameterValue) -> tuple[Task, ...]:
    """Return the tasks in the value of the parameter TASKS.

    Raise GatewayError (INVALID_ARGUMENT) for any other value."""
    try:
        pairs = msgspec.json.decode(str(text), type=list[tuple[str, str]])
        tasks = tuple(Task(method, signature) for method, signature in pairs if METHOD_NAMES[method])
        _check_signatures(tasks)
    except (msgspec.DecodeError, KeyError, DecodeError) as error:
        raise invalid_input(f"parameter {TASKS!r} is no list of pairs of a method and a signature: {error}") from error
    return tasks


# --- Responses ---


def write_response(method: str, servable: Servable, outputs: Mapping[str, Tensor], examples: int) -> bytes:
    """Return a ClassificationResponse or RegressionResponse. Raise the same errors as `write_result` and
    `write_spec`."""
    result = write_result(method, outputs, examples)
    return write_field(_RESULT, result) + write_field(_RESPONSE_SPEC, write_spec(servable))


def read_response(method: str, body: Buffer, limit: int) -> tuple[Servable, tuple[Tensor, ...]]:
    """Return the ModelSpec and the outputs of a ClassificationResponse or RegressionResponse. Raise DecodeError if the
    response is malformed."""
    result, spec = _joined(body, _RESULT), _joined(body, _RESPONSE_SPEC)
    if result is None:
        raise DecodeError("the response has no result")
    return read_any_spec(spec or b""), read_result(method, result, limit)


def write_results(
    tasks: Sequence[Task], servable: Servable, outputs: Mapping[str, Tensor], examples: int
) -> tuple[bytes, ...]:
    """Return a MultiInferenceResponse in parts.

    If there are several tasks, the names of `outputs` begin with the task's prefix.

    Raises:
        GatewayError: the errors of `write_result` and `write_spec`.
    """
    written = []
    for task in tasks:
        prefix = task.prefix if len(tasks) > 1 else ""
        own = {name.removeprefix(prefix): each for name, each in outputs.items() if name.startswith(prefix)}
        spec = write_spec(Servable(servable.model, servable.version, task.signature or SERVING_DEFAULT))
        result = write_field(_RESULTS[task.method], write_result(task.method, own, examples))
        written.append(write_field(1, write_field(1, spec) + result))
    return (b"".join(written),)


def read_results(tasks: Sequence[Task], body: Buffer, limit: int) -> tuple[Servable, tuple[Tensor, ...]]:
    """Return the ModelSpec and the outputs of the tasks, whose names begin with the task's prefix. Raise DecodeError
    if the response is malformed, or does not have one result for each task in their order."""
    results = FieldCount(limit).values(body, 1)
    if len(results) != len(tasks):
        raise DecodeError(f"{len(results)} results for {len(tasks)} tasks")
    found: list[Tensor] = []
    servable = Servable()
    for task, message in zip(tasks, results, strict=True):
        result = _joined(message, _RESULTS[task.method])
        if result is None:
            raise DecodeError(f"the result for signature {task.prefix[:-1]!r} is not a result of {task.method}")
        servable = read_any_spec(_joined(message, 1) or b"")
        found += read_result(task.method, result, limit, task.prefix)
    return servable, tuple(found)
