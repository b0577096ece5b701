"""Documents are read as types; the general reader reads the same from them, and reads all others."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.json import typed
from gateway.core.messages import Buffer
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import tensor
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest.messages import REQUESTS, RESPONSES
from tests.limits import examples
from tests.protocols.v2.rest.wire import decode, infer, infer_message, reply

PLAIN = Target("models", "127.0.0.1:8000", "plain")
TRITON = Target("models", "127.0.0.1:8000", "triton")


@pytest.fixture(autouse=True, params=["small", "large"])
def begin_with_small_or_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test is run again with the contents cut out of even the shortest documents."""
    if request.param == "large":
        monkeypatch.setattr(typed, "CUT_FROM", 0)


@contextmanager
def only_the_general_reader() -> Iterator[None]:
    with (
        mock.patch.object(REQUESTS, "read", side_effect=DecodeError),
        mock.patch.object(RESPONSES, "read", side_effect=DecodeError),
    ):
        yield


def said(read: object) -> object:
    """What a request or response says: its value, and the bytes that are written of it; or the refusal."""
    if isinstance(read, Exception):
        return type(read), str(read)
    assert isinstance(read, Request | Response)
    is_request = isinstance(read, Request)
    tensors = read.inputs if isinstance(read, Request) else read.outputs
    contents = [(each.name, each.datatype, each.shape, bytes(each.data), dict(each.parameters)) for each in tensors]
    names = ("model", "version", "id", "parameters", *(("outputs", "deadline") if is_request else ()))
    answered = bytes(V2_REST.encode_response(ANSWER, read, Translate()).body) if isinstance(read, Request) else b""
    return contents, [repr(getattr(read, each)) for each in names], answered, sent_on(read)


ANSWER = Response((tensor("y", np.array([1.5])), tensor("z", np.array([2.5]))), "m")
"""The outputs come in JSON or in binary, as requests ask for them."""


def sent_on(read: Request | Response) -> list[object]:
    """The bodies that each kind of receiver gets, written anew."""
    client = Request(Operation.INFER, "m")
    found: list[object] = []
    for target in (PLAIN, TRITON):
        try:
            if isinstance(read, Request):
                sent = V2_REST.encode_request(read, target)
            else:
                sent = V2_REST.encode_response(read, client, Translate())
            found.append((b"".join(map(bytes, sent.parts)), sent.headers))
        except GatewayError as error:
            found.append(str(error))
    return found


def as_request(body: Buffer, length: int | None) -> object:
    try:
        return infer(body, length)
    except (DecodeError, GatewayError) as error:
        return error


def as_reply(body: Buffer, length: int | None) -> object:
    try:
        return decode(reply(body, length))
    except (DecodeError, GatewayError) as error:
        return error


def with_document(entries: str, more: str = "", role: str = "inputs") -> bytes:
    return f'{{"{role}":[{entries}]{more}}}'.encode()


def of_a_reply(text: bytes) -> bytes:
    """The document of a request with its inputs as outputs."""
    return text.replace(b'"outputs"', b'"asked"').replace(b'"inputs"', b'"outputs"')


def entry(data: str = "[1.5,-2]", datatype: str = "FP64", name: str = "x", shape: str = "[1,2]", more: str = "") -> str:
    return f'{{"name":"{name}","shape":{shape},"datatype":"{datatype}"{more},"data":{data}}}'


DATA = [
    "[1.5,-2]", "[3,4]", "[3.0,4.0]", "[1e3,1E-3]", "[ 1.5 , -2 ]", "[1.5]", "[1.5,-2,3]", "[]", "[[1.5,-2]]",
    "[1.5,null]",
    '["1","2"]', "[true,false]", "[NaN,1]", "[1e400,1]", "[18446744073709551616,1]", "[9223372036854775807,1]",
    "[9007199254740993,1]", "[300,-300]", "[1.5,-2", "[1.5,,2]", "[01,2]", "[1.5,-2]]", "null", "1.5", "[1.5,{}]",
    '[1.5,"]"]', "[1.5,-2],[3,4]", '[1.5,-2],"data":[3,4]', "[4e38,1]",
]  # fmt: skip
DATATYPES = ["FP64", "FP32", "FP16", "INT64", "INT8", "UINT8", "UINT64", "BOOL", "BYTES"]


