"""The words of grps that its wire forms share."""

from enum import Enum

from gateway.core.datatypes import Datatype
from gateway.core.protocol import Models, Traits, Wire

REST, GRPC, BRPC = "grps-rest", "grps-grpc", "grps-brpc"

DATATYPES: dict[Datatype, tuple[int, str, str]] = {
    Datatype.UINT8: (1, "DT_UINT8", "flat_uint8"),
    Datatype.INT8: (2, "DT_INT8", "flat_int8"),
    Datatype.INT16: (3, "DT_INT16", "flat_int16"),
    Datatype.INT32: (4, "DT_INT32", "flat_int32"),
    Datatype.INT64: (5, "DT_INT64", "flat_int64"),
    Datatype.FP16: (6, "DT_FLOAT16", "flat_float16"),
    Datatype.FP32: (7, "DT_FLOAT32", "flat_float32"),
    Datatype.FP64: (8, "DT_FLOAT64", "flat_float64"),
    Datatype.BYTES: (9, "DT_STRING", "flat_string"),
}
"""Each datatype's number and name in `dtype`, and the member that holds its elements. The members' field numbers are
the datatypes' plus 3."""


class Kind(Enum):
    """The form in which a message carries its data: one member of `data_oneof`."""

    BIN_DATA = "bin_data"
    STR_DATA = "str_data"
    GTENSORS = "gtensors"
    NDARRAY = "ndarray"
    GMAP = "gmap"

    # Members are singletons: identity is equality.
    __hash__ = object.__hash__


BINARY_PAYLOADS = tuple(kind.value for kind in (Kind.GTENSORS, Kind.STR_DATA, Kind.BIN_DATA, Kind.GMAP))
PAYLOADS = (*BINARY_PAYLOADS, Kind.NDARRAY.value)
"""What tensors can travel as, the usual one first. "ndarray [..] only used when http json request": it has no elements
in protobuf."""

MAPS: dict[str, Datatype] = {
    "s_s": Datatype.BYTES,
    "s_b": Datatype.BYTES,
    "s_i32": Datatype.INT32,
    "s_i64": Datatype.INT64,
    "s_f": Datatype.FP32,
    "s_d": Datatype.FP64,
}
"""The maps of `gmap` and what their values are, in the order of their field numbers, from 1."""

UNKNOWN, SUCCESS, FAILURE = range(3)
"""`Status.StatusFlag`. The comment in the original file has other numbers; servers send these."""

TRAITS = Traits(
    wire=Wire(
        datatypes=frozenset(DATATYPES),
        unnamed=True,
        selects=False,
        parameters=False,
        # "ndarray [..] to represent gtensors, only used when http json request and one DT_FLOAT32 tensor"
        numbers=Datatype.FP32,
        nan="string",
    ),
    models=Models(
        named=False,
        may_be_named=True,
        versions=bool,
        joined_versions=True,
        ready_as_a_whole=True,
        # Real servers tell a model's YAML, in which nothing says what it takes.
        trusted_metadata=False,
        platform="grps",
    ),
)
