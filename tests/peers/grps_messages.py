"""GrpsMessage: documents to the bytes of `grps.protos.v1` and back (see protobuf.py); independent of the gateway.

encode({"model": "twice-1.0.0", "str_data": "x"})
decode(raw)["gtensors"]["tensors"][0]["flat_float32"]
"""

from __future__ import annotations

from tests.peers import protobuf
from tests.peers.protobuf import Document, Field, map_of

FLAGS = ("UNKNOWN", "SUCCESS", "FAILURE")
DTYPES = (
    "DT_INVALID", "DT_UINT8", "DT_INT8", "DT_INT16", "DT_INT32", "DT_INT64", "DT_FLOAT16", "DT_FLOAT32", "DT_FLOAT64",
    "DT_STRING",
)  # fmt: skip

STATUS = {1: Field("code", "int32"), 2: Field("msg", "string"), 3: Field("status", "enum", values=FLAGS)}
TENSOR = {
    1: Field("name", "string"),
    2: Field("dtype", "enum", values=DTYPES),
    3: Field("shape", "uint32", repeated=True),
    4: Field("flat_uint8", "uint32", repeated=True),
    5: Field("flat_int8", "int32", repeated=True),
    6: Field("flat_int16", "int32", repeated=True),
    7: Field("flat_int32", "int32", repeated=True),
    8: Field("flat_int64", "int64", repeated=True),
    9: Field("flat_float16", "float", repeated=True),
    10: Field("flat_float32", "float", repeated=True),
    11: Field("flat_float64", "double", repeated=True),
    12: Field("flat_string", "string", repeated=True),
}
TENSORS = {1: Field("tensors", schema=TENSOR, repeated=True)}
GMAP = {
    1: map_of("s_s", "string"),
    2: map_of("s_b", "bytes"),
    3: map_of("s_i32", "int32"),
    4: map_of("s_i64", "int64"),
    5: map_of("s_f", "float"),
    6: map_of("s_d", "double"),
}
MESSAGE = {
    1: Field("status", schema=STATUS),
    2: Field("model", "string"),
    3: Field("bin_data", "bytes", oneof=True),
    4: Field("str_data", "string", oneof=True),
    5: Field("gtensors", schema=TENSORS, oneof=True),
    6: Field("ndarray", schema={}, oneof=True),
    7: Field("gmap", schema=GMAP, oneof=True),
}
DATA = ("bin_data", "str_data", "gtensors", "ndarray", "gmap")
SUCCESS = {"code": 200, "msg": "OK", "status": "SUCCESS"}


def encode(document: Document) -> bytes:
    """Raises ValueError for names that the messages lack and values that do not fit."""
    return protobuf.encode(document, MESSAGE)


def decode(data: bytes) -> Document:
    """Raises ValueError for what is malformed."""
    return protobuf.decode(data, MESSAGE)


def failure(code: int, text: str) -> Document:
    return {"status": {"code": code, "msg": text, "status": "FAILURE"}}


def flat_name(dtype: str) -> str:
    """`DT_INT8` keeps its elements in `flat_int8`."""
    return f"flat_{dtype.removeprefix('DT_').lower()}"


def tensor(name: str, dtype: str, shape: list[int], values: list[object]) -> Document:
    return {"name": name, "dtype": dtype, "shape": shape, flat_name(dtype): values}
