"""Bodies of every kind of template: literal bytes to tensors and words, and back."""

from base64 import b64encode
from typing import Any, TypeAlias

import numpy as np
import pytest

from gateway.core.datatypes import DATATYPES
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import NO_HEADERS, Headers
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.core.requests import Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.bodies import MessageBody, make_body
from gateway.protocols.json.form import ABSENT, JSON_TYPE, FormError
from gateway.protocols.json.places import BodyContents
from gateway.protocols.json.templates import Role, Word
from gateway.protocols.json.writing import MessageContents
from tests.traced import traced

LIMITS = Limits()
Shown: TypeAlias = list[tuple[str, str, list[int], Any]]


def body(
    template: object,
    specs: dict[str, TensorSpec] | None = None,
    *,
    role: Role = Role.REQUEST,
    media_type: str = JSON_TYPE,
    ignore_unknown: bool = False,
) -> MessageBody:
    """The bodies of a template."""
    return make_body(template, media_type, role, ("request",), specs or {}, ignore_unknown=ignore_unknown)


def read(template: object, text: bytes, specs: dict[str, TensorSpec] | None = None, **more: Any) -> BodyContents:
    """The contents of a body."""
    return body(template, specs, **more).read(text, NO_HEADERS, LIMITS)


def shown(tensors: tuple[Tensor, ...]) -> Shown:
    """Each tensor as its name, datatype, shape and elements."""
    return [(each.name, each.datatype.value, list(each.shape), each.array.tolist()) for each in tensors]


def test_rows_of_unequal_length_are_read_one_by_one() -> None:
    found = read({"a": "$x", "b": "$z"}, b'{"a":[[1],[1,2]],"b":[3]}')
    assert found.unequal is not None
    assert [shown(rows) for rows in found.unequal.rows.values()] == [
        [("", "INT64", [1, 1], [[1]]), ("", "INT64", [1, 2], [[1, 2]])]
    ]
    with pytest.raises(DecodeError, match="output 'x': ragged"):
        read("$x", b"[[1],[1,2]]", role=Role.RESPONSE)
    with pytest.raises(DecodeError, match="input 'x': ragged"):
        read("$x", b"[[1],[1,2]" + b",[1]" * 10_000 + b"]")


def spec(name: str, datatype: str, *shape: int) -> dict[str, TensorSpec]:
    """The declaration of one tensor."""
    return {name: TensorSpec(name, DATATYPES[datatype], shape)}


def npy(values: list[Any]) -> bytes:
    """A .npy file in base64."""
    given = MessageContents(tensors=(tensor("x", np.array(values)),))
    return b64encode(b"".join(map(bytes, body("$x", media_type="application/x-npy").write(given))))


X, FP64, INT64, BYTES = "$x", "FP64", "INT64", "BYTES"

JSON: list[tuple[object, bytes, Shown]] = [
    # lists
    (X, b"[[1,2],[3,4]]", [("", INT64, [2, 2], [[1, 2], [3, 4]])]),
    ({"a": X}, b'{"a":[1.5,2.0]}', [("", FP64, [2], [1.5, 2.0])]),
    ({"a": X}, b'{"a":[]}', [("", INT64, [0], [])]),
    ({"a": X}, b'{"a":[[],[]]}', [("", INT64, [2, 0], [[], []])]),
    ({"a": X}, b'{"a":3.5}', [("", FP64, [], 3.5)]),
    ({"a": X}, b'{"a":"hi"}', [("", BYTES, [], b"hi")]),
    ({"a": X}, b'{"a":["hi","\xc3\xa9\\n"]}', [("", BYTES, [2], [b"hi", b"\xc3\xa9\n"])]),
    ({"a": X}, b'{"a":[["p"],["q"]]}', [("", BYTES, [2, 1], [[b"p"], [b"q"]])]),
    ({"a": X}, b'{"a":[true,false]}', [("", "BOOL", [2], [True, False])]),
    ({"a": X}, b'{"a":[18446744073709551615]}', [("", "UINT64", [1], [2**64 - 1])]),
    ({"a": X}, b'{"a":[9007199254740993]}', [("", INT64, [1], [2**53 + 1])]),
    # nested objects, several tensors, and elements of a list
    ({"d": {"a": X, "b": "$y"}}, b'{"d":{"a":[1],"b":[2]}}', [("", INT64, [1], [1]), ("", INT64, [1], [2])]),
    ([{"a": X}, "$y"], b'[{"a":[1]},[2]]', [("", INT64, [1], [1]), ("", INT64, [1], [2])]),
    # rows
    ({"a": [X, "..."]}, b'{"a":[1,2]}', [("", INT64, [2], [1, 2])]),
    (
        {"a": [{"p": "$p", "q": "$q"}, "..."]},
        b'{"a":[{"p":1,"q":[1,2]},{"p":2,"q":[3,4]}]}',
        [("", INT64, [2], [1, 2]), ("", INT64, [2, 2], [[1, 2], [3, 4]])],
    ),
    (
        [[{"label": "$l", "score": "$s"}, "..."], "..."],
        b'[[{"label":"a","score":0.5},{"label":"b","score":1.0}],[{"label":"c","score":2.0},{"label":"d","score":3.0}]]',
        [("", BYTES, [2, 2], [[b"a", b"b"], [b"c", b"d"]]), ("", FP64, [2, 2], [[0.5, 1.0], [2.0, 3.0]])],
    ),
    ([["$a", "$b"], "..."], b'[[1,"x"],[2,"y"]]', [("", INT64, [2], [1, 2]), ("", BYTES, [2], [b"x", b"y"])]),
    (
        [{"index": "$index", "kind": "row", "e": X}, "..."],
        b'[{"index":0,"kind":"row","e":[1,2]},{"index":1,"kind":"row","e":[3,4]}]',
        [("", INT64, [2, 2], [[1, 2], [3, 4]])],
    ),
    # other spellings
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[2,2],"v":[1,2,3,4]}', [("", INT64, [2, 2], [[1, 2], [3, 4]])]),
    ({"a": "$x|flat"}, b'{"a":[1,2]}', [("", INT64, [2], [1, 2])]),
    ({"a": "$x|items"}, b'{"a":[1]}', [("", INT64, [1], [1])]),
    ({"a": "$x|texts"}, b'{"a":["p","q"]}', [("", BYTES, [2], [b"p", b"q"])]),
    ({"a": "$x|row"}, b'{"a":[1,2]}', [("", INT64, [1, 2], [[1, 2]])]),
    ({"a": "$x|scalar"}, b'{"a":4.0}', [("", FP64, [1], [4.0])]),
    ({"a": "$x|scalar"}, b'{"a":"t"}', [("", BYTES, [1], [b"t"])]),
    ([{"a": "$x|scalar"}, "..."], b'[{"a":1},{"a":2}]', [("", INT64, [2], [1, 2])]),
    ({"a": "$x|text"}, b'{"a":"hi"}', [("", BYTES, [1], [b"hi"])]),
    ({"a": "$x|bytes"}, b'{"a":"AAEC"}', [("", BYTES, [1], [b"\0\1\2"])]),
    ([{"b64": "$x|bytes"}, "..."], b'[{"b64":"AAEC"},{"b64":""}]', [("", BYTES, [2], [b"\0\1\2", b""])]),
    ({"a": "$x|base64:FP32"}, b'{"a":"AACAPwAAIEAAAEDA"}', [("", "FP32", [3], [1.0, 2.5, -3.0])]),
    (
        {"s": "$x|shape", "v": "$x|base64:FP32"},
        b'{"s":[3,1],"v":"AACAPwAAIEAAAEDA"}',
        [("", "FP32", [3, 1], [[1.0], [2.5], [-3.0]])],
    ),
    ([{"e": "$x|base64:INT8"}, "..."], b'[{"e":"AQI="},{"e":"AwQ="}]', [("", "INT8", [2, 2], [[1, 2], [3, 4]])]),
    # all tensors by name
    ({"$*": "$*"}, b'{"p":[1],"q":["t"]}', [("p", INT64, [1], [1]), ("q", BYTES, [1], [b"t"])]),
    ({"in": {"$*": "$*"}}, b'{"in":{"p":2.5}}', [("p", FP64, [], 2.5)]),
    (
        [{"$*": "$*"}, "..."],
        b'[{"p":1,"q":"s"},{"p":2,"q":"t"}]',
        [("p", INT64, [2], [1, 2]), ("q", BYTES, [2], [b"s", b"t"])],
    ),
    (
        {"columns": "$*|names", "data": "$*|table"},
        b'{"columns":["p","q"],"data":[[1,"s"],[2,"t"]]}',
        [("p", INT64, [2], [1, 2]), ("q", BYTES, [2], [b"s", b"t"])],
    ),
    ({"k": 1, "$*": "$*"}, b'{"k":1,"p":[1]}', [("p", INT64, [1], [1])]),
    (
        [{"a": "$x|npy"}, "..."],
        b'[{"a":"%b"},{"a":"%b"}]' % (npy([1, 2]), npy([3, 4])),
        [("", INT64, [2, 2], [[1, 2], [3, 4]])],
    ),
    (
        [[{"i": "$index", "a": X}, "..."], "..."],
        b'[[{"i":0,"a":1},{"i":1,"a":2}],[{"i":0,"a":3},{"i":1,"a":4}]]',
        [("", INT64, [2, 2], [[1, 2], [3, 4]])],
    ),
    # constants
    (
        {"a": X, "k": "v", "n": 1, "f": 1.5, "t": True, "z": None, "d": "$$x", "l": [1, "b"], "o": {}},
        b'{"a":[1],"k":"v","n":1,"f":1.5,"t":true,"z":null,"d":"$x","l":[1,"b"],"o":{}}',
        [("", INT64, [1], [1])],
    ),
]


