"""What a model takes and gives: as a MetadataResponse in both directions, and as the JSON that Go's server answers GET
with."""

import json
from collections.abc import Iterator

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import Buffer, Signature, TensorSpec
from gateway.protocols.graphpipe import layouts, schema
from gateway.protocols.graphpipe.flatbuffer_reader import Flatbuffer, Table
from gateway.protocols.graphpipe.flatbuffer_writer import Writer
from gateway.protocols.graphpipe.tensors import read_type
from gateway.protocols.graphpipe.texts import decode, encode

_FIELDS = schema.MetadataResponse
_TENSOR = schema.IOMetadata

_CARRIED = {Datatype.BOOL: Datatype.UINT8, Datatype.BF16: Datatype.FP32}
"""As what the datatypes travel that GraphPipe has not."""


def read_metadata(body: Buffer) -> Signature:
    """The Signature of a MetadataResponse. Its `server` is the Signature's platform; its `version` is the server's, and
    so none of the model's.

    Raises:
        DecodeError: not a MetadataResponse.
    """
    table = Flatbuffer(body).root()
    return Signature(
        tuple(_read_specs(table, _FIELDS.INPUTS, "input")),
        tuple(_read_specs(table, _FIELDS.OUTPUTS, "output")),
        name=decode(table.string(_FIELDS.NAME), "the model's name"),
        platform=decode(table.string(_FIELDS.SERVER), "the server's name"),
    )


def _read_specs(table: Table, slot: int, role: str) -> Iterator[TensorSpec]:
    for at, each in enumerate(table.tables(slot)):
        name = decode(each.string(_TENSOR.NAME), f"the name of {role} {at}") or f"{role}{at}"
        what = f"{role} {name!r}"
        shape = each.shape(_TENSOR.SHAPE)
        if min(shape, default=0) < -1:
            raise DecodeError(f"{what}: shape {list(shape)} has a dimension below -1")
        yield TensorSpec(name, read_type(each.byte(_TENSOR.TYPE), what), shape)


def write_metadata(signature: Signature) -> bytes:
    """The MetadataResponse of a Signature. The real client needs every name and shape to be there."""
    writer = Writer()
    root, place = writer.table(layouts.METADATA_RESPONSE), layouts.METADATA_RESPONSE.place
    for slot, text in (
        (_FIELDS.NAME, signature.name),
        (_FIELDS.VERSION, _version(signature)),
        (_FIELDS.SERVER, signature.platform),
        (_FIELDS.DESCRIPTION, ""),
    ):
        writer.string(root + place[slot], encode(text, "the metadata"))
    _write_specs(writer, root + place[_FIELDS.INPUTS], signature.inputs)
    _write_specs(writer, root + place[_FIELDS.OUTPUTS], signature.outputs)
    return writer.gaps()[0]


def _write_specs(writer: Writer, at: int, specs: tuple[TensorSpec, ...]) -> None:
    place = layouts.IO_METADATA.place
    for link, spec in zip(writer.links(at, len(specs)), specs, strict=True):
        table = writer.table(layouts.IO_METADATA, link)
        writer.string(table + place[_TENSOR.NAME], encode(spec.name, "the name of a tensor"))
        writer.string(table + place[_TENSOR.DESCRIPTION], b"")
        writer.longs(table + place[_TENSOR.SHAPE], spec.shape)
        writer.byte(table + place[_TENSOR.TYPE], _type(spec))


def as_json(signature: Signature) -> bytes:
    """The same for people, with the names and the indentation of Go's server."""
    document = {
        "Name": signature.name,
        "Version": _version(signature),
        "Server": signature.platform,
        "Description": "",
        "Inputs": [_describe(spec) for spec in signature.inputs],
        "Outputs": [_describe(spec) for spec in signature.outputs],
    }
    return json.dumps(document, indent=4).encode()


def _describe(spec: TensorSpec) -> dict[str, object]:
    return {"Name": spec.name, "Description": "", "Shape": spec.shape, "Type": _type(spec)}


def _type(spec: TensorSpec) -> int:
    return schema.TYPE_NUMBERS[_CARRIED.get(spec.datatype, spec.datatype)]


def _version(signature: Signature) -> str:
    return ", ".join(signature.versions)
