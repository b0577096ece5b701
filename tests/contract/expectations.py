"""The expected results of requests between a client protocol and a server protocol, derived only from their Traits.

The tests of the matrix and of the built-in forms compare real results with them."""

from collections.abc import Sequence
from math import prod

import numpy as np

from gateway.core.datatypes import NUMBERS, WIDENINGS, Datatype, Kind
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.protocol import Rows, Traits
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.contract.comparing import numbers
from tests.contract.flavors import Dialect
from tests.contract.wire import LITERAL, arrived, or_error, returned

FP64 = Datatype.FP64


@frozen
class Case:
    """The inputs of a model, as in its signature, and the expected outputs."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def array(name: str, datatype: Datatype, *rows: object) -> Tensor:
    return tensor(name, np.array(rows, datatype.dtype), datatype)


INT32, FP32, BYTES = Datatype.INT32, Datatype.FP32, Datatype.BYTES

CASES = {
    "double": Case("double", (array("x", FP64, [0.1, -2.5, 1e300]),), (array("y", FP64, [0.2, -5.0, 2e300]),)),
    "double, a batch": Case(
        "double", (array("x", FP64, [1, 2, 3], [4, 5, 6]),), (array("y", FP64, [2, 4, 6], [8, 10, 12]),)
    ),
    "add_sub": Case(
        "add_sub",
        (array("INPUT0", INT32, 1, 2, 2**31 - 1), array("INPUT1", INT32, 10, -20, 0)),
        (array("OUTPUT0", INT32, 11, -18, 2**31 - 1), array("OUTPUT1", INT32, -9, 22, 2**31 - 1)),
    ),
    "upper": Case("upper", (array("text", BYTES, "one", "zwölf"),), (array("upper", BYTES, "ONE", "ZWÖLF"),)),
    "classify": Case(
        "classify",
        (array("scores", FP32, [0.0, 1000.0]),),
        (array("label", BYTES, ["class_1"]), array("score", FP32, [1.0])),
    ),
    "posterior": Case("posterior", (array("theta", FP64, [1, 2]),), (array("logdensity", FP64, [-5.0]),)),
    "fail, at nothing": Case("fail", (array("kind", INT32, [0]),), (array("y", INT32, [0]),)),
}


def sendable(front: Dialect, case: Case) -> bool:
    """Return whether the client protocol can express the inputs."""
    several_rows = any(len(each.shape) > 1 and each.shape[0] > 1 for each in case.inputs)
    return all(each.datatype in front.traits.wire.datatypes for each in case.inputs) and not (
        front.traits.wire.points and several_rows
    )


def as_sent(inputs: Sequence[Tensor], front: Dialect, back: Dialect) -> tuple[Tensor, ...]:
    """Return the inputs as the client writes them: with the names that the gateway reports, and as vectors if the
    protocol supports only vectors."""
    return tuple(
        replace(shaped(each, front), name=told_name(each.name, f"input{at}", back)) for at, each in enumerate(inputs)
    )


def is_refused(case: Case, front: Dialect, back: Dialect) -> bool:
    """Return whether a protocol on the way cannot represent one of the tensors."""
    return any(_is_refused_input(each.datatype, front, back) for each in case.inputs) or any(
        carried(each.datatype, traits) is None for each in case.outputs for traits in (front.traits, back.traits)
    )


def has_no_text(case: Case, front: Dialect, back: Dialect) -> bool:
    """Return whether one side supports only numbers, and cannot represent only the BYTES outputs of the model."""
    numbers_alone = any(BYTES not in each.traits.wire.datatypes for each in (front, back))
    return numbers_alone and _has_text(case.outputs) and not _has_text(case.inputs)


def _has_text(tensors: Sequence[Tensor]) -> bool:
    return any(each.datatype is BYTES for each in tensors)


def _is_refused_input(datatype: Datatype, front: Dialect, back: Dialect) -> bool:
    """One-point models take doubles. Other models take their declared datatype: numbers without a datatype are
    converted to it, and other numbers must fit it exactly."""
    if back.traits.wire.points:
        return not front.traits.wire.untyped and FP64 not in widenings(datatype)
    return datatype not in back.traits.wire.datatypes


def check_outputs(found: Sequence[Tensor], case: Case, front: Dialect, back: Dialect) -> None:
    """Check that the client got the outputs of the model: names, datatypes, shapes and bits."""
    assert len(found) == len(case.outputs)
    for at, (one, other) in enumerate(zip(found, case.outputs, strict=True)):
        expected = shaped(other, front)
        if names_outputs(front):
            assert one.name == told_name(other.name, f"output{at}", back)
        assert one.shape == expected.shape or _is_one_per_row(one, expected, front)
        assert numbers(one) == numbers(expected)
        told = FP64 if back.traits.wire.points else other.datatype
        if not front.traits.wire.untyped:
            assert one.datatype is carried(told, front.traits)


def _is_one_per_row(found: Tensor, expected: Tensor, front: Dialect) -> bool:
    """Return whether the single element of each row arrived without a list around it, as text."""
    return front.traits.wire.rows is Rows.FIRST and found.shape == expected.shape[:1] and found.datatype is BYTES


def shaped(each: Tensor, front: Dialect) -> Tensor:
    """Return the tensor of a model as the client sees it: as a vector, or with a first dimension for rows."""
    if front.traits.wire.points:
        return replace(each, shape=(prod(each.shape),))
    if front.traits.wire.rows is Rows.FIRST and len(each.shape) < 2:
        return replace(each, shape=(1, *each.shape))
    return each


def fitted(each: Tensor, dialect: Dialect) -> Tensor:
    """Return the tensor of a model as the protocol sends it: shaped, and with another datatype if the protocol lacks
    the model's datatype."""
    datatype = carried(each.datatype, dialect.traits) or each.datatype
    return shaped(tensor(each.name, each.array.astype(datatype.dtype), datatype), dialect)