# media type, template, text, tensors
BOTH_WAYS: list[tuple[str, object, bytes, Shown]] = [
    *[(JSON_TYPE, *each) for each in JSON],
    (
        "application/jsonlines",
        [{"a": X}, "..."],
        b'{"a":[1,2]}\n{"a":[3,4]}\n',
        [("", INT64, [2, 2], [[1, 2], [3, 4]])],
    ),
    ("application/x-ndjson", X, b"[1,2]\n[3,4]\n", [("", INT64, [2, 2], [[1, 2], [3, 4]])]),
    ("text/csv", X, b"1,2\r\n3,4\r\n", [("", INT64, [2, 2], [[1, 2], [3, 4]])]),
    ("text/csv", [["$a", "$b"], "..."], b"1,x\r\n3,y\r\n", [("", INT64, [2], [1, 3]), ("", BYTES, [2], [b"x", b"y"])]),
    (
        "text/csv; header=present",
        [{"$*": "$*"}, "..."],
        b"p,q\r\n1,x\r\n2,y\r\n",
        [("p", INT64, [2], [1, 2]), ("q", BYTES, [2], [b"x", b"y"])],
    ),
    (
        "text/csv; header=present",
        [{"p": "$p", "q": "$q"}, "..."],
        b"p,q\r\n1,2\r\n",
        [("", INT64, [1], [1]), ("", INT64, [1], [2])],
    ),
    ("text/plain", X, b"a text", [("", BYTES, [1], [b"a text"])]),
    ("image/*", X, b"\x89PNG\0", [("", BYTES, [1], [b"\x89PNG\0"])]),
    ("*/*", X, b"", [("", BYTES, [1], [b""])]),
]


@pytest.mark.parametrize(
    ("media_type", "template", "text", "tensors"), BOTH_WAYS, ids=[f"{each[0]} {each[1]}" for each in BOTH_WAYS]
)
def test_a_body_is_read_and_written_as_the_template_has_it(
    media_type: str, template: object, text: bytes, tensors: Shown
) -> None:
    bodies = body(template, media_type=media_type)
    found = bodies.read(text, NO_HEADERS, LIMITS)
    assert shown(found.tensors) == tensors
    assert b"".join(map(bytes, bodies.write(MessageContents(tensors=found.tensors)))) == text