TEXTS = [
    with_document(entry()),
    with_document(entry("[3,4]")),
    with_document(entry(shape="[2]")),
    with_document(entry(shape="[3]")),
    with_document(entry(name="data")),
    with_document(entry(name="]")),
    with_document(entry(name="[")),
    with_document(entry(name='\\"data\\"')),
    with_document(entry(name="y")),
    with_document(entry(), ',"id":"data"'),
    with_document(entry("[3,4]"), ',"id":"data"'),
    with_document(entry(), ',"id":"1"'),
    with_document(entry(), ',"id":null'),
    with_document(entry(), ',"more":[1,2]'),
    *[
        b'{"id":%b,"inputs":[' % id + entry(data).encode() + b"]}"
        for id in b'"7" "8" "" null 7 "a\\" "\\u0061" "\xc3\xa4" "\x01" "id" "data" "["'.split()
        for data in ("[1.5,-2]", "[3,4.5]")
    ],
    b'{ "id" : "7" ,"inputs":[' + entry().encode() + b"]}",
    b'{"id":["7"],"inputs":[' + entry().encode() + b"]}",
    b'{"id":"7","id":"8","inputs":[' + entry().encode() + b"]}",
    b'{"x":{"id":"7"},"inputs":[' + entry().encode() + b"]}",
    b'{"model_name":"m","id":"7","parameters":{},'
    + with_document(entry(more=',"parameters":{"content_type":"np"}'))[1:],
    b'{"id":"8","parameters":{"p":1},"inputs":[' + entry().encode() + b"]}",
    *[
        with_document(entry(data), f',"outputs":{outputs}')
        for outputs in (
            '[{"name":"y"}]',
            '[{"name":"z"}]',
            '[{"name":"data"}]',
            '[{"name":"y","parameters":{"binary_data":false}}]',
            '[{"name":"y","parameters":{"binary_data":true}}]',
            '[{"name":"y","parameters":{"binary_data":true}},{"name":"z"}]',
            '[{"name":"y","parameters":{"classification":2}}]',
            '[{"name":"y","parameters":{"binary_data":1}}]',
            "[]",
            "null",
        )
        for data in ("[1.5,-2]", "[3,4.5]")
    ],
    b'{"outputs":[{"name":"y"}],"inputs":[' + entry().encode() + b"]}",
    b'{"outputs":[{"name":"y"}],"id":"7","inputs":[' + entry().encode() + b"]}",
    with_document(entry(), ',"parameters":{"timeout":1000000}'),
    with_document(entry(), ',"parameters":{"data":1}'),
    with_document(entry(more=',"parameters":{"p":1}')),
    with_document(entry(more=',"parameters":{}')),
    with_document(entry(more=',"data":[7,8]')),
    with_document(f"{entry()},{entry(name='y')}"),
    with_document(f"{entry('[3,4]')},{entry('[5,6]')}"),
    with_document(entry("[[1.5],[2.5]]")),
    with_document(entry("[1.5],[2.5]")),
    with_document(entry('[1.5,"]."]')),
    with_document(f"{entry('[3,4]')},{entry('[5,6]', name='y')}"),
    with_document(entry()).replace(b'"data":', b'"data" : '),
    with_document(entry()).replace(b'"data":', b'"\\u0064ata":'),
    with_document(entry()).replace(b'{"name"', b'{"x":"data","name"'),
    b'{"id":"data","inputs":[1,2],"inputs":[' + entry().encode() + b"]}",
    b'{"a":["data",[1,2]],"inputs":[' + entry("[1,2]").encode() + b"]}",
    b'{"a":["data",[3,4]],"inputs":[' + entry("[1,2]").encode() + b"]}",
    b" " + with_document(entry()),
    with_document(entry()) + b" ",
    with_document(entry()) + b"]}",
    with_document(entry())[:-1],
    with_document(entry())[:-1] + b" ",
    b"",
]


RAW = bytes(range(16))


def binary_entry(size: int = 16, datatype: str = "FP64", shape: str = "[1,2]", more: str = "") -> str:
    given = f'"parameters":{{"binary_data_size":{size}{more}}}'
    return f'{{"name":"x","shape":{shape},"datatype":"{datatype}",{given}}}'


