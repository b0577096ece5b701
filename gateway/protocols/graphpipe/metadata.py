"""Converts a Signature to and from a MetadataResponse, and to the JSON that the Go server returns for GET requests."""

import json
from collections.abc import Iterator

from gateway.core.datatypes import sent_as
from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.core.models import Signature, TensorSpec
from gateway.protocols.graphpipe import schema
from gateway.protocols.graphpipe.flatbuffers import Flatbuffer, Table, Writer
from gateway.protocols.graphpipe.strings import decode_text, encode_text
from gateway.protocols.graphpipe.tensors import decode_type

_MODEL = schema.MetadataResponse
_TENSOR = schema.IOMetadata


def decode_metadata(body: Buffer) -> Signature:
    """Return the Signature of a MetadataResponse.

    `server` becomes the Signature's platform. `version` is the version of the server software, not of the model.

    Raises:
        DecodeError: the body is not a MetadataResponse.
    """
    table = Flatbuffer(body).root()
    return Signature(
        tuple(_decode_specs(table, _MODEL.INPUTS, "input")),
        tuple(_decode_specs(table, _MODEL.OUTPUTS, "output")),
        name=decode_text(table.string(_MODEL.NAME), "the model's name"),
        platform=decode_text(table.string(_MODEL.SERVER), "the server's name"),
        description=decode_text(table.string(_MODEL.DESCRIPTION), "the model's description"),
        server_version=decode_text(table.string(_MODEL.VERSION), "the server's version"),
    )


def _decode_specs(table: Table, slot: int, role: str) -> Iterator[TensorSpec]:
    for at, each in enumerate(table.tables(slot)):
        name = decode_text(each.string(_TENSOR.NAME), f"the name of {role} {at}") or f"{role}{at}"
        what = f"{role} {name!r}"
        shape = each.shape(_TENSOR.SHAPE)
        if min(shape, default=0) < -1:
            raise DecodeError(f"{what}: shape {list(shape)} has a dimension below -1")
        description = decode_text(each.string(_TENSOR.DESCRIPTION), f"the description of {what}")
        yield TensorSpec(name, decode_type(each.byte(_TENSOR.TYPE), what), shape, description=description)


def encode_metadata(signature: Signature) -> bytes:
    """Return the MetadataResponse of a Signature.

    The message contains all fields, because the Python client needs every name and shape."""
    writer = Writer()
    root, offsets = writer.table(schema.METADATA_RESPONSE_LAYOUT), schema.METADATA_RESPONSE_LAYOUT.offsets
    for slot, text in (
        (_MODEL.NAME, signature.name),
        (_MODEL.VERSION, _version(signature)),
        (_MODEL.SERVER, signature.platform),
        (_MODEL.DESCRIPTION, signature.description),
    ):
        writer.string(root + offsets[slot], encode_text(text, "the metadata"))
    _encode_specs(writer, root + offsets[_MODEL.INPUTS], signature.inputs)
    _encode_specs(writer, root + offsets[_MODEL.OUTPUTS], signature.outputs)
    return writer.finish()[0]


def _encode_specs(writer: Writer, at: int, specs: tuple[TensorSpec, ...]) -> None:
    offsets = schema.IO_METADATA_LAYOUT.offsets
    for place, spec in zip(writer.vector_of_offsets(at, len(specs)), specs, strict=True):
        table = writer.table(schema.IO_METADATA_LAYOUT, place)
        writer.string(table + offsets[_TENSOR.NAME], encode_text(spec.name, "the name of a tensor"))
        writer.string(table + offsets[_TENSOR.DESCRIPTION], encode_text(spec.description, "the metadata"))
        writer.longs(table + offsets[_TENSOR.SHAPE], spec.shape)
        writer.byte(table + offsets[_TENSOR.TYPE], _type(spec))


def encode_json(signature: Signature) -> bytes:
    """Return the metadata as JSON for people, with the keys and the indentation of the Go server."""
    document = {
        "Name": signature.name,
        "Version": _version(signature),
        "Server": signature.platform,
        "Description": signature.description,
        "Inputs": [_spec_json(spec) for spec in signature.inputs],
        "Outputs": [_spec_json(spec) for spec in signature.outputs],
    }
    return json.dumps(document, indent=4).encode()


def _spec_json(spec: TensorSpec) -> dict[str, object]:
    return {"Name": spec.name, "Description": spec.description, "Shape": spec.shape, "Type": _type(spec)}


def _type(spec: TensorSpec) -> int:
    datatype = sent_as(spec.datatype, schema.TYPE_NUMBERS)
    assert datatype is not None  # every replacement datatype has a number in GraphPipe
    return schema.TYPE_NUMBERS[datatype]


def _version(signature: Signature) -> str:
    """Return the server's version if the server reported one, or else the model's versions."""
    return signature.server_version or ", ".join(signature.versions)