TABLE = {"columns?": "$*|names", "data?": "$*|table"}
READ: list[tuple[object, bytes, Shown]] = [
    ({"a": X, "b?": "$_"}, b' { "b" : {"x":[1,{}]} , "a" : [ 1 , 2 ] } ', [("", INT64, [2], [1, 2])]),
    ({"a": X}, b'\xef\xbb\xbf{"a":[1]}', [("", INT64, [1], [1])]),
    ({"a": X}, b'{"\\u0061":[1]}', [("", INT64, [1], [1])]),
    ({"a": X}, b'{"a":[1,2.5]}', [("", FP64, [2], [1.0, 2.5])]),
    ({"a": "$x|items"}, b'{"a":1}', [("", INT64, [1], [1])]),
    ({"a": "$x|texts"}, b'{"a":"p"}', [("", BYTES, [1], [b"p"])]),
    ({"a": "$x|texts"}, b'{"a":[]}', [("", BYTES, [0], [])]),
    ([[X, "..."], "..."], b"[]", [("", INT64, [0, 0], [])]),
    ([[{"a": X}, "..."], "..."], b"[[],[]]", [("", INT64, [2, 0], [[], []])]),
    ({"a": X, "b?": "$y"}, b'{"a":[1]}', [("", INT64, [1], [1])]),
    ([{"a": "$a", "b?": "$b"}, "..."], b'[{"a":1},{"a":2}]', [("", INT64, [2], [1, 2])]),
    ([{"$*": "$*"}, "..."], b'[{"p":1,"q":2},{"q":3,"p":4}]', [("p", INT64, [2], [1, 4]), ("q", INT64, [2], [2, 3])]),
    ([{"a": "$a"}, "..."], b"[]", [("", INT64, [0], [])]),
    (
        [{"a": X, "b": "$y"}, "..."],
        b'[{"a":1,"b":2},{"b":3,"a":4}]',
        [("", INT64, [2], [1, 4]), ("", INT64, [2], [2, 3])],
    ),
    ({"a": "$_=1", "x": X}, b'{"a":[{"b":2}],"x":[1]}', [("", INT64, [1], [1])]),
    ([{"i?": "$index", "a": X}, "..."], b'[{"a":1},{"i":1,"a":2},{"i":null,"a":3}]', [("", INT64, [3], [1, 2, 3])]),
    ([[{"i": "$index", "a": X}, "..."], "..."], b"[[]]", [("", INT64, [1, 0], [[]])]),
    ({"r?": [{"i": "$index", "a": "$a"}, "..."], "b": X}, b'{"b":[1]}', [("", INT64, [1], [1])]),
    ({"s?": "$x|shape", "v": "$x|flat"}, b'{"v":[1,2]}', [("", INT64, [2], [1, 2])]),
    ({"in?": {"$*": "$*"}, "a?": "$_"}, b'{"a":1}', []),
    (TABLE, b'{"data":[[1,"s"]]}', [("0", INT64, [1], [1]), ("1", BYTES, [1], [b"s"])]),
    (TABLE, b'{"columns":["p"],"data":[]}', [("p", INT64, [0], [])]),
    (TABLE, b'{"columns":["p"]}', []),
    ([{"a": "$x|npy"}, "..."], b"[]", [("", FP64, [0], [])]),
    ([{"a": "$x|bytes"}, "..."], b"[]", [("", BYTES, [0], [])]),
    ({"a": "$x|bytes"}, b'{"a":"%b"}' % (b"A" * (2**20 + 4)), [("", BYTES, [1], [bytes(2**18 * 3 + 3)])]),
    # a colon in a string is no member
    ({"a": X, "b?": "$_"}, b'{"a":["x:y"],"b":"z:{:"}', [("", BYTES, [1], [b"x:y"])]),
]


@pytest.mark.parametrize(("template", "text", "tensors"), READ, ids=[str(each[1][:40]) for each in READ])
def test_a_body_may_be_written_in_other_ways(template: object, text: bytes, tensors: Shown) -> None:
    assert shown(read(template, text).tensors) == tensors


def test_nan_and_infinities_are_read_where_tensors_stand_and_written_as_the_route_says() -> None:
    for template, text in (({"a": X}, b'{"a":[NaN,-Infinity]}'), ([{"a": X}, "..."], b'[{"a":NaN},{"a":-Infinity}]')):
        found = read(template, text)
        [each] = found.tensors
        assert str(each.array.tolist()) == "[nan, -inf]"
        assert body(template).write(MessageContents(nan="literal", tensors=found.tensors)) == (text,)
        with pytest.raises(GatewayError, match="nan, for which JSON has no number"):
            body(template).write(MessageContents(tensors=found.tensors))
    with pytest.raises(DecodeError, match="where JSON does not"):
        read({"a": X, "b?": "$param.b"}, b'{"a":[1],"b":NaN}')
    [each] = read({"$*": "$*"}, b'{"\x7f":[NaN]}').tensors
    assert each.name == "\x7f"
    with pytest.raises(DecodeError, match="not JSON"):
        read({"a": X, "b": "$z"}, b'{"a":[NaN],"b":["\x7fNaN"]}')


def test_words_and_parameters_have_their_places() -> None:
    template = {"a": X, "id?": "$id", "m": "$model", "v?": "$version", "k?": "$param.top_k", "params?": "$params"}
    text = b'{"a":[1],"id":"7","m":"iris","v":"2","k":5,"params":{"t":0.5,"l":[1,{"a":null}],"s":"x"}}'
    found = read(template, text)
    assert found.words == {Word.ID: "7", Word.MODEL: "iris", Word.VERSION: "2"}
    assert found.parameters == {"top_k": 5, "t": 0.5, "l": '[1,{"a":null}]', "s": "x"}
    said = MessageContents(tensors=found.tensors, words=found.words, parameters=found.parameters, texts=found.texts)
    assert body(template).write(said) == (text,)


def test_a_list_that_is_a_parameter_is_a_text_for_others() -> None:
    parameters = {"l": "[1,2]"}
    written = body({"a": X, "params?": "$params"}).write(
        MessageContents(tensors=(tensor("", np.array([1])),), parameters=parameters)
    )
    assert written == (b'{"a":[1],"params":{"l":"[1,2]"}}',)


def test_words_and_parameters_can_stand_beside_any_tensors() -> None:
    template = {"o?": {"id": "$id"}, "params?": "$params", "$*": "$*"}
    found = read(template, b'{"o":{"id":"7"},"x":[1],"params":{"t":0.5}}')
    assert (found.words, found.parameters) == ({Word.ID: "7"}, {"t": 0.5})
    for text in (b'{"x":[1]}', b'{"o":null,"params":null,"x":[1]}'):
        found = read(template, text)
        assert (found.words, found.parameters, shown(found.tensors)) == ({}, {}, [("x", INT64, [1], [1])])


def test_what_may_be_missing_is_written_only_if_it_is_there() -> None:
    template = {"a": X, "b?": "$y", "c?": "constant", "d?": "$_=1", "id?": "$id", "o?": {"p?": "$param.p"}}
    assert body(template).write(MessageContents(tensors=(tensor("x", np.array([1])),))) == (b'{"a":[1]}',)


@pytest.mark.parametrize(
    ("template", "given", "specs", "text"),
    [
        # what is missing in rows
        ([{"a": X, "b?": {"c?": "$y"}}, "..."], [1, 2], {}, b'[{"a":1},{"a":2}]'),
        ([{"a": X, "b": {"c?": "$y"}}, "..."], [1, 2], {}, b'[{"a":1,"b":{}},{"a":2,"b":{}}]'),
        # in the datatype and the shape that the form declares
        ({"a": X}, [1.0, 2.0], spec("x", "INT64", -1), b'{"a":[1,2]}'),
        ({"a": "$x|scalar"}, [[1.5]], spec("x", "FP64"), b'{"a":1.5}'),
    ],
)
def test_a_tensor_is_written_as_the_template_has_it(
    template: object, given: list[Any], specs: dict[str, TensorSpec], text: bytes
) -> None:
    tensors = (tensor("x", np.array(given)),)
    assert body(template, specs).write(MessageContents(tensors=tensors)) == (text,)