BINARY_TEXTS = [
    with_document(binary_entry()),
    with_document(binary_entry(), ',"parameters":{"binary_data_output":true}'),
    with_document(binary_entry(), ',"parameters":{"binary_data_output":true,"timeout":5000000}'),
    with_document(binary_entry(), ',"parameters":{"binary_data_output":true,"priority":1}'),
    with_document(binary_entry(), ',"parameters":{"p":1}'),
    with_document(binary_entry(), ',"outputs":[{"name":"y","parameters":{"binary_data":true}}]'),
    with_document(binary_entry(), ',"outputs":[{"name":"y","parameters":{"binary_data":false}}]'),
    with_document(binary_entry(), ',"id":""'),
    with_document(binary_entry(), ',"id":"7"'),
    with_document(binary_entry(more=',"p":1')),
    with_document(binary_entry(8)),
    with_document(binary_entry(datatype="INT64")),
    with_document(binary_entry(datatype="BOOL", shape="[16]")),
    with_document(binary_entry(datatype="BYTES", shape="[1]")),
    with_document(binary_entry(0, shape="[0]")),
    with_document(binary_entry(8, shape="[1]") + "," + binary_entry(8, shape="[1]").replace('"x"', '"y"')),
]
CONTENTS = [RAW, RAW[::-1], RAW[:8], RAW + b"\0", b"", b"\0\0\0\0" + RAW]


READS = {"inputs": as_request, "outputs": as_reply}


def assert_same(body: Buffer, role: str, length: int | None = None) -> None:
    """The body says the same, or is refused in the same words, whichever reader reads it first."""
    found = said(READS[role](body, length))
    with only_the_general_reader():
        assert found == said(READS[role](body, length)), bytes(body)


@pytest.mark.parametrize("role", READS)
@pytest.mark.parametrize("datatype", DATATYPES)
def test_any_data(datatype: str, role: str) -> None:
    for data in DATA:
        assert_same(with_document(entry(data, datatype), role=role), role)
        assert_same(with_document(f"{entry(name='y')},{entry(data, datatype)}", role=role), role)


@pytest.mark.parametrize("text", TEXTS)
def test_any_document(text: bytes) -> None:
    assert_same(text, "inputs")
    assert_same(of_a_reply(text), "outputs")


@pytest.mark.parametrize("contents", CONTENTS, ids=lambda each: f"{len(each)} bytes")
@pytest.mark.parametrize("text", BINARY_TEXTS)
def test_any_binary_body(text: bytes, contents: bytes) -> None:
    assert_same(text + contents, "inputs", len(text))
    text = of_a_reply(text)
    assert_same(text + contents, "outputs", len(text))


def test_a_tensor_in_the_document_is_not_sought_behind_it() -> None:
    for role, read in READS.items():
        text = with_document(f"{binary_entry()},{entry(name='y')}", role=role)
        assert not isinstance(read(text + RAW, len(text)), Exception)
        assert isinstance(read(text + RAW + RAW, len(text)), DecodeError)