def told_name(own: str, by_position: str, back: Dialect) -> str:
    """Return the name that metadata gives a tensor for a client. Without names in the metadata, it is the position."""
    return own if back.tells_names else by_position


def names_outputs(dialect: Dialect) -> bool:
    """Return whether tensors come back with their names."""
    sent = replace(array("x", FP64, [1, 2]), shape=(2,)) if dialect.traits.wire.points else array("x", FP64, [1, 2])
    request = Request(Operation.INFER, "m", inputs=(sent,))
    answer = dialect.answered(Response((sent,)), dialect.asked(request), request)
    assert isinstance(answer, Response)
    return answer.outputs[0].name == "x"


def carried(datatype: Datatype, traits: Traits) -> Datatype | None:
    """Return the narrowest datatype of a protocol that holds every value. An integer wins over a float of the same
    width."""
    if datatype in traits.wire.datatypes:
        return datatype
    return min(
        widenings(datatype) & traits.wire.datatypes, key=lambda each: (each.size, each.kind is Kind.FLOAT), default=None
    )


def widenings(datatype: Datatype) -> frozenset[Datatype]:
    """Return the datatypes that hold every value of a datatype. UINT8 can represent BOOL, but a number cannot."""
    if datatype is Datatype.BOOL:
        return frozenset({Datatype.BOOL, Datatype.UINT8})
    return WIDENINGS[datatype]


# --- identity, whose tensors can have any datatype ---


def pair(datatype: Datatype) -> Tensor:
    """Return a row with two elements: the ends of the datatype's range, or values that are hard to print."""
    if datatype is BYTES:
        return array("x", BYTES, ["a\0b", "é"])
    if datatype is Datatype.BOOL:
        return array("x", datatype, [True, False])
    if datatype.kind is Kind.FLOAT:
        return array("x", datatype, [0.1, -0.0])
    bounds = np.iinfo(datatype.dtype)
    return array("x", datatype, [bounds.min, bounds.max])


