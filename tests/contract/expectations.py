"""What must come of a question that a client of one protocol asks of a backend of another, by their Traits alone."""

from collections.abc import Sequence
from math import prod

import numpy as np

from gateway.core.datatypes import NUMBERS, WIDENINGS, Datatype, Kind
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.operations import Operation
from gateway.core.protocol import Rows, Traits
from gateway.core.types import DEFAULT_TRANSLATE, Request, Response, Tensor, tensor
from tests.contract.comparing import numbers
from tests.contract.flavors import Dialect
from tests.contract.wire import LITERAL, arrived, or_error, returned

FP64 = Datatype.FP64


@frozen
class Case:
    """A model's inputs, as its signature has them, and its outputs."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def array(name: str, datatype: Datatype, *rows: object) -> Tensor:
    """A tensor of these rows."""
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
    """Whether such a client has words for the inputs."""
    several_rows = any(len(each.shape) > 1 and each.shape[0] > 1 for each in case.inputs)
    return all(each.datatype in front.traits.wire.datatypes for each in case.inputs) and not (
        front.traits.wire.points and several_rows
    )


def as_sent(inputs: Sequence[Tensor], front: Dialect, back: Dialect) -> tuple[Tensor, ...]:
    """The inputs as such a client writes them: by the names that the gateway tells, and as vectors where the protocol
    knows no others."""
    return tuple(
        replace(shaped(each, front), name=told_name(each.name, f"input{at}", back)) for at, each in enumerate(inputs)
    )


def is_refused(case: Case, front: Dialect, back: Dialect) -> bool:
    """Whether some tensor has no form on the way."""
    return any(_is_refused_input(each.datatype, front, back) for each in case.inputs) or any(
        carried(each.datatype, traits) is None for each in case.outputs for traits in (front.traits, back.traits)
    )


def has_no_text(case: Case, front: Dialect, back: Dialect) -> bool:
    """Whether one side carries numbers alone, and all that has no form there is the BYTES that the model gives."""
    numbers_alone = any(BYTES not in each.traits.wire.datatypes for each in (front, back))
    return numbers_alone and _has_text(case.outputs) and not _has_text(case.inputs)


def _has_text(tensors: Sequence[Tensor]) -> bool:
    return any(each.datatype is BYTES for each in tensors)


def _is_refused_input(datatype: Datatype, front: Dialect, back: Dialect) -> bool:
    """One-point models take doubles, others what they declare: numbers without a datatype become that, others must fit
    it exactly."""
    if back.traits.wire.points:
        return not front.traits.wire.untyped and FP64 not in widenings(datatype)
    return datatype not in back.traits.wire.datatypes


def check_outputs(found: Sequence[Tensor], case: Case, front: Dialect, back: Dialect) -> None:
    """Whether the client got the model's outputs, by name, datatype, shape and bits."""
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
    """Whether the one element of each row came by itself: a text that is in no list."""
    return front.traits.wire.rows is Rows.FIRST and found.shape == expected.shape[:1] and found.datatype is BYTES


def shaped(each: Tensor, front: Dialect) -> Tensor:
    """A tensor of a model as such a client sees it: as a vector, or with a first dimension that counts rows."""
    if front.traits.wire.points:
        return replace(each, shape=(prod(each.shape),))
    if front.traits.wire.rows is Rows.FIRST and len(each.shape) < 2:
        return replace(each, shape=(1, *each.shape))
    return each


def fitted(each: Tensor, dialect: Dialect) -> Tensor:
    """A tensor of a model as the wire carries it: shaped, and of another datatype where it lacks the model's."""
    datatype = carried(each.datatype, dialect.traits) or each.datatype
    return shaped(tensor(each.name, each.array.astype(datatype.dtype), datatype), dialect)


def told_name(own: str, by_position: str, back: Dialect) -> str:
    """The name that a client is told for a tensor: metadata without names leaves its position."""
    return own if back.tells_names else by_position


def names_outputs(dialect: Dialect) -> bool:
    """Whether tensors come back with their names."""
    sent = replace(array("x", FP64, [1, 2]), shape=(2,)) if dialect.traits.wire.points else array("x", FP64, [1, 2])
    request = Request(Operation.INFER, "m", inputs=(sent,))
    answer = dialect.answered(Response((sent,)), dialect.asked(request), request)
    assert isinstance(answer, Response)
    return answer.outputs[0].name == "x"


def carried(datatype: Datatype, traits: Traits) -> Datatype | None:
    """The narrowest datatype of a wire that holds every value; an integer of two that are as wide."""
    if datatype in traits.wire.datatypes:
        return datatype
    return min(
        widenings(datatype) & traits.wire.datatypes, key=lambda each: (each.size, each.kind is Kind.FLOAT), default=None
    )


