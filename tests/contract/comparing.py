"""Checks whether a received tensor is the tensor that was sent, as far as the protocol's Traits promise it."""

from gateway.core.datatypes import GATEWAY_DATATYPE, Datatype
from gateway.core.protocol import Traits
from gateway.core.tensors import Tensor

UNTYPED = frozenset({Datatype.INT64, Datatype.UINT64, Datatype.FP64})
"""The datatypes that JSON numbers get without a signature."""


def check_all(found: tuple[Tensor, ...], sent: tuple[Tensor, ...], traits: Traits) -> None:
    assert len(found) == len(sent)
    for one, other in zip(found, sent, strict=True):
        check(one, other, traits, named=not traits.wire.unnamed)


def check(found: Tensor, sent: Tensor, traits: Traits, *, named: bool = True) -> None:
    """Check that name, shape and bits are the same. For numbers in text, and for a datatype that the protocol lacks and
    marks with a parameter, check only the numbers."""
    assert found.name in ((sent.name,) if named else (sent.name, ""))
    if traits.wire.untyped and not sent.elements:
        assert not found.elements  # text cannot represent the shape of an empty list
        return
    if traits.wire.untyped and sent.datatype is Datatype.BYTES and found.shape == sent.shape[:1]:
        # a form with one text per row cannot represent further dimensions of 1
        assert found.elements == sent.elements
    elif not found.name and found.datatype is Datatype.BYTES and found.shape == (1,):
        assert sent.elements == 1  # a form with one BYTES element cannot represent a name and a shape
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
    """Return the elements as Python numbers, which compare exactly, even with different types. -0.0 differs from 0."""
    found = tensor.array.astype(object).reshape(-1).tolist()
    return ["-0.0" if str(each) == "-0.0" else each for each in found]
