"""`TensorForm`: where a tensor stands in the bodies of a form, how it is spelled there, and what is declared of it."""

from math import prod

from gateway.core.frozen import frozen
from gateway.core.types import Shape, TensorSpec
from gateway.protocols.json.templates import TensorPlace


@frozen
class TensorForm:
    """A tensor of a template.

    - `name`: that of the tensors that are read; empty if the form declares none.
    - `label`: what errors call it, such as `input 'x'`.
    - `spec`: its datatype and shape, if the form declares them.
    - `rows`: the number of lists of rows around it.
    - `has_shape`: its shape stands beside it (`|shape`).
    """

    place: TensorPlace
    name: str
    label: str
    spec: TensorSpec | None
    rows: int
    has_shape: bool = False


def fits(shape: Shape, wanted: Shape) -> bool:
    """Whether a tensor of `shape` is one of those that `wanted`, with -1 for any size, describes."""
    if len(shape) != len(wanted):
        return False
    for own, each in zip(shape, wanted):  # noqa: B905, SIM110 - a generator and `strict` take three times as long
        if own != each and each != -1:
            return False
    return True


def filled(wanted: Shape, elements: int) -> Shape | None:
    """`wanted` with a size in place of its -1, so that there are so many elements; None if none does."""
    free = wanted.count(-1)
    known = prod(each for each in wanted if each >= 0)
    if free == 0:
        return wanted if known == elements else None
    if free > 1 or not known or elements % known:
        return None
    return tuple(elements // known if each < 0 else each for each in wanted)
