"""BYTES as text: `flat_string`, `str_data` and `s_s` are strings of proto3, "UTF-8 encoded [..] text"."""

from base64 import b64encode
from itertools import chain

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import GatewayError, invalid_input
from gateway.core.frozen import replace
from gateway.core.types import Tensor

_BASE64 = "base64"


def is_text(tensor: Tensor) -> bool:
    """Whether every element of a BYTES tensor is UTF-8."""
    data = tensor.data
    # ASCII with its lengths is ASCII without them: one look at the whole, for short elements
    if (data if isinstance(data, bytes | bytearray) else bytes(data)).isascii():
        return True
    return all(_is_utf8(element) for elements in bytes_elements.pieces(data) for element in elements)


def _is_utf8(element: bytes) -> bool:
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_texts(tensors: tuple[Tensor, ...], form: str, role: str) -> tuple[Tensor, ...]:
    """`as_text` of each, which an error calls by its name, or else by its position, after `role` (input, output)."""
    if Datatype.BYTES not in [each.datatype for each in tensors]:
        return tensors
    return tuple([as_text(each, form, f"{role} {each.name or at!r}") for at, each in enumerate(tensors)])


def as_text(tensor: Tensor, form: str, what: str) -> Tensor:
    """`tensor` with elements that are text. `form` is `translate.bytes`: with `base64` every element is.

    The wire has no place for a mark, so that whoever reads base64 must know of it.

    Raises:
        GatewayError: INVALID_ARGUMENT naming `what`, an element is not UTF-8.
    """
    if tensor.datatype is not Datatype.BYTES:
        return tensor
    if form == _BASE64:
        return replace(
            tensor, data=bytes_elements.pack(map(b64encode, chain.from_iterable(bytes_elements.pieces(tensor.data))))
        )
    if not is_text(tensor):
        raise not_text(what)
    return tensor


def not_text(what: str) -> GatewayError:
    """What to raise for bytes where a string must stand."""
    return invalid_input(
        f"{what} holds bytes that are not UTF-8, which strings of grps cannot carry: set translate.bytes: base64 on "
        "the route, or let one element alone travel as bin_data (translate.payload)"
    )
