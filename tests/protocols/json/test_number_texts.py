"""Numbers as texts, where a form says so: `["0", "1.5"]` (`$x|numbers`) and `"0,1.5"` (`$x|commas`)."""

from typing import Any

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import NO_HEADERS
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.form import FormError
from gateway.protocols.json.media import web_forms
from gateway.protocols.json.writing import MessageContents
from tests.protocols.json.declared import declared
from tests.protocols.json.test_bodies import LIMITS, body, read, shown, spec
from tests.traced import traced

X, C = "$x|numbers", "$x|commas"
BOTH_WAYS: list[tuple[object, bytes, tuple[str, list[int], Any], tuple[str, ...]]] = [
    (X, b'["0","1"]', ("INT64", [2], [0, 1]), ()),
    ({"y": X}, b'{"y":["0.5","-1e+300"]}', ("FP64", [2], [0.5, -1e300]), ()),
    ({"y": X}, b'{"y":[["1","2"],["3","4"]]}', ("INT64", [2, 2], [[1, 2], [3, 4]]), ()),
    ({"y": X}, b'{"y":[[["1.5"]],[["2.5"]]]}', ("FP32", [2, 1, 1], [[[1.5]], [[2.5]]]), ("FP32", "-1", "1", "1")),
    ({"y": X}, b'{"y":"7"}', ("INT32", [], 7), ("INT32",)),
    ({"y": X}, b'{"y":[]}', ("FP64", [0], []), ("FP64", "-1")),
    ({"y": X}, b'{"y":["18446744073709551615"]}', ("UINT64", [1], [2**64 - 1]), ("UINT64", "-1")),
    ([{"y": X}, "..."], b'[{"y":"1"},{"y":"2"}]', ("INT64", [2], [1, 2]), ()),
    ([{"y": X}, "..."], b'[{"y":["1","2"]},{"y":["3","4"]}]', ("INT64", [2, 2], [[1, 2], [3, 4]]), ()),
    (C, b'"5.1,3.5,1.4"', ("FP64", [3], [5.1, 3.5, 1.4]), ()),
    ({"y": C}, b'{"y":"5"}', ("INT64", [1], [5]), ()),
    ({"y": C}, b'{"y":"1,2,3,4"}', ("INT64", [2, 2], [[1, 2], [3, 4]]), ("INT64", "-1", "2")),
    ([C, "..."], b'["1,2","3,4"]', ("INT64", [2, 2], [[1, 2], [3, 4]]), ()),
    ([{"y": C}, "..."], b'[{"y":"1.5,2.5"}]', ("FP64", [1, 2], [[1.5, 2.5]]), ("FP64", "-1", "2")),
]  # fmt: skip


def declared_as(words: tuple[str, ...]) -> Any:
    return spec("x", words[0], *map(int, words[1:])) if words else None


@pytest.mark.parametrize(("template", "text", "expected", "words"), BOTH_WAYS)
def test_texts_are_read_as_numbers_and_written_again(
    template: object, text: bytes, expected: tuple[str, list[int], Any], words: tuple[str, ...]
) -> None:
    found = read(template, text, declared_as(words))
    assert [each[1:] for each in shown(found.tensors)] == [expected]
    assert b"".join(body(template, declared_as(words)).write(MessageContents(tensors=found.tensors))) == text


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        (X, b'[ "1" , "2" ]', [1, 2]),
        (X, b'[" 1 ","2"]', [1, 2]),
        (X, b"[1,2.5]", [1, 2.5]),
        (X, b'["nan","-inf","Infinity","NaN"]', [np.nan, -np.inf, np.inf, np.nan]),
        (C, b'" 1, 2 "', [1, 2]),
        (C, b'"nan,inf"', [np.nan, np.inf]),
        (C, b'""', []),
    ],
)
def test_what_else_is_read(template: object, text: bytes, expected: list[float]) -> None:
    [found] = read(template, text).tensors
    assert found.array.tolist() == pytest.approx(expected, nan_ok=True)


WRONG = [
    (X, b'["1,2"]', "a text that is not a number"),
    (X, b'["[1]"]', "a text that is not a number"),
    (X, b'["1],[2"]', "a text that is not a number"),
    (X, b'["1""2"]', "not JSON"),
    (X, b'["a"]', "not JSON"),
    (X, b'["1","2,"]', "a text that is not a number"),
    (X, b'["true"]', "true or false"),
    (X, b'[""]', "an empty text"),
    (X, b'[" "]', "an empty text"),
    (X, b'["","1"]', "not JSON"),
    (X, b'["\\u0031"]', "backslash"),
    (X, b'["1",["2"]]', ""),
    (X, b"[null]", ""),
    (C, b"[1,2]", "expected a text of numbers with commas"),
    (C, b"5", "expected a text of numbers with commas"),
    (C, b'["1,2"]', "expected a text of numbers with commas"),
    (C, b'"[1]"', "a text that is not a number"),
    (C, b'"1],[2"', "a text that is not a number"),
    (C, b'"1 2"', "not JSON"),
    (C, b'"a"', "not JSON"),
    (C, b'"true,false"', "true or false"),
    ([C, "..."], b'["1,2","3"]', ""),
    ([C, "..."], b'["1,2",[3,4]]', "expected a text of numbers with commas"),
    ([C, "..."], b'["1],[2"]', "a text that is not a number"),
]


