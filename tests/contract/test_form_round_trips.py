"""One side of a declared form reads what the other side writes: all tensors arrive unchanged, or are refused."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.json.form import parse_form
from gateway.protocols.json.protocol import protocol_of
from tests.contract import strategies as make
from tests.contract.comparing import check_all, numbers
from tests.contract.flavors import Dialect
from tests.contract.wire import LITERAL, or_error
from tests.limits import examples

BODIES = {
    "nested": "{a: $x}",
    "bare": "$x",
    "flat": "{s: $x|shape, v: $x|flat}",
    "flat alone": "{v: $x|flat}",
    "items": "{a: $x|items}",
    "row": "{a: $x|row}",
    "scalar": "{a: $x|scalar}",
    "text": "{a: $x|text}",
    "texts": "{a: $x|texts}",
    "bytes": "{a: $x|bytes}",
    "npy": "{a: $x|npy}",
    "rows": "[{a: $x}, ...]",
    "rows of bytes": "[{a: $x|bytes}, ...]",
    "rows of scalars": "[{a: $x|scalar}, ...]",
    "rows of rows": "[[{a: $x}, ...], ...]",
    "lists of rows": "[[$x, ...], ...]",
    "two": "{a: $x, b: $z}",
    "two in rows": "[{a: $x, b: $z}, ...]",
    "last may be missing": '{a: $x, "b?": $z}',
    "every": '{"$*": $*}',
    "every in rows": '[{"$*": $*}, ...]',
    "every beside": '{k: 1, in: {"$*": $*}}',
    "table": "{columns: $*|names, data: $*|table}",
    "alternatives": '{$any: [{a: $x|texts}, {a: $x|row}, {a: [[$x, ...], ...]}, {b: {"$*": $*}}]}',
}
MEDIA = {
    "csv": ("text/csv", "$x"),
    "csv with a header": ("text/csv; header=present", '[{"$*": $*}, ...]'),
    "lines": ("application/jsonlines", "[{a: $x}, ...]"),
    "npy file": ("application/x-npy", "$x"),
    "text": ("text/plain", "$x"),
    "raw": ("image/*", "$x"),
}
CASES = {
    **{name: ("application/json", body) for name, body in BODIES.items()},
    **{f"{name} (media)": each for name, each in MEDIA.items()},
}
LOOSE = ("scalar", "rows of scalars", "text", "npy", "csv", "table", "bytes", "raw")
REFUSED = frozenset({Status.INVALID_ARGUMENT, Status.UNIMPLEMENTED})


def dialect(name: str) -> Dialect:
    media_type, body = CASES[name]
    response = body.replace("$x", "$y").replace("$z", "$w")
    text = (
        f"infer: {{path: /predict, media_type: {media_type!r}, request: {body},"
        f" response_type: {media_type!r}, response: {response}}}"
    )
    document: Any = yaml.safe_load(text)
    return Dialect(name, protocol_of("contract", parse_form(document)))


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=examples(25))
@given(data=st.data())
def test_any_tensors_arrive_or_are_refused(name: str, data: st.DataObject) -> None:
    spoken = dialect(name)
    inputs = data.draw(make.several(spoken.traits))
    request = Request(Operation.INFER, inputs=inputs, translate=LITERAL)
    question = or_error(lambda: spoken.asked(request))
    if isinstance(question, GatewayError):
        assert question.status in REFUSED
        return
    check(name, question.inputs, inputs, spoken)
    answer = or_error(lambda: spoken.answered(Response(inputs), question, request))
    assert isinstance(answer, Response)
    check(name, answer.outputs, inputs, spoken)


def check(name: str, found: tuple[Tensor, ...], sent: tuple[Tensor, ...], spoken: Dialect) -> None:
    """Check that the tensors are the same. Forms with bare elements or one row per line lose dimensions of 1, and
    `.npy` has no BF16."""
    if not name.startswith(LOOSE):
        check_all(found, sent, spoken.traits)
        return
    assert len(found) == len(sent)
    for one, other in zip(found, sent, strict=True):
        assert one.elements == other.elements
        if other.elements:
            assert [size for size in one.shape if size != 1] == [size for size in other.shape if size != 1]
        assert numbers(one) == numbers(other)