def identical(sent: Tensor, front: Dialect, back: Dialect) -> Tensor | None:
    """Return the output of `identity` in the datatype that it has behind the gateway, or None if it is refused."""
    if back.traits.wire.points:
        exact = front.traits.wire.untyped or FP64 in WIDENINGS[sent.datatype]
        is_number = sent.datatype in NUMBERS or (front.traits.wire.points and sent.datatype is Datatype.BOOL)
        return _as_doubles(sent) if exact and is_number else None
    known = _as_doubles(sent) if front.traits.wire.points and front.traits.wire.untyped else sent
    return None if carried(known.datatype, back.traits) is None else known


def _as_doubles(sent: Tensor) -> Tensor:
    """Return the numbers rounded to the nearest double, like every number without a datatype."""
    return tensor(sent.name, sent.array.astype(np.float64))


def check_identical(found: Tensor, expected: Tensor, front: Dialect, back: Dialect) -> None:
    """Check that the bits are the same if both protocols support the datatype, and otherwise the numbers."""
    if names_outputs(front):
        assert found.name == ("x" if names_outputs(back) else _unnamed(front, back))
    assert found.shape == shaped(expected, front).shape
    assert numbers(found) == numbers(expected)
    told = _told(expected.datatype, front, back)
    if told is not None:
        assert found.datatype is told
    if told is expected.datatype:
        assert bytes(found.data) == bytes(expected.data)


def _unnamed(front: Dialect, back: Dialect) -> str:
    """Return the name of an output that arrived without a name. Points have a signature, which not every client
    needs."""
    return "" if front.traits.wire.unnamed and not back.traits.wire.points else "output0"


def _told(datatype: Datatype, front: Dialect, back: Dialect) -> Datatype | None:
    """Return the datatype in which a tensor of a model arrives, or None if a protocol on the way does not send it."""
    behind = datatype if back.traits.wire.points else carried(datatype, back.traits)
    told = carried(behind, front.traits) if behind else None
    if behind is None or told is None or not (back.traits.wire.points or keeps(back, behind)):
        return None
    return told if keeps(front, told) else None


def keeps(dialect: Dialect, datatype: Datatype) -> bool:
    """Return whether a tensor arrives over this protocol in its datatype."""
    if datatype not in dialect.traits.wire.datatypes:
        return False
    sent = pair(datatype)
    if dialect.traits.wire.points:
        sent = replace(sent, shape=(2,))
    [found] = dialect.asked(Request(Operation.INFER, "identity", inputs=(sent,), translate=LITERAL)).inputs
    return found.datatype is datatype and not found.untyped


# --- NaN and infinities ---


def infinite(dialect: Dialect) -> Tensor:
    found = array("x", FP64, [np.nan, -np.inf])
    return replace(found, shape=(2,)) if dialect.traits.wire.points else found


def asks_what_is_not_finite(back: Dialect) -> bool:
    """Return whether the gateway sends NaN and infinities to the backend without a setting on the route."""
    request = Request(Operation.INFER, "m", inputs=(infinite(back),))
    return not isinstance(or_error(lambda: back.protocol.encode_request(request, back.target)), GatewayError)


def tells_what_is_not_finite(front: Dialect) -> bool:
    """Return whether the gateway sends NaN and infinities to the client without a setting on the route."""
    question = front.asked(Request(Operation.INFER, "m", inputs=(infinite(front),), translate=LITERAL))
    response = Response((infinite(front),))
    reply = or_error(lambda: front.protocol.encode_response(response, question, DEFAULT_TRANSLATE))
    return not isinstance(reply, GatewayError)


# --- Errors ---


def told(dialect: Dialect, reason: Reason, inputs: tuple[Tensor, ...] = ()) -> Reason:
    """Return the Reason that arrives over a protocol, which can have codes for only a few Reasons, after a call with
    these inputs."""
    request = Request(Operation.INFER, "m", inputs=inputs)
    question = arrived(dialect.protocol.encode_request(request, dialect.target), dialect.protocol)
    reply = dialect.protocol.encode_error(refusal(reason, "why"), None, question)
    found = or_error(
        lambda: dialect.protocol.decode_response(returned(reply, dialect.protocol), request, dialect.target)
    )
    assert isinstance(found, GatewayError)
    return found.reason
