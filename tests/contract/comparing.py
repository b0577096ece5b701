"""Whether a tensor came through, by what a protocol's Traits say of it."""

from gateway.core.datatypes import GATEWAY_DATATYPE, Datatype
from gateway.core.protocol import Traits
from gateway.core.types import Tensor

UNTYPED = frozenset({Datatype.INT64, Datatype.UINT64, Datatype.FP64})
"""What numbers in text are until a signature tells more."""


def check_all(found: tuple[Tensor, ...], sent: tuple[Tensor, ...], traits: Traits) -> None:
    assert len(found) == len(sent)
    for one, other in zip(found, sent, strict=True):
        check(one, other, traits, named=not traits.wire.unnamed)


def check(found: Tensor, sent: Tensor, traits: Traits, *, named: bool = True) -> None:
    """The same name and shape, and the same bits: of numbers in text, and of a datatype that the form lacks
    and is marked so, the same numbers."""
    assert found.name in ((sent.name,) if named else (sent.name, ""))
    if traits.wire.untyped and not sent.elements:
        assert not found.elements  # text has no place for the sizes that an empty list would have
        return
    if traits.wire.untyped and sent.datatype is Datatype.BYTES and found.shape == sent.shape[:1]:
        # a form for one text in each row has no place for the dimensions of 1 behind it
        assert found.elements == sent.elements
    elif not found.name and found.datatype is Datatype.BYTES and found.shape == (1,):
        assert sent.elements == 1  # a form for one element of bytes has no place for a name and a shape
    else:
        assert found.shape == sent.shape
    if found.untyped and found.datatype is not sent.datatype:
        assert traits.wire.untyped
        assert found.datatype in UNTYPED
        assert numbers(found) == numbers(sent)
    elif found.datatype is not sent.datatype:
        assert found.parameters[GATEWAY_DATATYPE] == sent.datatype
        assert numbers(found) == numbers(sent)
    else:
        assert found.datatype is sent.datatype
        assert bytes(found.data) == bytes(sent.data)


def numbers(tensor: Tensor) -> list[object]:
    """The elements as Python's own numbers, which compare exactly whatever their types; -0.0 is told from 0."""
    return [_signed_zero(each) for each in tensor.array.astype(object).reshape(-1).tolist()]


def _signed_zero(number: object) -> object:
    return str(number) if str(number) == "-0.0" else number
