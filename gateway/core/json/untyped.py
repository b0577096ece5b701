"""Read lists of numbers in protocols without datatypes. The literals determine the datatype."""

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json.arrays import nesting
from gateway.core.json.bulk_numbers import has_fraction, parse_raw
from gateway.core.tensors import Shape

UNTYPED = {"i": Datatype.INT64, "u": Datatype.UINT64, "f": Datatype.FP64, "b": Datatype.BOOL}
"""The datatypes of JSON arrays, by the kind of the numpy dtype."""
_FP64, _INT64, _UINT64 = Datatype.FP64, Datatype.INT64, Datatype.UINT64


def untyped_numbers(text: bytes) -> tuple[Datatype, bytes, Shape]:
    """Return the JSON list of numbers in `text` as raw data.

    The datatype is FP64 if a literal has a fraction or an exponent, UINT64 if a literal is above the range of INT64,
    otherwise INT64. The nesting gives the shape. `contents.array` gives the same result, but takes three times as long
    for a few numbers.

    Raises:
        DecodeError: the text is anything else or ragged, or its integers do not all fit in one type.
    """
    if not text.startswith(b"["):
        raise DecodeError
    if has_fraction(text):
        datatype, data = _FP64, parse_raw(text, "d")
    else:
        datatype, data = _INT64, parse_raw(text, "i")
        if data is None:
            datatype, data = _UINT64, parse_raw(text, "u")
    if data is None:
        raise DecodeError
    count = len(data) // 8
    return datatype, data, nesting(text, count) if text.rfind(b"[") else (count,)
