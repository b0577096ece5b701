"""Hypothesis strategies for the requests and responses that a protocol can represent, according to its Traits."""

import numpy as np
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype, Kind
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import Traits
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Parameters, Tensor, tensor
from tests.contract.wire import LITERAL

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
MODELS = NAMES.filter(lambda name: name not in (".", ".."))
"""URLs cannot contain the segments `.` and `..` in any encoding (RFC 3986, section 5.2.4)."""
VALUES = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXTS)
PARAMETERS: st.SearchStrategy[Parameters] = st.dictionaries(NAMES.map("a {} parameter".format), VALUES, max_size=3)
"""Parameters without a meaning in a protocol. A parameter such as V2's `priority` would end at the server that reads
it."""


def elements(datatype: Datatype) -> "st.SearchStrategy[object]":
    """Return a strategy for one element. NaN has its own test, because text cannot represent its bits."""
    if datatype is Datatype.BYTES:
        return st.one_of(TEXTS.map(str.encode), st.binary(max_size=6))
    if datatype.kind is Kind.BOOL:
        return st.booleans()
    if datatype.kind is Kind.FLOAT:
        return st.floats(width=32 if datatype.size < 8 else 64, allow_nan=False)
    bounds = np.iinfo(datatype.dtype)
    return st.integers(bounds.min, bounds.max)


def shapes(traits: Traits) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for shapes: vectors for one-point protocols, otherwise any shape."""
    if traits.wire.points:
        return st.tuples(st.integers(0, 9))
    return st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn, traits: Traits, name: str) -> Tensor:
    datatype = draw(st.sampled_from(sorted(traits.wire.datatypes)))
    shape = draw(shapes(traits))
    count = int(np.prod(shape, dtype=int))
    found = draw(st.lists(elements(datatype), min_size=count, max_size=count))
    array = np.empty(count, object)
    array[:] = found
    with np.errstate(over="ignore"):
        return tensor(name, (array if datatype is Datatype.BYTES else array.astype(datatype.dtype)).reshape(shape))


@st.composite
def several(draw: st.DrawFn, traits: Traits, least: int = 0) -> tuple[Tensor, ...]:
    names = draw(st.lists(NAMES, min_size=least, max_size=3, unique=True))
    return tuple(draw(tensors(traits, name)) for name in names)


@st.composite
def inferences(draw: st.DrawFn, traits: Traits, *, operation: Operation = Operation.INFER) -> Request:
    """Return a strategy for requests with tensors. Other tests cover parameters and requested outputs."""
    return Request(
        operation,
        draw(MODELS),
        draw(st.sampled_from(["", "1", "20"])) if traits.models.versions else "",
        draw(st.none() | TEXTS),
        (*draw(several(traits)), *draw(extras(operation))),
        translate=LITERAL,
    )


@st.composite
def extras(draw: st.DrawFn, operation: Operation) -> tuple[Tensor, ...]:
    """Return a strategy for the inputs that a derivative takes in addition to the model's inputs."""
    return tuple(
        tensor(name, np.array([draw(st.integers(0, 9))]))
        if name in INDEX_TENSORS
        else tensor(name, np.array(draw(st.lists(st.floats(allow_nan=False), min_size=1, max_size=4))))
        for name in DERIVATIVES.get(operation, ())
    )


REQUESTED = st.lists(NAMES, min_size=1, max_size=3, unique=True).map(lambda names: tuple(map(RequestedOutput, names)))
