"""Converts the results of Classify and Regress to the outputs of signatures for these methods, and back, for
`inference.py`.

| method   | outputs                                                                                    |
|----------|--------------------------------------------------------------------------------------------|
| Classify | `classes`, BYTES, and `scores`, FP32, both `[examples, classes]`; either can be missing    |
| Regress  | `outputs`, FP32 `[examples]` or `[examples, 1]`                                            |
"""

from collections.abc import Mapping
from struct import Struct

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, WIDENINGS, Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_output, refusal
from gateway.core.messages import Buffer
from gateway.core.protobuf.fields import FieldCount, write_field
from gateway.core.protobuf.wire import I32, LENGTH
from gateway.core.tensors import Tensor
from gateway.protocols.tensorflow_serving.schema import CLASSES, OUTPUTS, SCORES, Payload

FP32 = Datatype.FP32
_LABEL, _SCORE = 1, 2
_SCORE_KEY, _VALUE_KEY = bytes((_SCORE << 3 | I32,)), bytes((1 << 3 | I32,))
_LENGTH = Struct("<I")
_ZERO = bytes(4)
_FEW = 1000
"""Maximum number of values that the gateway writes one by one."""


# --- Writing ---


def write_result(method: str, outputs: Mapping[str, Tensor], examples: int) -> bytes:
    """Return the ClassificationResult or RegressionResult of a model's outputs for this number of examples.

    Outputs that the method cannot return are left out.

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
    raw = _floats(scores) if scores is not None else bytes(examples * count * FP32.size)
    if classes is None and len(raw) > _FEW * FP32.size:
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
    """Return one field 1 for each FP32 number.

    Each field is a message that contains the number in a field with the tag `key`. In a long list, zeros are written
    too, so all fields have the same length."""
    count = len(raw) // FP32.size
    if count <= _FEW:
        values = (raw[at : at + FP32.size] for at in range(0, len(raw), FP32.size))
        return b"".join([write_field(1, key + each if each != _ZERO else b"") for each in values])
    head = np.frombuffer(write_field(1, key + _ZERO)[: -FP32.size], np.uint8)
    fields = np.empty((count, len(head) + FP32.size), np.uint8)
    fields[:, : len(head)] = head
    fields[:, len(head) :] = np.frombuffer(raw, np.uint8).reshape(count, FP32.size)
    return fields.tobytes()


def _floats(tensor: Tensor) -> bytes:
    """Return the elements as FP32. Raise GatewayError if FP32 cannot represent all values of the tensor's datatype."""
    if tensor.datatype is FP32:
        return bytes(tensor.data)
    if FP32 not in WIDENINGS[tensor.datatype]:
        text = f"output {tensor.name!r} is {tensor.datatype}, and results of Classify and Regress are FP32"
        raise invalid_output(f"{text}; ask with Predict")
    return tensor.array.astype("<f4").tobytes()


def _lacks(outputs: Mapping[str, Tensor], wanted: str, method: str) -> GatewayError:
    names = ", ".join(map(repr, outputs)) or "none"
    text = f"the outputs are {names}, and {method} takes its result from {wanted}"
    return refusal(Reason.INVALID_OUTPUT, f"{text}; `translate.rename` on the route can rename outputs")


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(f"output {each.name!r} has shape {list(each.shape)}" for each in tensors)


# --- Reading ---


def read_result(method: str, message: Buffer, limit: int, prefix: str = "") -> tuple[Tensor, ...]:
    """Return the outputs in a ClassificationResult, `classes` and `scores`, or in a RegressionResult, `outputs`
    `[examples]`. `prefix` is prepended to their names. `limit` is the maximum memory of all fields together, in bytes.

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
    return Tensor(prefix + CLASSES, BYTES, shape, labels), Tensor(prefix + SCORES, FP32, shape, scores)


def _read_class(message: Buffer, count: FieldCount) -> tuple[bytes, bytes]:
    label, score = b"", _ZERO
    for number, wire_type, _, value, end in count.fields(message):
        if number == _LABEL and wire_type == LENGTH:
            label = bytes(message[value:end])
        elif number == _SCORE and wire_type == I32:
            score = bytes(message[value:end])
    return label, score


def _read_values(message: Buffer, prefix: str, count: FieldCount) -> tuple[Tensor, ...]:
    size, head = 3 + FP32.size, write_field(1, _VALUE_KEY + _ZERO)[:3]
    if len(message) > _FEW * size and not len(message) % size:
        rows = np.frombuffer(message, np.uint8).reshape(-1, size)
        if (rows[:, :3] == np.frombuffer(head, np.uint8)).all():
            return (Tensor(prefix + OUTPUTS, FP32, (len(rows),), rows[:, 3:].tobytes()),)
    found = [count.values(each, 1, I32) for each in count.values(message, 1)]
    values = b"".join([bytes(each[-1]) if each else _ZERO for each in found])
    return (Tensor(prefix + OUTPUTS, FP32, (len(found),), values),)
