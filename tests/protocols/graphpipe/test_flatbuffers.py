"""GraphPipe's messages against the `flatbuffers` package: it reads what is written here, and what it writes is read."""

from typing import Any

import flatbuffers
from flatbuffers.number_types import Int64Flags, Uint8Flags, UOffsetTFlags
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Request, RequestedOutput, Response
from gateway.core.tensors import Tensor
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.schema import TYPE_NUMBERS
from tests.protocols.graphpipe.test_flatbuffer_writer import NAMES, TENSORS
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, asked, call, reply


class Table:
    """A table as generated code reads it, by slots of the vtable."""

    def __init__(self, octets: bytes, at: int) -> None:
        self._table = flatbuffers.table.Table(octets, at)

    def number(self, slot: int, flags: Any) -> int:
        at = self._table.Offset(slot)
        return int(self._table.Get(flags, self._table.Pos + at)) if at else 0

    def table(self, slot: int) -> "Table":
        return Table(self._table.Bytes, self._table.Indirect(self._table.Pos + self._table.Offset(slot)))

    def string(self, slot: int) -> bytes:
        at = self._table.Offset(slot)
        return bytes(self._table.String(self._table.Pos + at)) if at else b""

    def strings(self, slot: int) -> list[bytes]:
        """An offset of 0 is an empty string."""
        places = self._places(slot, 4)
        return [bytes(self._table.String(place)) if self._table.Get(UOffsetTFlags, place) else b"" for place in places]

    def tables(self, slot: int) -> list["Table"]:
        return [Table(self._table.Bytes, self._table.Indirect(place)) for place in self._places(slot, 4)]

    def numbers(self, slot: int, flags: Any) -> list[int]:
        return [int(self._table.Get(flags, place)) for place in self._places(slot, flags.bytewidth)]

    def _places(self, slot: int, width: int) -> range:
        at = self._table.Offset(slot)
        if not at:
            return range(0)
        start = self._table.Vector(at)
        return range(start, start + width * self._table.VectorLen(at), width)


def root(octets: bytes) -> Table:
    return Table(octets, flatbuffers.encode.Get(UOffsetTFlags.packer_type, octets, 0))


def fields(table: Table) -> tuple[int, list[int], bytes, list[bytes]]:
    return (
        table.number(schema.Tensor.TYPE, Uint8Flags),
        table.numbers(schema.Tensor.SHAPE, Int64Flags),
        bytes(table.numbers(schema.Tensor.DATA, Uint8Flags)),
        table.strings(schema.Tensor.STRING_VAL),
    )


def expected(tensor: Tensor) -> tuple[int, list[int], bytes, list[bytes]]:
    is_text = tensor.datatype is Datatype.BYTES
    return (
        TYPE_NUMBERS[tensor.datatype],
        list(tensor.shape),
        b"" if is_text else bytes(tensor.data),
        bytes_elements.unpack(tensor.data) if is_text else [],
    )


@settings(deadline=None)
@given(TENSORS, NAMES, st.text(max_size=20))
def test_the_package_reads_requests(inputs: tuple[Tensor, ...], outputs: list[str], config: str) -> None:
    wanted = tuple(map(RequestedOutput, outputs))
    parameters = {"config": config} if config else {}
    message = GRAPHPIPE.encode_request(Request(Operation.INFER, "m", "", None, inputs, wanted, parameters), TARGET)
    request = root(bytes(message.body))
    assert request.number(schema.Request.REQ_TYPE, Uint8Flags) == schema.INFER_REQUEST
    infer = request.table(schema.Request.REQ)
    assert infer.string(schema.InferRequest.CONFIG).decode() == config
    names = [each.name for each in inputs] if any(each.name for each in inputs) else []
    assert [name.decode() for name in infer.strings(schema.InferRequest.INPUT_NAMES)] == names
    assert [name.decode() for name in infer.strings(schema.InferRequest.OUTPUT_NAMES)] == outputs
    assert [fields(each) for each in infer.tables(schema.InferRequest.INPUT_TENSORS)] == list(map(expected, inputs))


@settings(deadline=None)
@given(TENSORS)
def test_the_package_reads_replies(outputs: tuple[Tensor, ...]) -> None:
    request = Request(Operation.INFER, origin=call(b""))
    message = GRAPHPIPE.encode_response(Response(outputs), request, DEFAULT_TRANSLATE)
    assert message.status == 200
    tensors = root(bytes(message.body)).tables(schema.InferResponse.OUTPUT_TENSORS)
    assert [fields(each) for each in tensors] == list(map(expected, outputs))


class Writer:
    """What generated code would write."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(0)

    def string(self, text: bytes) -> int:
        return int(self._builder.CreateString(text))

    def links(self, offsets: list[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def tensor(self, tensor: Tensor) -> int:
        builder, (number, shape, data, strings) = self._builder, expected(tensor)
        texts = self.links(list(map(self.string, strings))) if number == schema.STRING else 0
        octets = 0 if number == schema.STRING else int(builder.CreateByteVector(data))
        builder.StartVector(8, len(shape), 8)
        for dimension in reversed(shape):
            builder.PrependInt64(dimension)
        dimensions = int(builder.EndVector())
        return self.table(4, {1: dimensions, 2: octets, 3: texts}, {0: number})

    def table(self, slots: int, links: dict[int, int], octets: dict[int, int]) -> int:
        self._builder.StartObject(slots)
        for slot, offset in links.items():
            self._builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
        for slot, octet in octets.items():
            self._builder.PrependUint8Slot(slot, octet, 0)
        return int(self._builder.EndObject())

    def finish(self, offset: int) -> bytes:
        self._builder.Finish(offset)
        return bytes(self._builder.Output())


def request_of_the_package(inputs: tuple[Tensor, ...], outputs: list[str], config: str) -> bytes:
    """Names that are all empty are left out."""
    writer = Writer()
    names = [each.name for each in inputs] if any(each.name for each in inputs) else []
    infer = {
        0: writer.string(config.encode()),
        1: writer.links([writer.string(name.encode()) for name in names]),
        2: writer.links(list(map(writer.tensor, inputs))),
        3: writer.links([writer.string(name.encode()) for name in outputs]),
    }
    return writer.finish(writer.table(2, {1: writer.table(4, infer, {})}, {0: schema.INFER_REQUEST}))


def reply_of_the_package(outputs: tuple[Tensor, ...]) -> bytes:
    writer = Writer()
    return writer.finish(writer.table(2, {0: writer.links(list(map(writer.tensor, outputs)))}, {}))


@settings(deadline=None)
@given(TENSORS, NAMES, st.text(max_size=20))
def test_requests_of_the_package_are_read(inputs: tuple[Tensor, ...], outputs: list[str], config: str) -> None:
    named = tuple(replace(each, name=f"input{at}") for at, each in enumerate(inputs))
    octets = request_of_the_package(named, outputs, config)
    request = asked(octets)
    assert request.inputs == named
    assert [each.name for each in request.outputs] == outputs
    assert request.parameters == ({"config": config} if config else {})


@settings(deadline=None)
@given(TENSORS)
def test_replies_of_the_package_are_read(outputs: tuple[Tensor, ...]) -> None:
    octets = reply_of_the_package(outputs)
    response = GRAPHPIPE.decode_response(reply(octets), Request(Operation.INFER, origin=call(b"")), TARGET)
    assert isinstance(response, Response)
    assert response.outputs == tuple(replace(each, name="") for each in outputs)