WHOLE = {
    "no inputs": b'{"inputs":[]}',
    "flat": with_document(entry()),
    "several": with_document(f"{entry()},{entry(name='y')}"),
    "nested": with_document(entry("[[1.5,-2]]")),
    "booleans": with_document(entry("[true,false]", "BOOL")),
    "strings with colons": with_document(entry('["http://a/","::"]', "BYTES")),
    "a name with a colon": with_document(entry(name="serving_default_x:0")),
    "an id": with_document(entry(), ',"id":"a:b"'),
    "null": with_document(entry(), ',"id":null,"parameters":null,"outputs":null'),
    "parameters": with_document(
        entry(more=',"parameters":{"a:b":"c:d","e":1,"f":true}'), ',"parameters":{"p":18446744073709551616}'
    ),
    "outputs": with_document(entry(), ',"outputs":[{"name":"y:0","parameters":{"binary_data":true}},{"name":"z"}]'),
    "blanks": b' \n{ "inputs" : [ ' + entry("[ 1.5 , -2 ]").encode() + b" ] } ",
    "an escape": with_document(entry(name="\\u00e4")),
    "an escaped key": with_document(entry()).replace(b'"name"', b'"\\u006eame"'),
}
NOT_WHOLE = {
    "an unknown member": with_document(entry(), ',"x":1'),
    "an unknown member and an escaped colon": with_document(entry(), ',"x":1,"id":"\\u003a"'),
    "a name that is a number": with_document(entry()).replace(b'"x"', b"5"),
    "no end": with_document(entry())[:-1],
    "an unknown member of a tensor": with_document(entry(more=',"x":1')),
    "an unknown member of an output": with_document(entry(), ',"outputs":[{"name":"y","data":[1]}]'),
    "a repeated key": with_document(entry(more=',"name":"x"')),
    "data twice": with_document(entry(more=',"data":[1,2]')),
    "a parameter twice": with_document(entry(more=',"parameters":{"a":1,"a":2}')),
    "an escaped colon beside a repeated key": with_document(entry(name="\\u003a", more=',"shape":[1,2]')),
    "a colon in a string beside a repeated key": with_document(entry(name=":", more=',"shape":[1,2]')),
    "no inputs and an unknown member": b'{"x":1}',
    "inputs that are null": b'{"inputs":null}',
    "a number as id": with_document(entry(), ',"id":7'),
    "an object among parameters": with_document(entry(), ',"parameters":{"a":{}}'),
    "an unknown datatype": with_document(entry(datatype="FP8")),
    "bytes behind": with_document(entry()) + b"x",
    "a byte order mark": b"\xef\xbb\xbf" + with_document(entry()),
    "deep nesting": with_document(entry("[" * 20_000 + "]" * 20_000)),
    "deep nesting of an unknown member": with_document(entry(), ',"x":' + "[" * 20_000 + "]" * 20_000),
    "an array": b"[]",
    "nothing": b"",
    "no UTF-8": with_document(entry(name="\x00")).replace(b"\x00", b"\xff"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_documents_that_are_read_as_types(name: str) -> None:
    REQUESTS.read(WHOLE[name], 100, b"data")
    assert_same(WHOLE[name], "inputs")


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_documents_that_are_left_to_the_general_reader(name: str) -> None:
    text = NOT_WHOLE[name]
    if name != "deep nesting":  # with the contents cut out, nesting is seen when they are read
        for reader, document in ((REQUESTS, text), (RESPONSES, of_a_reply(text))):
            with pytest.raises(DecodeError):
                reader.read(document, 100, b"data")
    assert_same(text, "inputs")


def test_a_key_that_is_given_twice_is_refused() -> None:
    for name in ("a repeated key", "data twice", "a parameter twice"):
        with pytest.raises(DecodeError, match="occurs twice in one object"):
            infer(NOT_WHOLE[name])


@pytest.mark.parametrize("limits", [Limits(json_values=5), Limits(message=16)], ids=["values", "bytes"])
def test_a_listener_with_small_limits(limits: Limits) -> None:
    body = with_document(entry("[" + ",".join("1" * 40) + "]", shape="[40]"))
    assert infer(body).inputs
    text = with_document(binary_entry())
    small = replace(ListenerSettings("small"), limits=limits)
    for message in (infer_message(body), *([infer_message(text + RAW, len(text))] if limits.message > 16 else [])):
        with pytest.raises((DecodeError, GatewayError), match=r"limits\.(json_values|message)"):
            V2_REST.decode_request(message, small)


@pytest.mark.parametrize("more", ["", ',"outputs":[{"name":"y"}],"parameters":{"p":1},"id":"a:b"'])
@pytest.mark.parametrize("data", [",".join(["1.5"] * 200), ",".join(["[1.5]"] * 200)])
def test_any_limit_of_values(data: str, more: str) -> None:
    body = with_document(entry(f"[{data}]", shape="[200,1]"), more)
    for values in range(90):
        listener = replace(ListenerSettings("small"), limits=Limits(json_values=values))

        def outcome(listener: ListenerSettings = listener) -> object:
            try:
                return said(V2_REST.decode_request(infer_message(body), listener))
            except (DecodeError, GatewayError) as error:
                return str(error)

        found = outcome()
        with only_the_general_reader():
            assert found == outcome(), values


FIRST = [
    "1.5", "-0.0", "7", "1e3", "1e400", "[1.5", "[1.5]", "true", "", " ", "18446744073709551616", "300", "NaN", "1.5]",
    '"2"', str(2**60 + 2**36 + 1),  # as FP32 another number if it is rounded to FP64 before
]  # fmt: skip
LAST = ["2.5]", "2.5 ]", "7]", "]", " ]", "2.5, ]", "[2.5]]", "2.5]]", "2.5],[1]", "null]", "0.1]", "2.5,]", '"]"]']


@given(
    role=st.sampled_from(["inputs", "outputs"]),
    datatype=st.sampled_from(["FP64", "FP32", "INT64", "UINT8"]),
    integers=st.booleans(),
    first=st.sampled_from(FIRST),
    last=st.sampled_from(LAST),
    more=st.sampled_from(["", " ", ',"data":[1]', ',"shape":[1]']),
    size=st.sampled_from([5998, 66_000]),
)
@example("inputs", "FP64", False, "[1.5]", "2.5]", "", 5998)
@example("inputs", "FP64", False, "1.5", "2.5, ]", "", 5998)
@example("inputs", "FP32", True, FIRST[-1], "7]", "", 5998)
@settings(max_examples=examples(60))
def test_bodies_of_thousands_of_numbers(
    role: str, datatype: str, integers: bool, first: str, last: str, more: str, size: int
) -> None:
    """Bodies of 24 KB, and of several pieces, as the transport hands them over."""
    number = "1" if integers else "1.5"
    data = f"[{first},{','.join([number] * size)},{last}"
    assert_same(memoryview(with_document(entry(data, datatype, shape=f"[{size + 2}]") + more, role=role)), role)


@pytest.mark.parametrize("datatype", ["FP64", "FP32"])
def test_ten_thousand_numbers_in_a_view(datatype: str) -> None:
    doubles = np.random.default_rng(0).standard_normal(10_000).tolist()
    body = memoryview(with_document(entry(json.dumps(doubles), datatype, shape="[10000]")))
    read = infer(body)
    assert bytes(read.inputs[0].data) == np.array(doubles, "<f8" if datatype == "FP64" else "<f4").tobytes()


PIECES = [b" ", *b'. e E - 0 1 , [ ] " true null ".." 1e5 \\'.split()]


@given(
    role=st.sampled_from(["inputs", "outputs"]),
    datatype=st.sampled_from(DATATYPES[:7]),
    text=st.sampled_from(["[1.5,-2.25]", "[3,4]", "[1.5,2]", "[1.0,1e3]"]),
    at=st.integers(0, 120),
    removed=st.integers(0, 4),
    added=st.lists(st.sampled_from(PIECES), max_size=3),
)
def test_any_change_of_a_document(
    role: str, datatype: str, text: str, at: int, removed: int, added: list[bytes]
) -> None:
    known = with_document(entry(text, datatype), role=role)
    assert_same(known[:at] + b"".join(added) + known[at + removed :], role)


@settings(max_examples=examples(300))
@given(st.data())
def test_any_document_with_a_byte_changed(data: st.DataObject) -> None:
    text = bytearray(with_document(entry(more=',"parameters":{"a":1}'), ',"id":"7"'))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    assert_same(bytes(text), "inputs")


numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**65), 2**65), st.booleans(), st.none(), st.text()
)
tensors = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "y", "x:y", 1]),
        "shape": st.lists(st.integers(-1, 3) | st.booleans() | st.none(), max_size=3),
        "datatype": st.sampled_from(["FP64", "FP32", "INT64", "UINT8", "BOOL", "BYTES", "FP16", "?"]),
    },
    optional={
        "data": st.lists(st.floats(-10, 10), max_size=6) | st.lists(st.integers(0, 300), max_size=6) | numbers
        | st.lists(numbers, max_size=6),
        "parameters": st.dictionaries(st.sampled_from(["binary_data_size", "a"]), numbers | st.just(8), max_size=2),
    },
)  # fmt: skip