def test_bytes_are_written_in_base64_if_the_route_says_so() -> None:
    said = MessageContents(tensors=(tensor("x", np.array([b"\xff", b"a"])),), translate=Translate(bytes="base64"))
    for template in ({"a": X}, {"a": "$x|texts"}):
        assert body(template).write(said) == (b'{"a":["/w==","YQ=="]}',)
    assert body([{"a": X}, "..."]).write(said) == (b'[{"a":"/w=="},{"a":"YQ=="}]',)


def test_alternatives_are_tried_in_their_order() -> None:
    template = {"$any": [{"inputs": "$x|texts"}, {"inputs": X}, {"rows": [{"$*": "$*"}, "..."]}]}
    assert shown(read(template, b'{"inputs":"a"}').tensors) == [("", BYTES, [1], [b"a"])]
    assert shown(read(template, b'{"inputs":[1]}').tensors) == [("", INT64, [1], [1])]
    assert shown(read(template, b'{"rows":[{"p":1}]}').tensors) == [("p", INT64, [1], [1])]
    kinds = {"$any": [{"k": 1, "$*": "$*"}, {"k": 2, "b": X}]}
    assert shown(read(kinds, b'{"k":2,"b":[1]}').tensors) == [("", INT64, [1], [1])]
    one, two = tensor("p", np.array([1])), tensor("q", np.array([2]))
    assert body(template).write(MessageContents(tensors=(one,))) == (b'{"inputs":[1]}',)
    assert body(template).write(MessageContents(tensors=(one, two))) == (b'{"rows":[{"p":1,"q":2}]}',)
    with pytest.raises(DecodeError, match="3 alternatives"):
        read(template, b"{}")
    with pytest.raises(DecodeError, match="ragged"):
        read(template, b'{"inputs":[[1],[[2]]]}')


DECLARED: list[tuple[object, dict[str, TensorSpec], bytes, Any]] = [
    ({"a": X}, spec("x", "FP64", -1, 2), b'{"a":[[1.0,2.0]]}', [[1.0, 2.0]]),
    ({"a": X}, spec("x", "FP32", -1), b'{"a":[1.5]}', [1.5]),
    ({"a": X}, spec("x", "INT8", 2), b'{"a":[1,-2]}', [1, -2]),
    ({"a": X}, spec("x", "BF16", 2), b'{"a":[1.0,-2.0]}', [1.0, -2.0]),
    ({"a": X}, spec("x", "BOOL", 2), b'{"a":[true,false]}', [True, False]),
    ({"a": X}, spec("x", "BYTES", -1), b'{"a":["t"]}', [b"t"]),
    ({"a": "$x|flat"}, spec("x", "FP64", -1, 2), b'{"a":[1.0,2.0,3.0,4.0]}', [[1.0, 2.0], [3.0, 4.0]]),
    ({"a": "$x|npy"}, spec("x", "INT64", -1), b'{"a":"%b"}' % npy([1, 2]), [1, 2]),
    ({"a": "$x|scalar"}, spec("x", "FP64"), b'{"a":1.5}', 1.5),
    ([{"a": "$x|scalar"}, "..."], spec("x", "FP64", -1, 1), b'[{"a":1.5},{"a":2.5}]', [[1.5], [2.5]]),
    ({"a": "$x|base64"}, spec("x", "FP32", -1, 1), b'{"a":"AACAPwAAIEAAAEDA"}', [[1.0], [2.5], [-3.0]]),
]


@pytest.mark.parametrize(("template", "specs", "text", "elements"), DECLARED, ids=[str(each[2]) for each in DECLARED])
def test_a_declared_tensor_has_its_datatype_and_shape(
    template: object, specs: dict[str, TensorSpec], text: bytes, elements: Any
) -> None:
    bodies = body(template, specs)
    found = bodies.read(text, NO_HEADERS, LIMITS)
    [each] = found.tensors
    assert (each.name, each.datatype, each.array.tolist()) == ("x", specs["x"].datatype, elements)
    assert b"".join(map(bytes, bodies.write(MessageContents(tensors=found.tensors)))) == text


def test_a_file_of_another_datatype_than_declared_is_refused() -> None:
    with pytest.raises(DecodeError, match="input 'x' is INT64, expected FP32"):
        read({"a": "$x|npy"}, b'{"a":"%b"}' % npy([1]), spec("x", "FP32", -1))


