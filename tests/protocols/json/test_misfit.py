"""Of several alternatives and exchanges the error of the one that fits best is told."""

import json

import numpy as np
import pytest

from gateway.core.datatypes import DATATYPES
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.models import TensorSpec
from gateway.core.tensors import tensor
from gateway.protocols.json.templates import Role
from gateway.protocols.json.writing import MessageContents
from tests.protocols.json.test_bodies import body, read
from tests.wires import Wires, replying

TABLES = {
    "$any": [
        {"inputs": "$x"},
        {"split": {"columns": "$*|names", "data": "$*|table", "index?": "$_"}},
        {"inputs": {"$*": "$*"}},
        {"records": [{"$*": "$*"}, "..."]},
    ]
}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"split": {"columns": ["a"], "rows": [[1]]}}', r"member `rows` is not in the form.* - at `\$\.split`$"),
        (b'{"split": {"columns": ["a"], "data": [1]}}', r"^the table of inputs: Expected `array`, got `int`"),
        (b'{"split": {"columns": ["a", "a"], "data": [[1, 2]]}}', r"^the names of the inputs are \['a', 'a'\]"),
        (b'{"split": {"columns": ["a"], "data": [[1, 2]]}}', "^row 0 has 2 cells for 1 columns$"),
        (b'{"records": [{"a": 1}, {"b": 1}]}', r"^row 1 has the members \['b'\], but row 0 has \['a'\]$"),
        (b'{"inputs": [[1], [[2]]]}', "ragged"),
        (b"{", "^not JSON"),
        (b"", "^an empty body, expected JSON$"),
        (b'{"other": 1}', "^member `other` is not in the form"),
        (b'{"inputs": {"a": [1]}, "split": {}}', "^member `split` is not in the form"),
        (b'{"inputs": [1], "other": 1}', "^member `other` is not in the form"),
    ],
)
def test_the_alternative_that_a_body_fits_deepest_is_explained(text: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(TABLES, text)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ([("a", [1.0, float("nan")]), ("b", [1.0, 2.0])], "^input 'a': element 1 is nan, for which JSON has no number"),
        ([("a", [float("nan")])], "^input 'x': element 0 is nan"),
        ([("a", [1.0]), ("a", [1.0])], "^2 inputs, but the form has places for 1$"),
    ],
)
def test_the_alternative_that_carries_a_message_furthest_is_explained(
    tensors: list[tuple[str, list[float]]], why: str
) -> None:
    """Two columns have no place in the first alternative, which says nothing about NaN."""
    with pytest.raises(GatewayError, match=why):
        body(TABLES).write(MessageContents(tensors=tuple(tensor(name, np.array(given)) for name, given in tensors)))


def test_a_text_about_json_is_not_given_for_csv() -> None:
    csv = body([{"$*": "$*"}, "..."], media_type="text/csv; header=present")
    with pytest.raises(GatewayError, match=r"^input 'a': element 0 is nan, which the route refuses"):
        csv.write(MessageContents("error", tensors=(tensor("a", np.array([float("nan")])),)))
    no_text = tensor("a", np.array([b"\xff"]))
    with pytest.raises(GatewayError, match="not UTF-8, which CSV cannot carry"):
        csv.write(MessageContents(tensors=(no_text,)))


def test_an_element_is_not_called_it() -> None:
    spec = {"y": TensorSpec("y", DATATYPES["INT64"], (-1,))}
    with pytest.raises(DecodeError, match=r"^output 'y': element 0, 0\.5, is not integral, .*; FP64 in the form's"):
        read({"y": "$y"}, b'{"y": [0.5]}', spec, role=Role.RESPONSE)


FORMS = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [v2-rest]}]
forms:
  two:
    infer:
      - {path: /bytes, media_type: "*/*", response_type: application/json, request: $x, response: {y: $y}}
      - {path: /rows, request: {rows: [{"$*": $*}, ...]}, response: {y: $y}}
backends: {lab: {protocol: json, form: two, endpoints: ["lab:1"]}}
routes: [{match: {}, backend: lab}]
"""


async def test_the_exchange_that_carries_a_request_furthest_is_explained() -> None:
    inputs = [
        {"name": name, "datatype": "FP64", "shape": [2], "data": data}
        for name, data in (("a", [1.0, float("nan")]), ("b", [1.0, 2.0]))
    ]
    wires = Wires(FORMS, lab=replying(b"{}"))
    reply = await wires.post("v2-rest", "/v2/models/m/infer", json.dumps({"inputs": inputs}).encode())
    assert "input 'a': element 1 is nan" in json.loads(bytes(reply.body))["error"]
