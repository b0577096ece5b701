"""`protos/graphpipe/graphpipe.fbs` as numbers: the types, and where in its vtable each table has its fields."""

from gateway.core.datatypes import Datatype

NAME = "graphpipe"

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
TYPE_NUMBERS = {datatype: number for number, datatype in TYPES.items()}

INFER_REQUEST, METADATA_REQUEST = 1, 2
"""The members of the union `Req`."""


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