@pytest.mark.parametrize(
    ("specs", "text", "why"),
    [
        (spec("x", "FP64", -1, 4), b'{"a":[[1,2,3]]}', r"input 'x' has shape \[1, 3\], expected \[-1, 4\]"),
        (spec("x", "FP64", -1, 4), b'{"a":[[1,2,3,4],[1]]}', "ragged"),
        (spec("x", "FP64", -1), b'{"a":["1"]}', "input 'x': holds strings, expected FP64"),
        (spec("x", "BYTES", -1), b'{"a":[1]}', "input 'x': holds no strings, expected BYTES"),
        (spec("x", "FP64", -1), b'{"a":[true]}', "true or false, expected FP64"),
        (spec("x", "INT8", -1), b'{"a":[128]}', "128"),
        (spec("x", "INT8", -1), b'{"a":[1.5]}', "1.5"),
        (spec("x", "BOOL", -1), b'{"a":[1]}', "numbers, expected BOOL"),
        (spec("x", "FP32", -1), b'{"a":[1e300]}', "1e"),
    ],
)
def test_a_tensor_that_is_not_as_declared_is_refused(specs: dict[str, TensorSpec], text: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read({"a": X}, text, specs)


def npy_header(shape: str) -> bytes:
    """A .npy file without elements."""
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': %b}" % shape.encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text


ENDLESS = npy_header("(0, 99999999999999999999)")
WIDE = npy_header("(0, 1152921504606846975)")
"""One of these is possible, two are not."""

HOSTILE: list[tuple[object, bytes, str]] = [
    ({"a": X}, b"", "empty body"),
    ({"a": X}, b"  \n", "empty body"),
    ({"a": X}, b"[1]", "Expected `object`"),
    ({"a": X}, b'{"a":[1]', "not JSON"),
    ({"a": X}, b'{"a":[1]}}', "not JSON"),
    ({"a": X}, b'{"a":[1]} {"a":[2]}', "not JSON"),
    ({"a": X}, b'{"a":}', "not JSON"),
    ({"a": X, "b": "$b"}, b'{"a": ,"b":[%b]}' % b",".join([b"1"] * 3000), "^not JSON: input 'x' is missing$"),
    ({"a": X}, b'{"a":[1,]}', "not JSON"),
    ({"a": X}, b'{"a":[01]}', "not JSON"),
    ({"a": X}, b'{"a":[1],"a":[2]}', "'a' occurs twice"),
    ({"a": X}, b'{"a":[1],"\\u0061":[2]}', "'a' occurs twice"),
    ({"a": X, "b?": "$_"}, b'{"a":[1],"b":{"c":1,"c":2}}', "'c' occurs twice"),
    ({"a": X}, b'{"a":[1],"more":1}', "member `more` is not in the form"),
    ({"a": X}, b"{}", "missing required field `a`"),
    ({"a": X}, b'{"a":null}', "input 'x'"),
    ({"a": X}, b'{"a":[1,null]}', "input 'x'"),
    ({"a": X}, b'{"a":{"b":1}}', "object"),
    ({"a": X}, b'{"a":[{"b":1}]}', "input 'x'"),
    ({"a": X}, b'{"a":[[1],[[2]]]}', "ragged"),
    ({"a": X}, b'{"a":[[1],2]}', "ragged"),
    ({"a": X}, b'{"a":[1,"a"]}', "input 'x'"),
    ({"a": X}, b'{"a":[1,true]}', "input 'x'"),
    ({"a": X}, b'{"a":[18446744073709551616]}', "18446744073709551616"),
    ({"a": X}, b'{"a":[-9223372036854775809]}', "9223372036854775809"),
    ({"a": X}, b'{"a":[18446744073709551615,-1]}', "input 'x'"),
    ({"a": X}, b'{"a":[1e400]}', "element 0 is out of the range of a double"),
    ({"a": X}, b'{"a":["\xff"]}', "UTF-8"),
    ({"a": X}, b'{"a":["\\ud800"]}', "not JSON"),
    ({"a": X}, b'{"a":' + b"[" * 40 + b"1" + b"]" * 40 + b"}", "32 dimensions"),
    ({"a": X}, b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested deeper"),
    ({"a": X, "b?": "$_"}, b'{"a":[1],"b":' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
    ({"a": X, "b?": "$_"}, b'{"a":[1],"b":[' + b"0," * 15000 + b"0]}", "limits.json_values"),
    ({"a": X, "b?": "$_"}, b'{"a":[1],"b":[' + b"0," * 30000 + b"0]}", "limits.json_values"),
    ({"a": X, "b?": "$_"}, b'{"a":[1],"b":{' + b",".join(b'"%d":0' % at for at in range(11000)) + b"}}", "json_values"),
    ({"a": X, "p?": "$params"}, b'{"a":[1],"p":{' + b",".join(b'"%d":0' % at for at in range(11000)) + b"}}", "values"),
    ({"a": X, "id?": "$id"}, b'{"a":[1],"id":7}', "Expected `str"),
    ({"a": X, "k": "v"}, b'{"a":[1],"k":"w"}', "Invalid enum value 'w'"),
    ({"a": X, "k": 1}, b'{"a":[1],"k":2}', "Invalid enum value 2"),
    ({"a": X, "k": True}, b'{"a":[1],"k":false}', "expected True"),
    ({"a": X, "k": 1.5}, b'{"a":[1],"k":2.5}', "expected 1.5"),
    ({"a": X, "k": None}, b'{"a":[1],"k":0}', "Expected `null`"),
    ({"a": X, "k": [1]}, b'{"a":[1],"k":[1,1]}', "length 1"),
    ([{"a": "$a", "b?": "$b"}, "..."], b'[{"a":1,"b":1},{"a":2}]', "'b' is missing in row 1"),
    ([{"a": "$a"}, "..."], b'[{"a":1},{"a":[2]}]', "input 'a'"),
    ([{"a": "$a"}, "..."], b'[{"a":1},{"a":"t"}]', "input 'a'"),
    ([{"a": "$a"}, "..."], b'[{"a":1},{}]', "missing required field `a`"),
    ([{"a": "$a"}, "..."], b'[{"a":1,"a":2}]', "'a' occurs twice"),
    ([{"i": "$index", "a": "$a"}, "..."], b'[{"i":1,"a":1},{"i":2,"a":2}]', "expected each from 0 on once"),
    ([{"i?": "$index", "a": "$a"}, "..."], b'[{"a":1},{"i":0,"a":2}]', "row 1 says that its index is 0: rows"),
    ([[{"i": "$index"}, "..."], "..."], b'[[{"i":0}],[{"i":1}]]', "row 0 says that its index is 1: rows"),
    ([X, "..."], b"1", "expected 1 levels of lists for rows"),
    ([{"$*": "$*"}, "..."], b'[{"p":1},{"q":2}]', "row 1 has the members"),
    ([{"$*": "$*"}, "..."], b'[{"p":1},{"p":1,"p":2}]', "'p' occurs twice"),
    ([{"a?": {"$*": "$*"}}, "..."], b'[{"a":{"p":1}},{}]', "row 1 has the members"),
    ({"k": 1, "$*": "$*"}, b'{"k":2,"p":[1]}', r"^Invalid enum value 2 - at `\$\.k`$"),
    ({"k": 1, "$*": "$*"}, b'{"p":[1]}', "^Object missing required field `k`$"),
    ({"o?": {"id": "$id"}, "$*": "$*"}, b'{"o":{"id":2},"p":[1]}', r"^Expected `str`, got `int` - at `\$\.o\.id`$"),
    ([{"id": {"a": 1}, "$*": "$*"}, "..."], b'[{"id":{"a":2},"p":1}]', r"^Invalid enum value 2 - at `\$\.id\.a`$"),
    ({"o": {"k": "v"}, "$*": "$*"}, b'{"o":{"k":"\xff"},"p":[1]}', "^not JSON: Invalid UTF-8 encoded string$"),
    ({"$*": "$*"}, b'{"":[1]}', "empty name"),
    ({"$*": "$*"}, b'{"p":{"q":1}}', "object"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[3],"v":[1,2]}', r"expected \[3\]"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[-1],"v":[1,2]}', "shape"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[99999999999999999999],"v":[1]}', "shape"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[1.0],"v":[1]}', "shape"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":[1],"v":[[1]]}', "one flat list"),
    ({"s": "$x|shape", "v": "$x|flat"}, b'{"s":' + b"[" + b"1," * 40 + b'1],"v":[1]}', "up to 32 sizes"),
    ({"a": "$x|row"}, b'{"a":[[1]]}', "flat list of numbers"),
    ({"a": "$x|row"}, b'{"a":["t"]}', "flat list of numbers"),
    ({"a": "$x|texts"}, b'{"a":[1]}', "a text or a list of texts"),
    ({"a": "$x|texts"}, b'{"a":{"b":"t"}}', "object"),
    ({"a": "$x|scalar"}, b'{"a":[1]}', "expected one element"),
    ({"a": "$x|text"}, b'{"a":1}', "expected a text"),
    ({"a": "$x|bytes"}, b'{"a":"A"}', "not base64"),
    ({"a": "$x|bytes"}, b'{"a":"A-_="}', "not base64"),
    ({"a": "$x|bytes"}, b'{"a":"%b=AAAA"}' % (b"A" * (2**20 - 1)), "input 'x': not base64: padding before the end"),
    ({"a": "$x|bytes"}, b'{"a":1}', "base64"),
    ({"a": "$x|npy"}, b'{"a":[]}', "a list, expected base64 in a string"),
    ([{"a": "$x|npy"}, "..."], b'[{"a":"%b"},{"a":"%b"}]' % (npy([1]), npy([1.5])), r"FP64 \[1\] in file 1 and INT64"),
    ({"a": "$x|npy"}, b'{"a":"AACA"}', "input 'x': the file"),
    ({"a": "$x|npy"}, b'{"a":"%b"}' % b64encode(ENDLESS), "input 'x': the file: shape .* spans more than 2"),
    ([{"a": "$x|npy"}, "..."], b'[{"a":"%b"},{"a":"%b"}]' % ((b64encode(WIDE),) * 2), r"input 'x': shape \[2, 0, "),
    ({"a": "$x|flat", "s": "$x|shape"}, b'{"a":[],"s":[0,9223372036854775808]}', "input 'x': shape .* spans more"),
    ({"a": "$x|base64:FP32"}, b'{"a":"AACA"}', "3 bytes, expected a multiple of the 4 of FP32"),
    ({"a": "$x|base64:BOOL"}, b'{"a":"Ag=="}', "expected bytes 0 or 1"),
    ([{"e": "$x|base64:INT8"}, "..."], b'[{"e":"AQI="},{"e":"AQ=="}]', "ragged"),
    ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":["p","p"],"data":[[1,2]]}', "expected different names"),
    (TABLE, b'{"columns":[%b]}' % b",".join([b'"p"'] * 10_002), "^more than 10000 names of columns "),
    ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":["p"],"data":[[1,2]]}', "2 cells for 1 columns"),
    ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":["p"],"data":[1]}', "Expected `array`"),
    ({"a": X, "p?": "$params", "q?": "$param.q"}, b'{"a":[1],"q":1,"p":{"q":2}}', "'q' is at two places"),
]


@pytest.mark.parametrize(("template", "text", "why"), HOSTILE, ids=[f"{t} {b[:40]!r}" for t, b, _ in HOSTILE])
def test_a_body_that_is_not_as_its_template_is_refused(template: object, text: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(template, text)


def test_unknown_members_are_ignored_only_if_the_form_says_so_and_never_twice() -> None:
    found = read({"a": X}, b'{"a":[1],"more":{"b":[{}]}}', ignore_unknown=True)
    assert shown(found.tensors) == [("", INT64, [1], [1])]
    with pytest.raises(DecodeError, match="'more' occurs twice"):
        read({"a": X}, b'{"a":[1],"more":1,"more":2}', ignore_unknown=True)


def test_large_tensors_are_cut_out_of_their_body() -> None:
    numbers = ",".join(map(str, range(3000))).encode()
    for text in (b'{"a":[%b]}', b'{"b":{"c":1},"a":[%b]}', b'{"b":{"a":[5]},"a":[%b]}', b'{"a":[%b],"b":"\\n"}'):
        [each] = read({"a": X, "b?": "$_"}, text % numbers).tensors
        assert each.array.tolist() == list(range(3000))
    # the only `a` stands in what is passed over
    found = read({"a?": X, "b?": "$params"}, b'{"b":{"b":{"a":[%b]}}}' % numbers)
    assert (found.tensors, found.parameters["b"]) == ((), '{"a":[%b]}'.replace("%b", numbers.decode()))
    for text in (b'{"a":[%b],"a":[%b]}', b'{"a":[%b] 1}', b'{"a":[%b]],"b":1}'):
        with pytest.raises(DecodeError):
            read({"a": X, "b?": "$_"}, text.replace(b"%b", numbers))


def test_rows_beyond_the_limit_of_a_message_are_refused_before_they_become_objects() -> None:
    rows = b"[%b]" % b",".join([b'{"a":1}'] * 20000)
    limits = Limits(message=len(rows))
    with pytest.raises(GatewayError, match=r"limits\.message"):
        body([{"a": X}, "..."]).read(rows, NO_HEADERS, limits)
    assert len(read([{"a": X}, "..."], rows).tensors[0].array) == 20000
    # a text without commas is one element
    [each] = body({"a": X}).read(b'{"a":"%b"}' % rows.replace(b",", b"").replace(b'"', b""), NO_HEADERS, limits).tensors
    assert each.shape == ()


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ({"a": X}, b'{"%b":1}' % (b"k" * 100_000)),
        ({"a": X, "b": "constant"}, b'{"a":[1],"b":"%b"}' % (b"k" * 100_000)),
        ({"a": X, "b?": "$_"}, b'{"a":[1],"b":{"%b":1,"%b":2}}' % ((b"k" * 100_000,) * 2)),
        ({"a": X, "b": "$id", "c": "$id"}, b'{"a":[1],"b":"1","c":"%b"}' % (b"k" * 100_000)),
        ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":["%b",""],"data":[]}' % (b"k" * 100_000)),
    ],
)
def test_an_error_quotes_little_of_the_body(template: object, text: bytes) -> None:
    with pytest.raises(DecodeError) as refused:
        read(template, text)
    assert 10 < len(str(refused.value)) < 2100


GROWING: list[tuple[object, bytes, bytes, bytes]] = [
    ({"r": [{"$*": "$*"}, "..."]}, b'{"r":[', b"{}", b"]}"),
    ({"r": [{"$*": "$*"}, "..."]}, b'{"r":[', b'{"a":1}', b"]}"),
    ({"r": [{"$*": "$*"}, "..."]}, b'{"r":[', b'{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}', b"]}"),
    ({"r": [{"x": X}, "..."]}, b'{"r":[', b'{"x":1}', b"]}"),
    ([{"a?": "$a", "b?": "$b", "c?": "$_"}, "..."], b"[", b"{}", b"]"),
    ([[{"l?": "$l"}, "..."], "..."], b"[", b"[]", b"]"),
    ([[{"l?": "$l"}, "..."], "..."], b"[", b"[{}]", b"]"),
    ([[[{"l?": "$l"}, "..."], "..."], "..."], b"[", b"[[]]", b"]"),
    ([["$a", "$b"], "..."], b"[", b"[1,2]", b"]"),
    ({"x": X, "r": ["$_", "..."]}, b'{"x":[1],"r":[', b"1", b"]}"),
    ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":[],"data":[', b"[]", b"]}"),
    ({"columns": "$*|names", "data": "$*|table"}, b'{"columns":["a","b"],"data":[', b"[1,2]", b"]}"),
    ({"x": "$x|flat", "s": "$x|shape"}, b'{"x":[1],"s":[', b"1", b"]}"),
]