def fitting(shape: list[int]) -> st.SearchStrategy[dict[str, Any]]:
    """Tensors with as many numbers as the shape takes."""
    count = math.prod(shape)
    data = [
        st.lists(each, min_size=count, max_size=count)
        for each in (
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-200, 2**64),
            st.floats(-9, 9) | st.just(3),
        )
    ]
    return st.fixed_dictionaries(
        {
            "name": st.sampled_from(["x", "y", "z"]), "shape": st.just(shape), "data": st.one_of(data),
            "datatype": st.sampled_from(["FP64", "FP32", "INT64", "UINT64", "UINT8"]),
        }
    )  # fmt: skip


documents = st.fixed_dictionaries(
    {"inputs": st.lists(tensors | st.lists(st.integers(0, 3), max_size=2).flatmap(fitting), max_size=3)},
    optional={
        "id": numbers,
        "outputs": st.lists(st.dictionaries(st.sampled_from(["name", "data", "parameters"]), numbers), max_size=3),
        "parameters": st.dictionaries(st.text(max_size=2), numbers | st.dictionaries(st.text(max_size=1), numbers)),
    },
)


@settings(deadline=None, max_examples=examples(500))
@given(documents, st.sampled_from([b"", b"12345678", b"1234567890123456"]), st.booleans(), st.booleans())
def test_any_members(found: dict[str, Any], behind: bytes, compact: bool, is_reply: bool) -> None:
    if is_reply:
        found = {"outputs": found["inputs"], **{key: found[key] for key in ("id", "parameters") if key in found}}
    separators = (",", ":") if compact else (", ", ": ")
    text = json.dumps(found, separators=separators, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert_same(text + behind, "outputs" if is_reply else "inputs", len(text) if behind else None)
