"""What is typed into the playground, as tensors."""

import numpy as np
import pytest

from gateway.admin.playground.form import (
    PlaygroundForm,
    PlaygroundFormError,
    TypedInput,
    declared,
    has_more_values,
    read_headers,
    read_request,
)
from gateway.core.tensors import Tensor


def tensor(values: str, datatype: str = "FP64", shape: str = "") -> Tensor:
    typed = TypedInput(name="x", datatype=datatype, shape=shape, values=values)
    return read_request(PlaygroundForm(listener="l", protocol="p", model="m", inputs=[typed])).inputs[0]


def errors(**typed: object) -> dict[str, str]:
    form = {"listener": "l", "protocol": "p", "model": "m", **typed}
    with pytest.raises(PlaygroundFormError) as caught:
        read_request(PlaygroundForm.model_validate(form))
    return caught.value.errors


@pytest.mark.parametrize(
    ("values", "datatype", "shape", "expected"),
    [
        ("1, 2.5 3", "FP64", "", [1.0, 2.5, 3.0]),
        ("[[1, 2], [3, 4]]", "INT32", "", [[1, 2], [3, 4]]),
        ("1,2,3,4", "INT8", "2, -1", [[1, 2], [3, 4]]),
        ("[[1, 2], [3, 4]]", "FP32", "4", [1, 2, 3, 4]),
        ("9223372036854775807", "INT64", "[1]", [2**63 - 1]),
        ("NaN, inf", "FP64", "", [float("nan"), float("inf")]),
        ("true, 0", "BOOL", "", [True, False]),
        ("a b\nü", "BYTES", "", [b"a b", "ü".encode()]),
        ('["[", ""]', "BYTES", "2,1", [[b"["], [b""]]),
        ("", "FP64", "0, 3", np.zeros((0, 3)).tolist()),
        ("[[], []]", "FP64", "", np.zeros((2, 0)).tolist()),
        ("7", "FP16", " ", [7.0]),
    ],
)
def test_values_become_a_tensor(values: str, datatype: str, shape: str, expected: object) -> None:
    found = tensor(values, datatype, shape)
    assert found.datatype.value == datatype
    np.testing.assert_array_equal(found.array, np.array(expected, found.array.dtype).reshape(found.shape))


@pytest.mark.parametrize(
    ("typed", "field", "text"),
    [
        ({"values": "1, x"}, "values", "'x' is not a number"),
        ({"values": "[1, [2]]"}, "values", "the same length"),
        ({"values": "[1, 2"}, "values", "invalid JSON"),
        ({"values": "[" * 10_000}, "values", ""),
        ({"values": "1.5", "datatype": "INT32"}, "values", "1.5 is not an integer"),
        ({"values": "300", "datatype": "UINT8"}, "values", "outside the range 0 to 255"),
        ({"values": "1e39", "datatype": "FP32"}, "values", "out of range for FP32"),
        ({"values": "1, 2, 3", "shape": "2, 2"}, "values", "3 values, but shape [2, 2] has 4"),
        ({"values": "1, 2, 3", "shape": "2, ?"}, "shape", "cannot be divided"),
        ({"values": "1", "shape": "-1, -1"}, "shape", "at most one of them -1"),
        ({"values": "1", "shape": "x"}, "shape", "'x' is not a shape"),
        ({"values": "[1]", "datatype": "BYTES"}, "values", "1 is not text"),
        ({"values": "1," * 250_000 + "1"}, "values", "more than 250000 values"),
        ({"values": "a\n" * 250_000, "datatype": "BYTES"}, "values", "more than 250000 values"),
        ({"values": "[" + "[]," * 300_000 + "[]]"}, "values", "more than 250000 values and nested lists"),
        ({"values": "1," * 249_999 + "1"}, "values", "more than 250000 values in all inputs"),
        ({"values": "1" * 1001}, "values", "is not a number"),
        ({"values": "1", "datatype": "FP8"}, "datatype", "unknown datatype 'FP8'"),
        ({"values": "[" * 33 + "1" + "]" * 33}, "values", "more than 32 dimensions"),
        ({"values": "[[1, 2], 3]"}, "values", "the same length, and contain numbers or text"),
        ({"values": "[1, null]"}, "values", "the same length, and contain numbers or text"),
        ({"values": '[1, "x"]'}, "values", "'x' is not a number"),
        ({"values": "true, maybe", "datatype": "BOOL"}, "values", "'maybe' is neither true nor false"),
        ({"values": "[true, 2]", "datatype": "BOOL"}, "values", "2 is neither true nor false"),
    ],
)
def test_what_is_wrong_is_told_at_its_field(typed: dict[str, str], field: str, text: str) -> None:
    found = errors(inputs=[{"name": "x", "values": "1"}, {"name": "y", **typed}])
    assert list(found) == [f"inputs.1.{field}"]
    assert text in found[f"inputs.1.{field}"]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ('{"x": [' + "[]," * 5000 + "[]]}", "more than 10000 JSON values; enter fewer parameters"),
        ('{"x": ', 'expected a JSON object, such as {"name": 1}'),
        ("[1]", 'expected a JSON object, such as {"name": 1}'),
        ('{"x": null}', "parameter 'x' is NoneType, expected a bool, int, float, str, dict or list"),
    ],
)
def test_parameters_that_are_none_are_told(parameters: str, text: str) -> None:
    """They are counted before they are read."""
    assert errors(parameters=parameters) == {"parameters": text}