@pytest.mark.parametrize(("template", "before", "row", "after"), GROWING, ids=[str(each[2]) for each in GROWING])
def test_rows_take_no_more_memory_than_a_message_may(template: object, before: bytes, row: bytes, after: bytes) -> None:
    bodies, limits = body(template), Limits(message=2**20)
    refused = 0
    for count in (1000, 2000, 3000, 4000, 6000, 8000, 12000, 16000, 64000):
        text = before + b",".join([row] * count) + after
        with traced() as memory:
            try:
                bodies.read(text, NO_HEADERS, limits)
            except (DecodeError, GatewayError):
                refused += 1
        assert memory.peak < limits.message * 5 // 4 + 2 * len(text), count
    assert refused


@pytest.mark.parametrize(
    "text",
    [
        b"[%b%b" % (b":" * 10001, b"{" * 100_000),
        b"[%b%b" % (b":" * 10001, b"}" * 10_000),
        b"[{%b" % b",".join([b'"%d":0' % at for at in range(100_000)]),
    ],
    ids=["braces", "closing braces", "keys"],
)
def test_members_are_counted_in_little_memory(text: bytes) -> None:
    bodies = body({"a": X})
    with traced() as memory, pytest.raises(DecodeError):
        bodies.read(text, NO_HEADERS, LIMITS)
    assert memory.peak < 6 * 2**20