def widenings(datatype: Datatype) -> frozenset[Datatype]:
    """Those that hold every value; BOOL has a form in UINT8, but none as a number."""
    if datatype is Datatype.BOOL:
        return frozenset({Datatype.BOOL, Datatype.UINT8})
    return WIDENINGS[datatype]


# --- identity, whose tensors may be of any datatype ---


def pair(datatype: Datatype) -> Tensor:
    """One row of two: the ends of the datatype's range, or what is hard to print."""
    if datatype is BYTES:
        return array("x", BYTES, ["a\0b", "é"])
    if datatype is Datatype.BOOL:
        return array("x", datatype, [True, False])
    if datatype.kind is Kind.FLOAT:
        return array("x", datatype, [0.1, -0.0])
    bounds = np.iinfo(datatype.dtype)
    return array("x", datatype, [bounds.min, bounds.max])


def identical(sent: Tensor, front: Dialect, back: Dialect) -> Tensor | None:
    """What `identity` answers, of the datatype that it has behind the gateway; None where it is refused."""
    if back.traits.wire.points:
        exact = front.traits.wire.untyped or FP64 in WIDENINGS[sent.datatype]
        is_number = sent.datatype in NUMBERS or (front.traits.wire.points and sent.datatype is Datatype.BOOL)
        return _as_doubles(sent) if exact and is_number else None
    known = _as_doubles(sent) if front.traits.wire.points and front.traits.wire.untyped else sent
    return None if carried(known.datatype, back.traits) is None else known


def _as_doubles(sent: Tensor) -> Tensor:
    """Rounded to nearest, as every number that came without a datatype."""
    return tensor(sent.name, sent.array.astype(np.float64))


def check_identical(found: Tensor, expected: Tensor, front: Dialect, back: Dialect) -> None:
    """The same bits where both wires carry the datatype as it is; else the same numbers."""
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
    """What an output is called that came without a name: points have a signature, and not every client needs one."""
    return "" if front.traits.wire.unnamed and not back.traits.wire.points else "output0"


def _told(datatype: Datatype, front: Dialect, back: Dialect) -> Datatype | None:
    """In which datatype a model's tensor arrives; None where a wire on the way does not tell it."""
    behind = datatype if back.traits.wire.points else carried(datatype, back.traits)
    told = carried(behind, front.traits) if behind else None
    if behind is None or told is None or not (back.traits.wire.points or keeps(back, behind)):
        return None
    return told if keeps(front, told) else None


def keeps(dialect: Dialect, datatype: Datatype) -> bool:
    """Whether a tensor arrives over the wire in its datatype."""
    if datatype not in dialect.traits.wire.datatypes:
        return False
    sent = pair(datatype)
    if dialect.traits.wire.points:
        sent = replace(sent, shape=(2,))
    [found] = dialect.asked(Request(Operation.INFER, "identity", inputs=(sent,), translate=LITERAL)).inputs
    return found.datatype is datatype and not found.untyped


# --- What is not finite ---


def infinite(dialect: Dialect) -> Tensor:
    """NaN and an infinity."""
    found = array("x", FP64, [np.nan, -np.inf])
    return replace(found, shape=(2,)) if dialect.traits.wire.points else found


def asks_what_is_not_finite(back: Dialect) -> bool:
    """Whether a backend may be sent it, if the route says nothing of it."""
    request = Request(Operation.INFER, "m", inputs=(infinite(back),))
    return not isinstance(or_error(lambda: back.protocol.encode_request(request, back.target)), GatewayError)


def tells_what_is_not_finite(front: Dialect) -> bool:
    """Whether a client may be sent it, if the route says nothing of it."""
    question = front.asked(Request(Operation.INFER, "m", inputs=(infinite(front),), translate=LITERAL))
    response = Response((infinite(front),))
    reply = or_error(lambda: front.protocol.encode_response(response, question, DEFAULT_TRANSLATE))
    return not isinstance(reply, GatewayError)


# --- Errors ---


def told(dialect: Dialect, reason: Reason, inputs: tuple[Tensor, ...] = ()) -> Reason:
    """What is left of a Reason behind a wire that may have numbers for few of them, in answer to a call with these
    inputs."""
    request = Request(Operation.INFER, "m", inputs=inputs)
    question = arrived(dialect.protocol.encode_request(request, dialect.target), dialect.protocol)
    reply = dialect.protocol.encode_error(refusal(reason, "why"), None, question)
    found = or_error(
        lambda: dialect.protocol.decode_response(returned(reply, dialect.protocol), request, dialect.target)
    )
    assert isinstance(found, GatewayError)
    return found.reason