@pytest.mark.parametrize(("template", "text", "expected"), WRONG)
def test_texts_that_are_no_numbers_are_refused_by_name(template: object, text: bytes, expected: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read(template, text)
    assert "input 'x'" in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("template", ["$x", "$x|items", "$x|flat", ["$x", "..."], ["$x|scalar", "..."]])
def test_texts_are_no_numbers_without_the_word(template: object) -> None:
    with pytest.raises(DecodeError, match=r"input 'x'.*holds strings.*\|numbers"):
        read(template, b'["0","1"]', spec("x", "FP64", -1))
    [found] = read("$x", b'["0","1"]').tensors
    assert found.datatype == "BYTES"


def test_other_elements_than_numbers_are_not_written() -> None:
    for template in (X, C):
        for given in (tensor("x", np.array(["1"])), tensor("x", np.array([True]))):
            with pytest.raises(GatewayError, match="expected numbers"):
                body(template).write(MessageContents(tensors=(given,)))
    with pytest.raises(GatewayError, match="nothing in a flat list would tell"):
        body(C).write(MessageContents(tensors=(tensor("x", np.array([[1.0]])),)))


@pytest.mark.parametrize(
    ("nan", "template", "expected"),
    [
        ("literal", X, b'["NaN","1.0"]'),
        ("string", X, b'["NaN","1.0"]'),
        ("null", X, b'[null,"1.0"]'),
        ("literal", C, b'"NaN,1.0"'),
        ("string", C, b'"NaN,1.0"'),
    ],
)
def test_nan_is_a_word_within_quotes(nan: str, template: object, expected: bytes) -> None:
    given = (tensor("x", np.array([np.nan, 1.0])),)
    assert b"".join(body(template).write(MessageContents(nan, tensors=given))) == expected
    with pytest.raises(GatewayError, match=r"NaN|nan"):
        body(template).write(MessageContents(tensors=given))


def test_a_field_of_a_web_form_is_the_text_itself() -> None:
    form = body({"x": C}, spec("x", "FP64", -1), media_type=web_forms.CONTENT_TYPE)
    given = form.write(MessageContents(tensors=(tensor("x", np.array([1.5, 2.0])),)))
    assert b"".join(given) == b"x=1.5%2C2.0"
    assert form.read(b"".join(given), NO_HEADERS, LIMITS).tensors[0].array.tolist() == [1.5, 2.0]


@pytest.mark.parametrize(
    ("template", "text", "expected", "words"),
    [
        (X, b"8.6", 8.6, ("FP64",)),
        (X, b"-7", -7, ("INT64",)),
        (C, b"1.5,2.5", [1.5, 2.5], ("FP64", "-1")),
        (C, b"5.1", [5.1], ("FP64", "1")),
    ],
)
@pytest.mark.parametrize("media_type", ["text/plain", "text/html"])
def test_a_whole_text_may_be_numbers(
    template: object, text: bytes, expected: object, words: tuple[str, ...], media_type: str
) -> None:
    form = body(template, declared_as(words), media_type=media_type)
    [found] = form.read(b" " + text + b"\r\n", NO_HEADERS, LIMITS).tensors
    assert found.array.tolist() == expected
    assert b"".join(form.write(MessageContents(tensors=(found,)))) == text
    for wrong in (b"a", b'"1"', b"", b"[1]"):
        with pytest.raises(DecodeError, match="input 'x'"):
            form.read(wrong, NO_HEADERS, LIMITS)


def test_a_text_of_one_number_is_none_of_many() -> None:
    with pytest.raises(GatewayError, match=r"expected one number; `\|commas` in the form has several"):
        body(X, media_type="text/plain").write(MessageContents(tensors=(tensor("x", np.array([1.0])),)))
    with pytest.raises(FormError, match=r"a body of image/png is one tensor: expected such as `\$x`$"):
        body(X, media_type="image/png")


def test_alternatives_may_have_numbers_and_texts() -> None:
    form = declared("""
infer: {path: /p, request: {x: $x}, response: {$any: [{y: $y}, {y: $y|numbers}, {y: $y|commas}]}}
tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}
""")
    assert form.traits.models.signature is not None


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL"])
def test_a_form_declares_numbers(datatype: str) -> None:
    with pytest.raises(FormError, match=f"is numbers, but `tensors` has {datatype}"):
        declared(f"""
infer: {{path: /p, request: {{x: $x|numbers}}, response: {{y: $y}}}}
tensors: {{x: "{datatype} [-1]", y: "FP64 [-1]"}}
""")


def test_no_object_is_made_for_a_number() -> None:
    text = b'["1"' + b',"2"' * 1_000_000 + b"]"
    found: list[Tensor] = []
    with traced() as memory:
        found += body(X).read(text, NO_HEADERS, Limits()).tensors
    assert found[0].elements == 1_000_001
    assert memory.peak < 16 * len(text)
    with pytest.raises(GatewayError, match=r"limits\.message"):
        body(X).read(text, NO_HEADERS, Limits(message=1_000_000))