def test_an_alternative_with_rows_does_not_refuse_tensors_that_another_has() -> None:
    template = {"$any": [[[{"a": "$a"}, "..."], "..."], X]}
    rows = b"[%b]" % b",".join([b"[1,2]"] * 20_000)
    [each] = body(template).read(rows, NO_HEADERS, Limits(message=2**20)).tensors
    assert each.shape == (20_000, 2)
    with pytest.raises(GatewayError, match=r"rows and members of the body take \d+ bytes of memory, limits\.message"):
        body(template).read(b"[%b]" % b",".join([b"[{}]"] * 20_000), NO_HEADERS, Limits(message=2**20))


WRITTEN_WRONG: list[tuple[object, list[Tensor], str]] = [
    ({"a": X}, [], "input 'x' is missing"),
    ({"a": X}, [tensor("p", np.array([1])), tensor("q", np.array([1]))], "2 inputs, but the form has places for 1"),
    ({"a": [{"p": "$p", "q": "$q"}, "..."]}, [tensor("p", np.ones(2)), tensor("q", np.ones(3))], "one number of rows"),
    ({"a": [{"p": "$p"}, "..."]}, [tensor("p", np.array(1.0))], "expected 1 dimensions or more"),
    ({"a": "$x|scalar"}, [tensor("x", np.ones(2))], "one element"),
    ({"a": "$x|scalar"}, [tensor("x", np.ones((1, 1)))], "one element"),
    ({"a": "$x|text"}, [tensor("x", np.ones(1))], "expected BYTES"),
    ({"a": "$x|row"}, [tensor("x", np.ones((2, 2)))], "expected one row"),
    ({"a": "$x|texts"}, [tensor("x", np.ones(2))], "expected a list of texts"),
    ({"a": "$x|base64:FP32"}, [tensor("x", np.array(["a"]))], "FP32"),
    ({"a": "$x|base64:FP32"}, [tensor("x", np.array([1e300]))], "FP32"),
    ({"a": "$x|flat"}, [tensor("x", np.ones((2, 2)))], "nothing in a flat list would tell"),
    ({"a": "$x|flat"}, [tensor("x", np.array(1.0))], "nothing in a flat list would tell"),
    ({"a": "$x|base64:FP64"}, [tensor("x", np.ones((2, 2)))], r"add a place for \$x\|shape"),
    ([{"a": "$x|flat"}, "..."], [tensor("x", np.ones((2, 2, 2)))], "nothing in a flat list would tell"),
    ({"columns": "$*|names", "data": "$*|table"}, [tensor("p", np.ones((2, 2)))], "one element a row"),
    ({"k": 1, "$*": "$*"}, [tensor("k", np.ones(1))], "member of the form"),
    ({"$*": "$*"}, [tensor("p", np.ones(1)), tensor("p", np.ones(1))], "twice"),
    ([{"$*": "$*"}, "..."], [tensor("p", np.ones(0))], "no rows, so the form has no place for their names"),
    ([[X, "..."], "..."], [tensor("x", np.ones(2))], "expected rows"),
    ({"a": X, "m": "$model"}, [tensor("x", np.ones(1))], "the form requires 'm', but the message has nothing for it"),
    ({"a": X, "l": ["$model"]}, [tensor("x", np.ones(1))], "an element of a list"),
    ([{"a": X, "l?": ["$y", "$z"]}, "..."], [tensor("x", np.ones(1)), tensor("y", np.ones(1))], "an element of a row"),
    (
        [{"a": X, "o?": {"y": "$y", "z": "$z"}}, "..."],
        [tensor("x", np.ones(1)), tensor("y", np.ones(1))],
        "requires 'z'",
    ),
    ([{"a": "$a", "s": [X, "..."]}, "..."], [tensor("a", np.ones(2)), tensor("x", np.ones(2))], "2 dimensions of rows"),
    ({"a": "$x|npy"}, [tensor("x", np.array(["a"]))], "^input 'x' is BYTES, which a .npy file holds as pickles only$"),
    ({"a": X}, [tensor("x", np.array([b"\xff"]))], "not UTF-8"),
]


@pytest.mark.parametrize(("template", "tensors", "why"), WRITTEN_WRONG, ids=[str(each[0]) for each in WRITTEN_WRONG])
def test_what_a_template_has_no_place_for_is_refused(template: object, tensors: list[Tensor], why: str) -> None:
    with pytest.raises(GatewayError, match=why):
        body(template).write(MessageContents(tensors=tuple(tensors)))


@pytest.mark.parametrize(
    ("media_type", "template", "role", "given", "why"),
    [
        ("text/plain", X, Role.REQUEST, [b"\xff"], "input 'x' is no text: not UTF-8, expected a text"),
        ("text/plain", "$x|commas", Role.REQUEST, [], "input 'x' has no elements: an empty body would be no numbers"),
        (
            JSON_TYPE,
            ABSENT,
            Role.REQUEST,
            [1],
            "tensor 'x' has no place in the form, which has no body; leave it out",
        ),
        ("text/plain", "$message", Role.ERROR, None, "nothing in the message is $message"),
        (JSON_TYPE, "$message", Role.ERROR, None, "the output to write is missing"),
    ],
)
def test_a_message_that_a_body_cannot_hold_is_refused(
    media_type: str, template: object, role: Role, given: list[Any] | None, why: str
) -> None:
    tensors = () if given is None else (tensor("x", np.array(given)),)
    with pytest.raises(GatewayError) as refused:
        body(template, role=role, media_type=media_type).write(MessageContents(tensors=tensors))
    assert refused.value.message == why


