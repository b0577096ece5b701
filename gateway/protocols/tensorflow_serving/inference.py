"""Reads and writes the messages of Classify, Regress and MultiInference, whose inputs are examples.

    | field of   | requests of Classify, Regress | responses | MultiInferenceRequest | InferenceResult |
    |------------|-------------------------------|-----------|-----------------------|-----------------|
    | model_spec | 1                             | 2         | in each task          | 1               |
    | input      | 2                             |           | 2                     |                 |
    | result     |                               | 1         |                       | 2 or 3          |
    | tasks      |                               |           | 1                     |                 |

The results of Classify and Regress are the outputs of signatures for these methods:

    | method   | outputs                                                                                    |
    |----------|--------------------------------------------------------------------------------------------|
    | Classify | `classes`, BYTES, and `scores`, FP32, both `[examples, classes]`; either can be missing    |
    | Regress  | `outputs`, FP32 `[examples]` or `[examples, 1]`                                            |

A MultiInference with one task becomes a request for this task. Several tasks become one request with the parameter
TASKS, which only this protocol supports. The names of each task's outputs then begin with the task's signature, as in
`SIGNATURE/scores`.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import ClassVar

import msgspec
import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, WIDENINGS, Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, invalid_output, refusal
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer, Message
from gateway.core.protobuf.fields import FieldCount, MessageAllowance, write_field
from gateway.core.protobuf.schema import parse
from gateway.core.protobuf.wire import I32, LENGTH, fields
from gateway.core.tensors import ParameterValue, Tensor
from gateway.protocols.tensorflow_serving import schema
from gateway.protocols.tensorflow_serving.model_spec import Servable, read_any_spec, read_spec, write_spec
from gateway.protocols.tensorflow_serving.schema import CLASSES, METHOD_NAMES, OUTPUTS, SCORES, SERVING_DEFAULT, Payload

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
    """Return a ClassificationRequest or RegressionRequest in parts. Raise the errors of `write_spec`."""
    return (write_field(_SPEC, write_spec(servable)) + write_field(_INPUT, examples),)


def _joined(body: Buffer, number: int) -> Buffer | None:
    """Return the value of a message field, or None if the field is missing. As in protobuf, the value is joined from
    all occurrences."""
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
    """Return a MultiInferenceRequest in parts. Raise the errors of `write_spec`."""
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
        expected = "expected a list of pairs of a method and a signature"
        raise invalid_input(f"parameter {TASKS!r}: {expected}: {error}") from error
    return tasks


# --- Responses ---


def write_response(method: str, servable: Servable, outputs: Mapping[str, Tensor], examples: int) -> bytes:
    """Return a ClassificationResponse or RegressionResponse. Raise the errors of `_write_result` and `write_spec`."""
    result = _write_result(method, outputs, examples)
    return write_field(_RESULT, result) + write_field(_RESPONSE_SPEC, write_spec(servable))


def read_response(method: str, body: Buffer, limit: int) -> tuple[Servable, tuple[Tensor, ...]]:
    """Return the ModelSpec and the outputs of a ClassificationResponse or RegressionResponse. Raise DecodeError if the
    response is malformed."""
    result, spec = _joined(body, _RESULT), _joined(body, _RESPONSE_SPEC)
    if result is None:
        raise DecodeError("the response has no result")
    return read_any_spec(spec or b""), _read_result(method, result, limit)


def write_results(
    tasks: Sequence[Task], servable: Servable, outputs: Mapping[str, Tensor], examples: int
) -> tuple[bytes, ...]:
    """Return a MultiInferenceResponse in parts.

    If there are several tasks, the name of each output begins with the prefix of its task.

    Raises:
        GatewayError: the errors of `_write_result` and `write_spec`.
    """
    written = []
    for task in tasks:
        prefix = task.prefix if len(tasks) > 1 else ""
        own = {name.removeprefix(prefix): each for name, each in outputs.items() if name.startswith(prefix)}
        spec = write_spec(Servable(servable.model, servable.version, task.signature or SERVING_DEFAULT))
        result = write_field(_RESULTS[task.method], _write_result(task.method, own, examples))
        written.append(write_field(1, write_field(1, spec) + result))
    return (b"".join(written),)


def read_results(tasks: Sequence[Task], body: Buffer, limit: int) -> tuple[Servable, tuple[Tensor, ...]]:
    """Return the ModelSpec and the outputs of the tasks. Each output's name begins with its task's prefix. Raise
    DecodeError if the response is malformed, or does not have one result for each task, in the order of the tasks."""
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
        found += _read_result(task.method, result, limit, task.prefix)
    return servable, tuple(found)


# --- Results ---

_FP32 = Datatype.FP32
_LABEL, _SCORE = 1, 2
_SCORE_KEY, _VALUE_KEY = bytes((_SCORE << 3 | I32,)), bytes((1 << 3 | I32,))
_LENGTH = Struct("<I")
_ZERO = bytes(4)
_FEW = 1000
"""Maximum number of values that the gateway writes one by one."""


def _write_result(method: str, outputs: Mapping[str, Tensor], examples: int) -> bytes:
    """Return the ClassificationResult or RegressionResult of a model's outputs for this number of examples.

    The result omits outputs that the method cannot return.

    Raises:
        GatewayError: INTERNAL (invalid-output) if the outputs do not match the method.
    """
    write = _write_classes if method == Payload.CLASSIFY else _write_values
    return write(outputs, examples)


def _write_classes(outputs: Mapping[str, Tensor], examples: int) -> bytes:
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    given = [each for each in (classes, scores) if each is not None]
    if not given:
        raise _lacks(outputs, f"{CLASSES!r} or {SCORES!r}", "Classify")
    shape = given[0].shape
    if len(shape) != 2 or shape[0] != examples or any(each.shape != shape for each in given):
        raise invalid_output(f"{_shapes(given)}; Classify has a row of classes for each of {examples} examples")
    count = shape[1]
    raw = _floats(scores) if scores is not None else bytes(examples * count * _FP32.size)
    if classes is None and len(raw) > _FEW * _FP32.size:
        numbers = _write_numbers(raw, _SCORE_KEY)
        size = len(numbers) // examples
        return b"".join([write_field(1, numbers[at * size : (at + 1) * size]) for at in range(examples)])
    labels = _labels(classes) if classes is not None else [b""] * (examples * count)
    written = [_write_class(labels[at], raw[at * 4 : at * 4 + 4]) for at in range(examples * count)]
    return b"".join([write_field(1, b"".join(written[at * count : (at + 1) * count])) for at in range(examples)])


def _write_class(label: bytes, score: bytes) -> bytes:
    named = write_field(_LABEL, label) if label else b""
    return write_field(1, named + _SCORE_KEY + score if score != _ZERO else named)


def _labels(tensor: Tensor) -> list[bytes]:
    if tensor.datatype is not BYTES:
        raise invalid_output(f"output {tensor.name!r} is {tensor.datatype}; Classify has labels, which are BYTES")
    labels = bytes_elements.unpack(tensor.data)
    for at, label in enumerate(labels):
        try:
            label.decode()
        except UnicodeDecodeError as error:
            raise invalid_output(f"output {tensor.name!r}: element {at} is not UTF-8, which labels are") from error
    return labels


def _write_values(outputs: Mapping[str, Tensor], examples: int) -> bytes:
    tensor = outputs.get(OUTPUTS)
    if tensor is None:
        raise _lacks(outputs, repr(OUTPUTS), "Regress")
    if tensor.shape not in ((examples,), (examples, 1)):
        raise invalid_output(f"{_shapes([tensor])}; Regress has a number for each of {examples} examples")
    return _write_numbers(_floats(tensor), _VALUE_KEY)


def _write_numbers(raw: bytes, key: bytes) -> bytes:
    """Return a field with the number 1 for each FP32 number.

    Each field is a message that contains the number in a field with the tag `key`. In a long list, the function also
    writes zeros, which gives all fields the same length."""
    count = len(raw) // _FP32.size
    if count <= _FEW:
        values = (raw[at : at + _FP32.size] for at in range(0, len(raw), _FP32.size))
        return b"".join([write_field(1, key + each if each != _ZERO else b"") for each in values])
    head = np.frombuffer(write_field(1, key + _ZERO)[: -_FP32.size], np.uint8)
    fields = np.empty((count, len(head) + _FP32.size), np.uint8)
    fields[:, : len(head)] = head
    fields[:, len(head) :] = np.frombuffer(raw, np.uint8).reshape(count, _FP32.size)
    return fields.tobytes()


def _floats(tensor: Tensor) -> bytes:
    """Return the elements as FP32. Raise GatewayError if FP32 cannot represent all values of the tensor's datatype."""
    if tensor.datatype is _FP32:
        return bytes(tensor.data)
    if _FP32 not in WIDENINGS[tensor.datatype]:
        text = f"output {tensor.name!r} is {tensor.datatype}, and results of Classify and Regress are FP32"
        raise invalid_output(f"{text}; ask with Predict")
    return tensor.array.astype("<f4").tobytes()


