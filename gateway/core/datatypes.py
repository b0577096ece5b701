"""The datatypes of V2 (specification section "Tensor Data Types") and BF16, and the exact conversions between them.

Each codec needs only the members of Datatype and a table with its protocol's own datatype names or numbers.
CONTRIBUTING.md, "Adding a datatype", lists these tables. The Bridge converts tensors between datatypes
(`bridge.datatypes`), and `casting` casts numbers to a datatype.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import Any

import ml_dtypes
import numpy as np


class Kind(StrEnum):
    """The kind of a datatype's elements."""

    BOOL = "bool"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "float"
    BYTES = "bytes"


class Datatype(StrEnum):
    """The type of a tensor's elements. The members have the names that V2 uses.

    `size` is the number of bytes per element (0 for BYTES). `dtype` is the little-endian numpy type (object for
    BYTES)."""

    def __new__(cls, name: str, size: int, kind: Kind, dtype: Any) -> "Datatype":
        member = str.__new__(cls, name)
        member._value_ = name
        member.size = size
        member.kind = kind
        member.dtype = np.dtype(dtype)
        return member

    size: int
    kind: Kind
    dtype: "np.dtype[Any]"

    BOOL = "BOOL", 1, Kind.BOOL, "?"
    UINT8 = "UINT8", 1, Kind.UNSIGNED, "u1"
    UINT16 = "UINT16", 2, Kind.UNSIGNED, "<u2"
    UINT32 = "UINT32", 4, Kind.UNSIGNED, "<u4"
    UINT64 = "UINT64", 8, Kind.UNSIGNED, "<u8"
    INT8 = "INT8", 1, Kind.SIGNED, "i1"
    INT16 = "INT16", 2, Kind.SIGNED, "<i2"
    INT32 = "INT32", 4, Kind.SIGNED, "<i4"
    INT64 = "INT64", 8, Kind.SIGNED, "<i8"
    FP16 = "FP16", 2, Kind.FLOAT, "<f2"
    FP32 = "FP32", 4, Kind.FLOAT, "<f4"
    FP64 = "FP64", 8, Kind.FLOAT, "<f8"
    BF16 = "BF16", 2, Kind.FLOAT, ml_dtypes.bfloat16
    BYTES = "BYTES", 0, Kind.BYTES, object


BYTES, BOOL = Datatype.BYTES, Datatype.BOOL
"""The members that the code compares with the datatype of every tensor. The constants exist because a lookup in the
class takes ten times as long in Python 3.11."""

DATATYPES: dict[str, Datatype] = {datatype.value: datatype for datatype in Datatype}

_OTHER_NAMES = {
    "FLOAT": Datatype.FP32, "SINGLE": Datatype.FP32, "DOUBLE": Datatype.FP64, "HALF": Datatype.FP16,
    "FLOAT16": Datatype.FP16, "FLOAT32": Datatype.FP32, "FLOAT64": Datatype.FP64, "BFLOAT16": Datatype.BF16,
    "BOOLEAN": Datatype.BOOL, "INT": Datatype.INT64, "LONG": Datatype.INT64, "STRING": Datatype.BYTES,
    "STR": Datatype.BYTES, "TEXT": Datatype.BYTES, "OBJECT": Datatype.BYTES,
}  # fmt: skip
_PREFIX = re.compile(r"TYPE_|DT_|NP\.|NUMPY\.|TORCH\.|TF\.")
"""The prefixes of datatype names in Triton's model configuration, TensorFlow, and Python."""


def meant_by(name: str) -> Datatype | None:
    """Return the datatype with this name in numpy, PyTorch, TensorFlow or Triton's model configuration; None if the
    name is unknown. The case of the letters does not matter. Examples are `float64`, `torch.half`, `DT_STRING` and
    `TYPE_FP32`."""
    bare = _PREFIX.sub("", name.upper(), count=1)
    return DATATYPES.get(bare) or _OTHER_NAMES.get(bare)


TENSORFLOW_NAMES: dict[Datatype, str] = {
    **{each: f"DT_{each}" for each in Datatype},
    Datatype.FP16: "DT_HALF",
    Datatype.FP32: "DT_FLOAT",
    Datatype.FP64: "DT_DOUBLE",
    Datatype.BF16: "DT_BFLOAT16",
    Datatype.BYTES: "DT_STRING",
}
"""TensorFlow's name for each datatype (`tensorflow/core/framework/types.proto`).

The metadata formats of TensorFlow Serving and KServe V1 use these names."""

GATEWAY_DATATYPE = "gateway_datatype"
"""The tensor parameter that contains the original datatype. The gateway sets the parameter when the protocol lacks this
datatype and the gateway sends a wider one. Protocols without parameters cannot carry it."""

NUMBERS = frozenset(datatype for datatype in Datatype if datatype.kind not in (Kind.BOOL, Kind.BYTES))
"""The integer and float datatypes."""


def _float_bits(datatype: Datatype) -> tuple[int, int]:
    """Return the number of bits in a float datatype's exponent, and in its significand including the implicit bit."""
    about: Any = ml_dtypes.finfo(datatype.dtype)  # type: ignore[no-untyped-call]
    return about.nexp, about.nmant + 1


def _value_bits(datatype: Datatype) -> int:
    return datatype.size * 8 - (datatype.kind is Kind.SIGNED)


def _holds(wide: Datatype, narrow: Datatype) -> bool:
    """Return whether `wide` can represent every value of `narrow` exactly."""
    if wide is narrow:
        return True
    if Kind.BYTES in (wide.kind, narrow.kind) or Kind.BOOL in (wide.kind, narrow.kind):
        return False
    if wide.kind is Kind.FLOAT:
        exponent, significand = _float_bits(wide)
        if narrow.kind is Kind.FLOAT:
            narrow_exponent, narrow_significand = _float_bits(narrow)
            return narrow_exponent <= exponent and narrow_significand <= significand
        return _value_bits(narrow) <= significand
    if narrow.kind is Kind.FLOAT or (narrow.kind is Kind.SIGNED and wide.kind is Kind.UNSIGNED):
        return False
    return _value_bits(narrow) <= _value_bits(wide)


WIDENINGS: dict[Datatype, frozenset[Datatype]] = {
    narrow: frozenset(wide for wide in Datatype if _holds(wide, narrow)) for narrow in Datatype
}
"""For each datatype, the datatypes that represent all of its values exactly, including itself. INT64 and UINT64 do not
widen to FP64, because FP64 cannot represent all of their values."""


def sent_as(datatype: Datatype, carried: Collection[Datatype]) -> Datatype | None:
    """Return the datatype in which to send a tensor in a protocol that supports only the datatypes in `carried`. The
    result is the tensor's own datatype, or else the narrowest datatype that represents all of its values (UINT8 for
    BOOL). Between two datatypes of the same size, the function chooses the integer: for UINT16, it chooses INT32, not
    FP32. If the protocol supports no suitable datatype, the result is None."""
    if datatype in carried:
        return datatype
    wider = (Datatype.UINT8,) if datatype is Datatype.BOOL else WIDENINGS[datatype]
    fitting = [each for each in Datatype if each in wider and each in carried]
    return min(fitting, key=lambda each: (each.size, each.kind is Kind.FLOAT), default=None)
