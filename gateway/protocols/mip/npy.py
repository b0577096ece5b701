"""Examples as .npy files, which contain the datatype and the shape of the numbers."""

from collections.abc import Sequence
from math import prod

from gateway.core import npy
from gateway.core.errors import DecodeError
from gateway.core.messages import Buffer
from gateway.core.tensors import Tensor, can_exist


def decode(files: Sequence[Buffer], what: str) -> Tensor:
    """Return the arrays in `files`, which share one datatype and shape, as one Tensor with an added first dimension.

    Raises:
        DecodeError: a file is not a .npy file, does not contain numbers, is shorter or longer than its header states,
            or contains an array that differs from the others. The message contains `what`.
    """
    arrays = [npy.decode(file, f"{what} of example {at}") for at, file in enumerate(files)]
    first = arrays[0]
    for at, array in enumerate(arrays):
        if (array.datatype, array.shape) != (first.datatype, first.shape):
            raise DecodeError(f"{what} is {_shown(array)} in example {at} and {_shown(first)} in example 0")
    shape = (len(arrays), *first.shape)
    if not can_exist(shape, first.datatype):
        raise DecodeError(f"{what}: {len(arrays)} examples of {_shown(first)} span more than 2^63 bytes")
    data = first.data if len(arrays) == 1 else b"".join([array.data for array in arrays])
    return Tensor("", first.datatype, shape, data, content_type="npy")


def _shown(array: Tensor) -> str:
    return f"{array.datatype.dtype} {list(array.shape)}"


def encode(tensor: Tensor) -> list[list[Buffer]]:
    """Return a .npy file, in pieces, for each row of a tensor of numbers or BOOL. BF16, which the format does not
    support, is widened to FP32."""
    stored = npy.storable(tensor)
    rows, *shape = stored.shape
    header = npy.header(stored.datatype, tuple(shape))
    size = prod(shape) * stored.datatype.size
    view = memoryview(stored.data)
    return [[header, view[row * size : (row + 1) * size]] for row in range(rows)]