def _lacks(outputs: Mapping[str, Tensor], wanted: str, method: str) -> GatewayError:
    names = ", ".join(map(repr, outputs)) or "none"
    text = f"the outputs are {names}, and {method} takes its result from {wanted}"
    return refusal(Reason.INVALID_OUTPUT, f"{text}; `translate.rename` on the route can rename outputs")


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(f"output {each.name!r} has shape {list(each.shape)}" for each in tensors)


def _read_result(method: str, message: Buffer, limit: int, prefix: str = "") -> tuple[Tensor, ...]:
    """Return the outputs in a ClassificationResult (`classes` and `scores`) or in a RegressionResult (`outputs`
    `[examples]`). Their names begin with `prefix`. `limit` is the maximum memory of all fields together, in bytes.

    Raises:
        DecodeError: the result is malformed, or the examples have different numbers of classes.
        GatewayError: RESOURCE_EXHAUSTED if the fields exceed the limit.
    """
    read = _read_classes if method == Payload.CLASSIFY else _read_values
    return read(message, prefix, FieldCount(limit))


def _read_classes(message: Buffer, prefix: str, count: FieldCount) -> tuple[Tensor, ...]:
    labels, scores = bytearray(), bytearray()
    counts = []
    for classifications in count.values(message, 1):
        classes = count.values(classifications, 1)
        counts.append(len(classes))
        for each in classes:
            label, score = _read_class(each, count)
            labels += _LENGTH.pack(len(label)) + label
            scores += score
    if len(set(counts)) > 1:
        raise DecodeError(f"the examples have {min(counts)} to {max(counts)} classes; expected as many for each")
    shape = (len(counts), counts[0] if counts else 0)
    return Tensor(prefix + CLASSES, BYTES, shape, labels), Tensor(prefix + SCORES, _FP32, shape, scores)


def _read_class(message: Buffer, count: FieldCount) -> tuple[bytes, bytes]:
    label, score = b"", _ZERO
    for number, wire_type, _, value, end in count.fields(message):
        if number == _LABEL and wire_type == LENGTH:
            label = bytes(message[value:end])
        elif number == _SCORE and wire_type == I32:
            score = bytes(message[value:end])
    return label, score


def _read_values(message: Buffer, prefix: str, count: FieldCount) -> tuple[Tensor, ...]:
    size, head = 3 + _FP32.size, write_field(1, _VALUE_KEY + _ZERO)[:3]
    if len(message) > _FEW * size and not len(message) % size:
        rows = np.frombuffer(message, np.uint8).reshape(-1, size)
        if (rows[:, :3] == np.frombuffer(head, np.uint8)).all():
            return (Tensor(prefix + OUTPUTS, _FP32, (len(rows),), rows[:, 3:].tobytes()),)
    found = [count.values(each, 1, I32) for each in count.values(message, 1)]
    values = b"".join([bytes(each[-1]) if each else _ZERO for each in found])
    return (Tensor(prefix + OUTPUTS, _FP32, (len(found),), values),)
