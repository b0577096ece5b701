"""`TensorForm` is the place of a tensor in the bodies of a form, with how the tensor is written, and its
declaration.
"""

from math import prod

from gateway.core.frozen import frozen
from gateway.core.types import Shape, TensorSpec
from gateway.protocols.json.templates import TensorPlace


@frozen
class TensorForm:
    """A tensor of a template.

    - `name`: The name that a decoded tensor gets; empty if the form declares no tensors.
    - `label`: Its name in errors, such as `input 'x'`.
    - `spec`: Its datatype and shape, if the form declares them.
    - `rows`: The number of row lists around it.
    - `has_shape`: True if the template also has a place for its shape (`|shape`).
    """

    place: TensorPlace
    name: str
    label: str
    spec: TensorSpec | None
    rows: int
    has_shape: bool = False


def fits(shape: Shape, wanted: Shape) -> bool:
    """Return True if `shape` matches `wanted`, in which -1 means any size."""
    if len(shape) != len(wanted):
        return False
    for own, each in zip(shape, wanted):  # noqa: B905, SIM110 - a generator and `strict` take three times as long
        if own != each and each != -1:
            return False
    return True


def filled(wanted: Shape, elements: int) -> Shape | None:
    """Return `wanted` with its -1 replaced by the size that results in this number of elements, or None if no size
    does."""
    free = wanted.count(-1)
    known = prod(each for each in wanted if each >= 0)
    if free == 0:
        return wanted if known == elements else None
    if free > 1 or not known or elements % known:
        return None
    return tuple(elements // known if each < 0 else each for each in wanted)