def test_an_output_of_an_unknown_datatype_is_told() -> None:
    form = PlaygroundForm.model_validate(
        {"listener": "l", "protocol": "p", "outputs": [{"name": "y", "datatype": "FP8"}]}
    )
    with pytest.raises(PlaygroundFormError) as caught:
        declared(form, [])
    assert str(caught.value).startswith("output 'y' has the unknown datatype 'FP8'; expected one of BOOL, ")


def test_headers_are_read_without_their_empty_lines() -> None:
    form = PlaygroundForm(listener="l", protocol="p", headers="\nX-Team: a: b \n\n", key="k")
    assert dict(read_headers(form)) == {b"x-team": b"a: b", b"authorization": b"Bearer k"}


def test_every_wrong_field_is_told_at_once() -> None:
    found = errors(model="", operation="load", parameters="[]", inputs=[{"name": "x", "values": "x"}])
    assert set(found) == {"model", "operation", "parameters", "inputs.0.values"}


@pytest.mark.parametrize(
    "line", ["host: x", "Transfer-Encoding: chunked", "no colon", "a b: c", "x: \x01", "content-length: 1"]
)
def test_headers_cannot_change_where_a_message_ends(line: str) -> None:
    with pytest.raises(PlaygroundFormError):
        read_headers(PlaygroundForm(listener="l", protocol="p", headers=line))


def test_a_key_is_in_no_text_of_an_error_or_a_form() -> None:
    form = PlaygroundForm(listener="l", protocol="p", key="very secret\x01")
    assert "secret" not in repr(form)
    with pytest.raises(PlaygroundFormError) as caught:
        read_headers(form)
    assert "secret" not in str(caught.value)
    assert list(caught.value.errors) == ["key"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 3]", 4), ("[[], [], []]", 7), ("[{}, {}]", 5), ('{"a": 1, "b": [2]}', 4), ('["a,b,[{", "c"]', 3),
        (r'["\"[,,,", "\\", "["]', 4), ('["[[[[', 2), ('["\\', 2), ("", 1), ("7", 1),
    ],
)  # fmt: skip
def test_texts_do_not_count(text: str, values: int) -> None:
    assert not has_more_values(text, values)
    assert has_more_values(text, values - 1)


def test_texts_without_an_end_take_no_longer() -> None:
    """A search that begins anew at each quotation mark would take hours."""
    assert not has_more_values('"' + r"\",[" * 500_000, 2)