def test_a_parameter_without_a_place_is_refused() -> None:
    said = MessageContents(tensors=(tensor("x", np.ones(1)),), parameters={"top_k": 1})
    with pytest.raises(GatewayError, match="'top_k' has no place"):
        body({"a": X}).write(said)
    with pytest.raises(GatewayError, match="no number"):
        body({"a": X, "k?": "$param.k"}).write(MessageContents(tensors=said.tensors, parameters={"k": float("nan")}))


def test_tensors_go_by_name_if_they_have_the_names_of_the_places_and_else_by_position() -> None:
    template = {"a": "$a", "b": "$b"}
    one, two = np.array([1]), np.array([2])
    for names, text in ((("b", "a"), b'{"a":[2],"b":[1]}'), (("p", "q"), b'{"a":[1],"b":[2]}')):
        tensors = (tensor(names[0], one), tensor(names[1], two))
        assert body(template).write(MessageContents(tensors=tensors)) == (text,)
    specs = {**spec("a", "INT64", -1), **spec("b", "INT64", -1)}
    with pytest.raises(GatewayError, match="'p' has no place in the form, which has 'a', 'b'"):
        body(template, specs).write(MessageContents(tensors=(tensor("p", one), tensor("q", two))))
    nameless = (tensor("input0", one), tensor("input1", two))
    assert body(template, specs).write(MessageContents(tensors=nameless)) == (b'{"a":[1],"b":[2]}',)


def test_a_npy_file_is_a_tensor() -> None:
    bodies = body(X, media_type="application/x-npy")
    given = tensor("x", np.array([[1.5, 2.5]], np.float32))
    file = b"".join(map(bytes, bodies.write(MessageContents(tensors=(given,)))))
    assert file.startswith(b"\x93NUMPY\x01\x00")
    assert shown(bodies.read(file, NO_HEADERS, LIMITS).tensors) == [("", "FP32", [1, 2], [[1.5, 2.5]])]
    with pytest.raises(DecodeError, match="is not that of an array of numbers"):
        bodies.read(file.replace(b"'<f4'", b"'|O' "), NO_HEADERS, LIMITS)
    with pytest.raises(GatewayError, match="is BYTES"):
        bodies.write(MessageContents(tensors=(tensor("x", np.array(["a"])),)))


def test_a_text_is_utf_8() -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        read(X, b"\xff", media_type="text/plain")


def test_the_columns_of_csv_have_the_datatypes_that_are_declared() -> None:
    specs = {**spec("p", "BYTES", -1), **spec("q", "FP32", -1)}
    template = [{"p": "$p", "q": "$q"}, "..."]
    found = body(template, specs, media_type="text/csv; header=present").read(b"p,q\n1,2\n3,\n", Headers(), LIMITS)
    assert str(shown(found.tensors)) == "[('p', 'BYTES', [2], [b'1', b'3']), ('q', 'FP32', [2], [2.0, nan])]"


def test_a_declared_matrix_is_the_rows_of_csv() -> None:
    [found] = read([[X, "..."], "..."], b"1,2\n3,4\n", spec("x", "FP32", -1, 2), media_type="text/csv").tensors
    assert shown((found,)) == [("x", "FP32", [2, 2], [[1.0, 2.0], [3.0, 4.0]])]


@pytest.mark.parametrize(("template", "text"), [(X, b"1\n2.5\n"), (X, b"1,2.5\n"), ([X, "..."], b"1\n2.5\n")])
def test_a_declared_vector_is_a_column_of_csv(template: object, text: bytes) -> None:
    bodies = body(template, spec("x", "FP64", -1), media_type="text/csv")
    found = bodies.read(text, NO_HEADERS, LIMITS)
    assert shown(found.tensors) == [("x", FP64, [2], [1.0, 2.5])]
    assert bodies.write(MessageContents(tensors=found.tensors)) == (b"1.0\r\n2.5\r\n",)


def test_a_table_of_csv_is_no_vector() -> None:
    with pytest.raises(DecodeError, match="expected one column or one row"):
        read(X, b"1,2\n3,4\n", spec("x", "FP64", -1), media_type="text/csv")


@pytest.mark.parametrize(
    ("media_type", "template", "why"),
    [
        ("application/x-npy", {"a": X}, "is one tensor"),
        ("image/png", {"$any": [X, "$y"]}, "is one tensor"),
        ("text/csv", {"a": X}, "is a list"),
        ("text/csv", [{"a": X}, "..."], "only with a header"),
        ("text/csv; header=present", [{"a": {"b": X}}, "..."], "cannot hold a list"),
        ("application/jsonlines", {"a": X}, "is a list"),
        ("json", X, "no media type"),
    ],
)
def test_a_template_that_its_media_type_cannot_spell_is_refused(media_type: str, template: object, why: str) -> None:
    with pytest.raises(FormError, match=why):
        body(template, media_type=media_type)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"' + b'\\"' * 200_000,
        b'{"a":NaN,"b":"' + b'\\"' * 200_000 + b"\\",
        b'{"a":[1],"b":{' + b'"x":1,' * 20_000 + b'"' + b'\\":' * 100_000,
        b'{"a":[1],"b":"' + b"{:" * 200_000,
        b"[" * 400_000,
        b'{"a":' * 100_000,
        b'[{"a":' * 100_000,
    ],
)
def test_a_text_without_an_end_is_looked_at_once(text: bytes) -> None:
    # if it were looked at again and again, this would take minutes
    with pytest.raises(DecodeError):
        read({"a": X, "b?": "$_"}, text)
    with pytest.raises(DecodeError):
        read([{"a": X}, "..."], text)


@pytest.mark.parametrize("item", [b'""', b"NaN"])
def test_literals_among_many_values_take_little_memory(item: bytes) -> None:
    """`re.sub` would take a hundred bytes for each value. A backslash keeps the list in the text of the body."""
    text = b'{"a":[' + item + (b"," + item) * 100_000 + b',NaN],"b":"\\n"}'
    with traced() as memory, pytest.raises(DecodeError):
        read({"a": "$x|texts", "b": "$y|scalar"}, text)
    assert memory.peak < 12 * len(text)


def test_an_unknown_member_with_a_name_of_megabytes_is_refused_with_few_copies_of_it() -> None:
    text = b'{"a":[1],"' + b"k" * 2**22 + b'":1}'
    with traced() as memory, pytest.raises(DecodeError, match=r"member `kkk.*is not in the form") as raised:
        read({"a": X}, text)
    assert len(str(raised.value)) < 10_000
    assert memory.peak < 4 * len(text)


@pytest.mark.long
def test_the_errors_of_alternatives_hold_no_copies_of_the_body() -> None:
    alternatives = {"$any": [{"a": "$x|items", "b": "$_", f"k{at}?": "$_"} for at in range(16)]}
    text = b'{"a":[' + b'"",' * 100_000 + b'{}],"b":"\\n"}'
    with traced() as memory, pytest.raises(DecodeError):
        read(alternatives, text)
    assert memory.peak < 6 * len(text)
