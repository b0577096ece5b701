"""Converts BYTES to strings. `flat_string`, `str_data` and `s_s` are proto3 strings, which must be UTF-8."""

from base64 import b64encode
from itertools import chain

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import invalid_input
from gateway.core.frozen import replace
from gateway.core.messages import STEP, steps
from gateway.core.tensors import Tensor

_BASE64 = "base64"


def is_utf8(tensor: Tensor) -> bool:
    """Return whether every element of a BYTES tensor is UTF-8."""
    # For short ASCII elements, a check of the buffer is enough, because their length prefixes are also ASCII.
    if all(bytes(step).isascii() for step in steps(tensor.data)):
        return True
    return all(_is_utf8(element) for elements in bytes_elements.pieces(tensor.data) for element in elements)


def _is_utf8(element: bytes) -> bool:
    try:
        if len(element) <= STEP:
            element.decode()
        else:
            for _ in bytes_elements.texts(element):
                pass
    except UnicodeDecodeError:
        return False
    return True


def as_strings(tensors: tuple[Tensor, ...], form: str, role: str) -> tuple[Tensor, ...]:
    """Apply `as_string` to each tensor.

    Error messages identify a tensor by `role` (input, output) and its name, or its position if it has no name."""
    if Datatype.BYTES not in [each.datatype for each in tensors]:
        return tensors
    return tuple([as_string(each, form, f"{role} {each.name or at!r}") for at, each in enumerate(tensors)])


def as_string(tensor: Tensor, form: str, what: str) -> Tensor:
    """Return a BYTES tensor with UTF-8 elements. Return any other tensor unchanged.

    If `form` (`translate.bytes`) is `base64`, the function encodes every element. The message does not mark the
    elements as base64.

    Raises:
        GatewayError: INVALID_ARGUMENT if an element is not UTF-8. The message contains `what`.
    """
    if tensor.datatype is not Datatype.BYTES:
        return tensor
    if form == _BASE64:
        return replace(
            tensor, data=bytes_elements.pack(map(b64encode, chain.from_iterable(bytes_elements.pieces(tensor.data))))
        )
    if not is_utf8(tensor):
        raise invalid_input(
            f"{what} holds bytes that are not UTF-8, which strings of grps cannot carry: set translate.bytes: base64 "
            "on the route, or let one element alone travel as bin_data (translate.payload)"
        )
    return tensor
