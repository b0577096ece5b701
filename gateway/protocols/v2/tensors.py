"""Checks the datatypes, shapes and raw bytes of tensors, for REST and gRPC, and handles MLServer's marks. The checks
reject tensors that would crash a model server.

The mark of a tensor is its parameter `content_type`. It defines how MLServer's clients and servers write the tensor's
elements.

| mark | elements |
|---|---|
| `base64` | BYTES that are base64 text, over both REST and gRPC; a model receives the decoded bytes |
| `np`, `str` | numbers for numpy, strings: the mark changes nothing, and the gateway only forwards it |

A Tensor contains the decoded elements, and the mark as its `content_type`. V2 servers and clients therefore receive the
base64 text with the mark, and other protocols receive the elements without the mark. Triton and KServe do not support
marks, so base64 is ordinary text for them. The gateway treats marks that are not in this table (`pd`, `datetime`, a
model's own marks) as ordinary parameters.

Source: MLServer's `mlserver/codecs` (`base64.py`, `numpy.py`, `string.py`).
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from itertools import chain
from math import prod
from reprlib import repr as shown

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import BOOL, BYTES, DATATYPES, GATEWAY_DATATYPE, Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.requests import Translate
from gateway.core.tensors import MAX_RANK, ParameterValue, Shape, Tensor
from gateway.core.tensors import tensor as make_tensor

# Triton 2.51 multiplies dimensions without an overflow check, so the shape [1, 2^62] with three elements crashes it.
MAX_BYTES = 2**63 - 1


def read_datatype(given: object, what: str) -> Datatype:
    """Return the Datatype with the name `given`, which must be in uppercase, as in the specification. Raise DecodeError
    for any other name."""
    datatype = DATATYPES.get(given) if isinstance(given, str) else None
    if datatype is None:
        raise DecodeError(f"{what}: datatype must be one of {', '.join(DATATYPES)}, not {shown(given)}")
    return datatype


def read_shape(given: object, datatype: Datatype, what: str) -> Shape:
    """Return the shape in `given`, which must consist of at most 32 integers of at least 0.

    The product of the nonzero integers must correspond to less than 2^63 bytes.

    Raises:
        DecodeError: `given` is anything else.
    """
    if not isinstance(given, list) or len(given) > MAX_RANK:
        raise DecodeError(f"{what}: shape must be a list of at most {MAX_RANK} integers, not {shown(given)}")
    size = datatype.size or 1
    for dimension in given:
        if type(dimension) is not int or dimension < 0:
            raise DecodeError(f"{what}: each dimension must be an integer of at least 0, not {shown(dimension)}")
        size *= dimension or 1
    if size > MAX_BYTES:
        raise DecodeError(f"{what}: shape {shown(given)} spans more than 2^63 bytes")
    return tuple(given)


def read_dimensions(given: object, what: str) -> Shape:
    """Return the shape in a model's metadata, in which -1 is a dimension of any size. Raise DecodeError for anything
    else."""
    if not isinstance(given, list) or any(type(each) is not int or each < -1 for each in given):
        raise DecodeError(f"{what}: shape must be a list of integers of at least -1, not {shown(given)}")
    return tuple(given)


def check_size(shape: Shape, datatype: Datatype, limit: int, what: str) -> None:
    """Check, before a tensor is converted to raw form, that it will take at most `limit` bytes in this form.

    Data can be smaller in the message than in raw form. `0,` in JSON takes two bytes, and a zero in protobuf takes one
    byte, but as raw FP64, both take eight bytes. A BYTES element counts as four bytes, which are the size of its length
    prefix.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED if the tensor is larger.
    """
    size = prod(shape) * (datatype.size or 4)
    if size > limit:
        raise refusal(Reason.TOO_LARGE, f"{what} takes {size} bytes, limits.message is {limit}")


def check_raw(data: Buffer, datatype: Datatype, shape: Shape, what: str) -> None:
    """Check that `data` is the raw form of a `datatype` tensor of this shape.

    Raises:
        DecodeError: the number of bytes or elements is wrong, a BYTES element is truncated, or a BOOL byte is neither 0
            nor 1.
    """
    if datatype is BYTES:
        return _check_elements(data, shape, what)
    expected = prod(shape) * datatype.size
    if len(data) != expected:
        raise DecodeError(f"{what}: {len(data)} bytes, but {datatype} of shape {list(shape)} takes {expected}")
    if datatype is BOOL and expected:
        _check_booleans(data, what)
    return None


def _check_elements(data: Buffer, shape: Shape, what: str) -> None:
    try:
        found = bytes_elements.count(data)
    except DecodeError as error:
        raise DecodeError(f"{what}: {error}") from error
    if found != prod(shape):
        raise DecodeError(f"{what}: {found} BYTES elements, but shape {list(shape)} takes {prod(shape)}")


def _check_booleans(data: Buffer, what: str) -> None:
    octets = np.frombuffer(data, np.uint8)
    # Triton reads 2 as true; other servers crash or forward the byte
    if octets.max() > 1:
        at = int(np.argmax(octets > 1))
        raise DecodeError(f"{what}: element {at} of BOOL is the byte {octets[at]}, expected 0 or 1")


WIDER = {Datatype.FP16: Datatype.FP32, Datatype.BF16: Datatype.FP32}
"""A map from each datatype that a protocol or server might not support to a wider datatype that represents all its
values."""


def widen(tensor: Tensor, lacking: frozenset[Datatype]) -> Tensor:
    """Return the tensor in a wider datatype if the receiver does not support the tensor's own datatype, which is then
    in `lacking`.

    The parameter `gateway_datatype` of a widened tensor contains the original datatype."""
    if tensor.datatype not in lacking:
        return tensor
    wide = make_tensor(tensor.name, tensor.array, WIDER[tensor.datatype])
    parameters = {**tensor.parameters, GATEWAY_DATATYPE: tensor.datatype.value}
    return replace(wide, content_type=tensor.content_type, parameters=parameters)


# --- Marks ---

MARK = "content_type"
BASE64 = "base64"
MARKS = frozenset({BASE64, "np", "str"})


def take_mark(parameters: dict[str, ParameterValue], datatype: Datatype) -> str:
    """Remove the mark of a tensor and return it.

    The result is empty if the tensor has no mark, or if the value of this parameter is not a mark."""
    mark = parameters.get(MARK)
    if not isinstance(mark, str) or mark not in MARKS or (mark == BASE64 and datatype is not BYTES):
        return ""
    del parameters[MARK]
    return mark


def decoded_base64(texts: Buffer, what: str) -> bytes:
    """Return the elements, decoded from base64.

    Raise DecodeError if an element is not base64. The message refers to the tensor as `what`."""
    try:
        return bytes_elements.pack(b64decode(each, validate=True) for each in _each(texts))
    except (Base64Error, ValueError) as error:
        raise DecodeError(f"{what}: an element is not base64, which its parameter content_type says it is") from error


def _encoded(elements: Buffer) -> bytes:
    """Return the elements, encoded in base64."""
    return bytes_elements.pack(b64encode(each) for each in _each(elements))


def _each(elements: Buffer) -> Iterable[bytes]:
    return chain.from_iterable(bytes_elements.pieces(elements))


def as_written(tensors: Sequence[Tensor], translate: Translate) -> list[Tensor]:
    """Return tensors with their marks as parameters, for messages that contain bytes unchanged: gRPC and binary data.
    The function encodes tensors with the mark `base64` again, because V2 servers and clients expect the text with its
    mark.

    If the route sets `bytes: base64`, bytes are base64 only in JSON, so these messages contain the bytes without the
    mark."""
    return [_as_written(each, translate) if each.content_type in MARKS else each for each in tensors]


def _as_written(tensor: Tensor, translate: Translate) -> Tensor:
    mark, data = tensor.content_type, tensor.data
    if mark == BASE64:
        if translate.bytes == BASE64:
            return tensor
        data = _encoded(data)
    return replace(tensor, data=data, parameters={**tensor.parameters, MARK: mark})
