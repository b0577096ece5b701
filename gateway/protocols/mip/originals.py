"""Examples in JSON whose text is passed on: those that say the tensor that the gateway would write, and nothing else.

The head of a packet, its counts and its TLVs are written anew: that takes no time, and a peer's may be wrong. Texts,
images and .npy files are the tensor's data itself. Numbers and strings in JSON keep their text, and with it their
digits: `1e3` and `0.10` are not written as `1000.0` and `0.1`. They are written anew if the tensor has changed, and if
the text has NaN, an infinity, escapes, an encoding other than UTF-8, a byte order mark, or blanks around it.
"""

from math import isfinite

from gateway.core.datatypes import Datatype
from gateway.core.original import Original
from gateway.core.types import Buffer, Tensor
from gateway.protocols.mip.json_examples import STRINGS
from gateway.protocols.mip.payload import Payload
from gateway.protocols.mip.schema import NAME, TlvType


def original_of(payload: Payload, tensors: tuple[Tensor, ...]) -> Original | None:
    """The Original of the tensors of `payload`, one for each of its columns, all examples in each."""
    if TlvType.JSON not in payload.types[: len(tensors)]:
        return None
    return Original(NAME, (), tensors, (), {}, evidence=payload)


def texts_of(original: Original, tensor: Tensor, at: int) -> list[Buffer] | None:
    """The examples of column `at` in JSON, if they say what the gateway would write for `tensor`, and nothing else."""
    if original.form != NAME or at >= len(original.tensors):
        return None
    read, payload = original.tensors[at], original.evidence
    if (
        read.data is not tensor.data
        or read.datatype is not tensor.datatype
        or read.shape != tensor.shape
        or read.content_type != tensor.content_type
        or payload.types[at] != TlvType.JSON
    ):
        return None
    examples: list[Buffer] = payload.data[at :: len(original.tensors)]
    return examples if _says_no_more(examples, read) else None


# --- whether texts say nothing else than their tensor ---
#
# This is asked of texts that were read as one rectangular array of numbers, booleans or strings.

_FIRST = b'[-0123456789"tf'
_LAST = b']0123456789"e'
_FEW = 32
"""The number of elements up to which Python finds out whether all are finite faster than numpy."""


def _says_no_more(examples: list[Buffer], tensor: Tensor) -> bool:
    if tensor.datatype is Datatype.FP64 and not _are_finite(tensor):
        return False
    if tensor.content_type == STRINGS and any(b"\\" in bytes(each) for each in examples):
        return False
    return all(each[0] in _FIRST and each[-1] in _LAST for each in examples)


def _are_finite(tensor: Tensor) -> bool:
    # NaN and infinities are read as numbers, but are none in JSON
    values = tensor.array
    if values.size <= _FEW:
        return isfinite(sum(values.reshape(-1).tolist()))
    return isfinite(values.min()) and isfinite(values.max())
