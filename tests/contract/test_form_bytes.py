"""Invalid bytes for declared forms with each kind of body, in both directions: decoding them results in one of the
gateway's errors or a valid value, and uses memory only in proportion to their size."""

from typing import Any

import numpy as np
import pytest
import yaml

from gateway.core.datatypes import Datatype
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.form import parse_form
from gateway.protocols.json.protocol import protocol_of
from tests.contract.flavors import Dialect
from tests.contract.samples import Sample, sample
from tests.contract.test_any_bytes import check_replies, check_requests, corrupt, some_lengths
from tests.contract.wire import LITERAL

pytestmark = pytest.mark.long

FORMS = {
    "objects": """
infer:
  path: "/predict/{model}"
  request: {features: $x, "more?": {names: $n, "id?": $id}, k: 1}
  response: {y: $y, "n?": $m, "took?": $_}
models: {path: /models, response: [$model, ...]}
error: {error: $message, code: $code}
""",
    "declared": """
infer: {path: /predict, request: {x: $x, n: $n}, response: {y: $y, m: $m}}
tensors:
  x: FP32 [-1, 2]
  n: BYTES [-1]
  y: FP32 [-1, 2]
  m: BYTES [-1]
""",
    "rows": """
infer: {path: /predict, request: [{x: $x, n: $n}, ...], response: {rows: [{i: $index, y: $y, m: $m}, ...]}}
""",
    "names": """
infer:
  path: /predict
  request: {inputs: [{"$*": $*}, ...], "params?": $params}
  response: {columns: $*|names, data: $*|table}
""",
    "base64": """
infer:
  path: /predict
  request: {shape: $x|shape, data: "$x|base64:FP32", n: $n|bytes}
  response: {y: $y|npy, m: $m|texts}
""",
    "alternatives": """
infer:
- {path: /predict, request: {$any: [{x: $x|row, n: $n|text}, {x: $x, n: $n}]}, response: {$any: [{y: $y}, {"$*": $*}]}}
- {path: /predict, media_type: text/csv, request: [[$x, $n], ...], response_type: text/csv, response: [[$y, $m], ...]}
""",
    "form data": """
infer:
  path: /predict
  media_type: multipart/form-data
  request: {x: $x|flat, n: $n, "id?": $id}
  response_type: application/jsonlines
  response: [{y: $y, m: $m}, ...]
""",
}


def dialect(name: str) -> Dialect:
    document: Any = yaml.safe_load(FORMS[name])
    return Dialect(name, protocol_of("contract", parse_form(document)))


def tensors(numbers: str, texts: str, rows: int, columns: int) -> tuple[Tensor, ...]:
    """Return tensors with numbers and one text per row. Without `columns`, the numbers are a vector."""
    shape = (rows, columns) if columns else (rows,)
    return (
        tensor(numbers, np.linspace(-1.5, 2.5, rows * max(columns, 1)).astype(np.float32).reshape(shape)),
        tensor(texts, np.array(["a:é"] * rows, object)),
    )


def exchange(name: str, rows: int) -> tuple[Dialect, Sample]:
    """Return a request in the form, and its answer."""
    spoken = dialect(name)
    if name in ("base64", "alternatives", "form data"):
        rows = min(rows, 1)
    columns = 0 if name in ("names", "form data") else 2
    model = "m" if name == "objects" else ""
    request = Request(Operation.INFER, model, "", "7", tensors("x", "n", rows, columns), translate=LITERAL)
    return spoken, sample(spoken, request, tensors("y", "m", rows, columns))


@pytest.mark.parametrize("name", FORMS)
def test_corrupt_messages_are_errors_or_sound_values(name: str) -> None:
    spoken, found = exchange(name, 2)
    check_requests(spoken, corrupt(found.question, set()))
    check_replies(spoken, found.request, corrupt(found.answer, set()))
    check_replies(spoken, found.request, corrupt(found.error, set()))


@pytest.mark.parametrize("name", FORMS)
def test_large_messages_cost_what_they_are_worth(name: str) -> None:
    spoken, found = exchange(name, 5000)
    check_requests(spoken, some_lengths(found.question))
    check_replies(spoken, found.request, some_lengths(found.answer))


def test_the_forms_carry_numbers_and_texts() -> None:
    for name in FORMS:
        spoken, found = exchange(name, 2)
        inputs = spoken.asked(found.request).inputs
        assert {each.datatype for each in inputs} >= {Datatype.BYTES}
        assert len(inputs) == 2
