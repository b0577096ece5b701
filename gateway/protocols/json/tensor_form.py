"""`TensorForm` describes a tensor in the bodies of a form: its placeholder, its spelling and its declaration. `places`
and `writing` pass it to `tensor_reading` and `tensor_writing`.
"""

from math import prod

from gateway.core.frozen import frozen
from gateway.core.models import TensorSpec
from gateway.core.tensors import Shape
from gateway.protocols.json.templates import TensorPlace


@frozen
class TensorForm:
    """A tensor of a template.

    - `name`: The name that a decoded tensor gets; empty if the form declares no tensors.
    - `label`: The tensor's name in errors, such as `input 'x'`.
    - `spec`: The tensor's datatype and shape, if the form declares them.
    - `rows`: The number of row lists around the tensor.
    - `has_shape`: True if the template also contains a placeholder for the shape (`|shape`).
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
    for own, each in zip(shape, wanted):  # noqa: B905, SIM110 - a generator and `strict` would take three times as long
        if own != each and each != -1:
            return False
    return True


def filled(wanted: Shape, elements: int) -> Shape | None:
    """Return `wanted` with its -1 replaced by the size that gives this number of elements, or None if no size does."""
    free = wanted.count(-1)
    known = prod(each for each in wanted if each >= 0)
    if free == 0:
        return wanted if known == elements else None
    if free > 1 or not known or elements % known:
        return None
    return tuple(elements // known if each < 0 else each for each in wanted)
