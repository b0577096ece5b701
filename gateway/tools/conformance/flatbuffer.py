"""GraphPipe messages for the checks, built with Google's flatbuffers package instead of the gateway's own codec."""

from collections.abc import Sequence
from typing import Any

import flatbuffers
from flatbuffers import number_types
from flatbuffers.table import Table

from gateway.core.frozen import frozen
from gateway.tools.conformance.inputs import Sample, Values, as_bytes, unpacked

TYPES = {
    "UINT8": 1, "INT8": 2, "UINT16": 3, "INT16": 4, "UINT32": 5, "INT32": 6, "UINT64": 7, "INT64": 8,
    "FP16": 9, "FP32": 10, "FP64": 11, "BYTES": 12,
}  # fmt: skip
DATATYPES = {number: name for name, number in TYPES.items()}
INFER, METADATA = 1, 2


@frozen
class Described:
    """An IOMetadata. `shape` is None if absent."""

    name: bytes | None
    type: int
    shape: tuple[int, ...] | None


@frozen
class ModelDescription:
    """A MetadataResponse."""

    inputs: tuple[Described, ...]
    outputs: tuple[Described, ...]


@frozen
class Output:
    """A Tensor in a response. `both` is True if the Tensor contains both data and strings."""

    type: int
    shape: tuple[int, ...]
    values: Values
    both: bool


@frozen
class Inferred:
    """An InferResponse."""

    tensors: tuple[Output, ...]
    errors: tuple[tuple[int, bytes], ...]


def metadata_request() -> bytes:
    """Return a Request for metadata."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(0)
    return _request(builder, METADATA, builder.EndObject())


def infer_request(
    tensors: Sequence[Sample], inputs: Sequence[str] = (), outputs: Sequence[str] = (), kind: int = INFER
) -> bytes:
    """Return a Request for an inference. `kind` is the number of the union member, for requests with unknown
    members."""
    builder = flatbuffers.Builder(1024)
    config = builder.CreateString("")
    names = _offsets(builder, [builder.CreateString(each) for each in inputs])
    wanted = _offsets(builder, [builder.CreateString(each) for each in outputs])
    written = _offsets(builder, [_tensor(builder, each) for each in tensors])
    builder.StartObject(4)
    for slot, offset in enumerate((config, names, written, wanted)):
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return _request(builder, kind, builder.EndObject())


def read_metadata(body: bytes) -> ModelDescription:
    """Return the metadata. Raise ValueError, IndexError, TypeError or struct.error if the body is not a
    MetadataResponse."""
    root = _root(body)
    return ModelDescription(tuple(map(_described, _tables(root, 12))), tuple(map(_described, _tables(root, 14))))


def read_inferred(body: bytes) -> Inferred:
    """Return the inference. Raise ValueError, IndexError, TypeError or struct.error if the body is not an
    InferResponse."""
    root = _root(body)
    errors = tuple((_scalar(each, 4, number_types.Int64Flags), _string(each, 6) or b"") for each in _tables(root, 6))
    return Inferred(tuple(map(_output, _tables(root, 4))), errors)


def _request(builder: Any, kind: int, member: int) -> bytes:
    builder.StartObject(2)
    builder.PrependUint8Slot(0, kind, 0)
    builder.PrependUOffsetTRelativeSlot(1, member, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def _tensor(builder: Any, tensor: Sample) -> int:
    is_text = tensor.datatype == "BYTES"
    texts = _offsets(builder, [builder.CreateString(as_bytes(each)) for each in tensor.values]) if is_text else 0
    data = 0 if is_text else builder.CreateByteVector(tensor.raw)
    builder.StartVector(8, len(tensor.shape), 8)
    for size in reversed(tensor.shape):
        builder.PrependInt64(size)
    shape = builder.EndVector()
    builder.StartObject(4)
    builder.PrependUint8Slot(0, TYPES[tensor.datatype], 0)
    builder.PrependUOffsetTRelativeSlot(1, shape, 0)
    builder.PrependUOffsetTRelativeSlot(2, data, 0)
    builder.PrependUOffsetTRelativeSlot(3, texts, 0)
    written: int = builder.EndObject()
    return written


def _offsets(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for each in reversed(offsets):
        builder.PrependUOffsetTRelative(each)
    written: int = builder.EndVector()
    return written


def _root(body: bytes) -> Any:
    if len(body) < 8:
        raise ValueError(f"{len(body)} bytes are no flatbuffer")
    return Table(body, int.from_bytes(body[:4], "little"))


def _described(table: Any) -> Described:
    name = _string(table, 4)
    shape = tuple(_longs(table, 8)) if table.Offset(8) else None
    return Described(name, _scalar(table, 10, number_types.Uint8Flags), shape)


def _output(table: Any) -> Output:
    kind, shape = _scalar(table, 4, number_types.Uint8Flags), tuple(_longs(table, 6))
    data, offset = b"", table.Offset(8)
    if offset:
        start = table.Vector(offset)
        data = bytes(table.Bytes[start : start + table.VectorLen(offset)])
    texts = [_text(table, at) for at in _elements(table, 10)]
    if kind not in DATATYPES:
        raise ValueError(f"an output has the type {kind}")
    values = texts if DATATYPES[kind] == "BYTES" else unpacked(DATATYPES[kind], data)
    return Output(kind, shape, values, bool(data) and bool(texts))


def _tables(table: Any, slot: int) -> list[Any]:
    return [Table(table.Bytes, table.Indirect(at)) for at in _elements(table, slot)]


def _elements(table: Any, slot: int) -> list[int]:
    """Return the positions of the offsets in a vector."""
    offset = table.Offset(slot)
    if not offset:
        return []
    count, start = table.VectorLen(offset), table.Vector(offset)
    if start + 4 * count > len(table.Bytes):
        raise ValueError(f"a vector of {count} elements ends beyond the message")
    return [start + 4 * at for at in range(count)]


def _longs(table: Any, slot: int) -> list[int]:
    offset = table.Offset(slot)
    if not offset:
        return []
    count, start = table.VectorLen(offset), table.Vector(offset)
    if start + 8 * count > len(table.Bytes):
        raise ValueError(f"a shape of {count} dimensions ends beyond the message")
    return [table.Get(number_types.Int64Flags, start + 8 * at) for at in range(count)]


def _string(table: Any, slot: int) -> bytes | None:
    offset = table.Offset(slot)
    return _text(table, table.Pos + offset) if offset else None


def _text(table: Any, at: int) -> bytes:
    start = at + table.Get(number_types.UOffsetTFlags, at)
    size = table.Get(number_types.UOffsetTFlags, start)
    if start + 4 + size > len(table.Bytes):
        raise ValueError(f"a string of {size} bytes ends beyond the message")
    return bytes(table.Bytes[start + 4 : start + 4 + size])


def _scalar(table: Any, slot: int, flags: Any) -> int:
    offset = table.Offset(slot)
    return int(table.Get(flags, table.Pos + offset)) if offset else 0
