"""Defines the schema `protos/graphpipe/graphpipe.fbs` in Python: the type numbers, the fields of each table, and the
layouts of the tables that the gateway writes."""

from gateway.core.datatypes import Datatype
from gateway.core.messages import Headers
from gateway.protocols.graphpipe.flatbuffers import Layout

NAME = "graphpipe"

OCTETS = (b"content-type", b"application/octet-stream")
OCTETS_HEADERS = Headers((OCTETS,))
"""The headers of every flatbuffer message."""

NULL, STRING = 0, 12

TYPES = {
    1: Datatype.UINT8,
    2: Datatype.INT8,
    3: Datatype.UINT16,
    4: Datatype.INT16,
    5: Datatype.UINT32,
    6: Datatype.INT32,
    7: Datatype.UINT64,
    8: Datatype.INT64,
    9: Datatype.FP16,
    10: Datatype.FP32,
    11: Datatype.FP64,
    STRING: Datatype.BYTES,
}
"""The enum `Type`."""
TYPE_NUMBERS = {datatype: number for number, datatype in TYPES.items()}

INFER_REQUEST, METADATA_REQUEST = 1, 2
"""The members of the union `Req`."""

# The slots of the fields of each table. A slot is the offset in the vtable at which the field's position in the table
# is stored.


class Request:
    REQ_TYPE, REQ = 4, 6


class InferRequest:
    CONFIG, INPUT_NAMES, INPUT_TENSORS, OUTPUT_NAMES = 4, 6, 8, 10


class Tensor:
    TYPE, SHAPE, DATA, STRING_VAL = 4, 6, 8, 10


class InferResponse:
    OUTPUT_TENSORS, ERRORS = 4, 6


class Error:
    CODE, MESSAGE = 4, 6


class MetadataResponse:
    NAME, VERSION, SERVER, DESCRIPTION, INPUTS, OUTPUTS = 4, 6, 8, 10, 12, 14


class IOMetadata:
    NAME, DESCRIPTION, SHAPE, TYPE = 4, 6, 8, 10


# The layouts of the tables that the gateway writes: pairs of a field's slot and size in bytes, in their order in the
# table. They contain every field that a real client or server reads, even if it is empty.

REQUEST_LAYOUT = Layout((Request.REQ, 4), (Request.REQ_TYPE, 1))

METADATA_REQUEST_LAYOUT = Layout()

INFER_REQUEST_LAYOUT = Layout(
    (InferRequest.CONFIG, 4),
    (InferRequest.INPUT_NAMES, 4),
    (InferRequest.INPUT_TENSORS, 4),
    (InferRequest.OUTPUT_NAMES, 4),
)

NUMBERS_LAYOUT = Layout((Tensor.SHAPE, 4), (Tensor.DATA, 4), (Tensor.TYPE, 1))
STRINGS_LAYOUT = Layout((Tensor.SHAPE, 4), (Tensor.STRING_VAL, 4), (Tensor.TYPE, 1))
"""Tensor has two layouts, because "one of `data` and `string_val` MUST be empty"."""

OUTPUTS_LAYOUT = Layout((InferResponse.OUTPUT_TENSORS, 4))
ERRORS_LAYOUT = Layout((InferResponse.ERRORS, 4))
"""InferResponse has two layouts, because "the server MUST include data in only one of" its fields."""

ERROR_LAYOUT = Layout((Error.MESSAGE, 4), (Error.CODE, 8))

METADATA_RESPONSE_LAYOUT = Layout(
    (MetadataResponse.NAME, 4),
    (MetadataResponse.VERSION, 4),
    (MetadataResponse.SERVER, 4),
    (MetadataResponse.DESCRIPTION, 4),
    (MetadataResponse.INPUTS, 4),
    (MetadataResponse.OUTPUTS, 4),
)

IO_METADATA_LAYOUT = Layout(
    (IOMetadata.NAME, 4),
    (IOMetadata.DESCRIPTION, 4),
    (IOMetadata.SHAPE, 4),
    (IOMetadata.TYPE, 1),
)
