"""The mark of a tensor is its parameter `content_type`. It tells MLServer's clients and servers how the tensor's
elements are written.

| mark | elements |
|---|---|
| `base64` | BYTES that are base64 text, over REST and gRPC alike; a model gets the decoded bytes |
| `np`, `str` | numbers for numpy, strings: like in every other tensor |

A Tensor contains the decoded elements, and the mark as its `content_type`. V2 servers and clients therefore get the
base64 text with the mark, and other protocols get the elements without the mark. Triton and KServe do not support
marks, so base64 is ordinary text for them. The gateway treats marks that are not in this table (`pd`, `datetime`, a
model's own marks) as ordinary parameters.

Source: MLServer's `mlserver/codecs` (`base64.py`, `numpy.py`, `string.py`).
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from itertools import chain

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.requests import Translate
from gateway.core.tensors import ParameterValue, Tensor

MARK = "content_type"
BASE64 = "base64"
MARKS = frozenset({BASE64, "np", "str"})


def take_mark(parameters: dict[str, ParameterValue], datatype: Datatype) -> str:
    """Remove the mark of a tensor and return it.

    The result is empty if the tensor has no mark, or if this parameter has a value that is not a mark."""
    mark = parameters.get(MARK)
    if not isinstance(mark, str) or mark not in MARKS or (mark == BASE64 and datatype is not BYTES):
        return ""
    del parameters[MARK]
    return mark


def decoded(texts: Buffer, what: str) -> bytes:
    """Return the elements, decoded from base64.

    Raises DecodeError if an element is not base64. The message refers to the tensor as `what`."""
    try:
        return bytes_elements.pack(b64decode(each, validate=True) for each in _each(texts))
    except (Base64Error, ValueError) as error:
        raise DecodeError(f"{what}: an element is not base64, which its parameter content_type says it is") from error


def encoded(elements: Buffer) -> bytes:
    """Return the elements, encoded in base64."""
    return bytes_elements.pack(b64encode(each) for each in _each(elements))


def _each(elements: Buffer) -> Iterable[bytes]:
    return chain.from_iterable(bytes_elements.pieces(elements))


def as_written(tensors: Sequence[Tensor], translate: Translate) -> list[Tensor]:
    """Return tensors with their marks as parameters, for messages that carry bytes unchanged: gRPC and binary data.

    If the route sets `bytes: base64`, bytes are base64 only in JSON, so these messages contain the bytes without the
    mark."""
    return [_as_written(each, translate) if each.content_type in MARKS else each for each in tensors]


def _as_written(tensor: Tensor, translate: Translate) -> Tensor:
    mark, data = tensor.content_type, tensor.data
    if mark == BASE64:
        if translate.bytes == BASE64:
            return tensor
        data = encoded(data)
    return replace(tensor, data=data, parameters={**tensor.parameters, MARK: mark})
