"""Bodies like one that came before are read as if nothing had come before."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Target
from gateway.core.types import Buffer, Request, Response, Translate, tensor
from gateway.json import bulk_numbers
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest import recalled, server, usual
from tests.protocols.v2.rest.wire import decode, infer, infer_message, reply

PLAIN = Target("models", "127.0.0.1:8000", "plain")
TRITON = Target("models", "127.0.0.1:8000", "triton")


@contextmanager
def nothing_remembered() -> Iterator[None]:
    with (
        mock.patch.object(recalled, "_requests", recalled._Layouts()),
        mock.patch.object(recalled, "_responses", recalled._Layouts()),
        mock.patch.object(recalled, "_binary_requests", layouts.LayoutStore()),
        mock.patch.object(recalled, "_binary_responses", layouts.LayoutStore()),
    ):
        yield


@pytest.fixture(autouse=True, params=["as they are", "in bulk"])
def begin_with_nothing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test is run again with even the shortest lists read in bulk, in several pieces."""
    if request.param == "in bulk":
        monkeypatch.setattr(recalled, "_BULK", 0)
        monkeypatch.setattr(bulk_numbers, "PIECE", 64)
    with nothing_remembered():
        yield


def said(read: object) -> object:
    """What a request or response says: its value, and the bytes that would go on."""
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
    """The bodies that each kind of receiver gets."""
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


@pytest.mark.parametrize("role", ["inputs", "outputs"])
@pytest.mark.parametrize("datatype", DATATYPES)
def test_other_numbers_in_a_known_document_are_read_as_in_a_new_one(datatype: str, role: str) -> None:
    read = as_request if role == "inputs" else as_reply
    for data in DATA:
        body = with_document(entry(data, datatype), role=role)
        with nothing_remembered():
            fresh = said(read(body, None))
        for before in DATA:
            with nothing_remembered():
                read(with_document(entry(before, datatype), role=role), None)
                assert said(read(body, None)) == fresh, f"{data} after {before}"


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
        for id in (
            b'"7"',
            b'"8"',
            b'""',
            b"null",
            b"7",
            b'"a\\"',
            b'"\\u0061"',
            b'"\xc3\xa4"',
            b'"\x01"',
            b'"id"',
            b'"data"',
            b'"["',
        )
        for data in ("[1.5,-2]", "[3,4.5]")
    ],
    b'{ "id" : "7" ,"inputs":[' + entry().encode() + b"]}",
    b'{"id":["7"],"inputs":[' + entry().encode() + b"]}",
    b'{"id":"7","id":"8","inputs":[' + entry().encode() + b"]}",
    b'{"x":{"id":"7"},"inputs":[' + entry().encode() + b"]}",
    b'{"model_name":"m","id":"7","parameters":{},"inputs":['
    + entry(more=',"parameters":{"content_type":"np"}').encode()
    + b"]}",
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


@pytest.mark.parametrize("before", range(len(TEXTS)))
def test_no_document_changes_how_another_one_is_read(before: int) -> None:
    for body in TEXTS:
        answer = body.replace(b'"inputs"', b'"outputs"')
        with nothing_remembered():
            fresh = said(as_request(body, None)), said(as_reply(answer, None))
        with nothing_remembered():
            as_request(TEXTS[before], None)
            as_reply(TEXTS[before].replace(b'"inputs"', b'"outputs"'), None)
            assert (said(as_request(body, None)), said(as_reply(answer, None))) == fresh, body


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


def test_a_tensor_in_the_document_is_not_sought_behind_it() -> None:
    for read, role in ((as_request, "inputs"), (as_reply, "outputs")):
        text = with_document(f"{binary_entry()},{entry(name='y')}", role=role)
        for _ in range(2):
            assert not isinstance(read(text + RAW, len(text)), Exception)
        assert isinstance(read(text + RAW + RAW, len(text)), DecodeError)


@pytest.mark.parametrize("before", range(len(BINARY_TEXTS)))
@pytest.mark.parametrize("contents", CONTENTS, ids=lambda each: f"{len(each)} bytes")
def test_no_binary_body_changes_how_another_one_is_read(before: int, contents: bytes) -> None:
    for text in BINARY_TEXTS:
        out = text.replace(b'"inputs"', b'"outputs"') if b'"outputs"' not in text else text
        with nothing_remembered():
            fresh = said(as_request(text + contents, len(text))), said(as_reply(out + contents, len(out)))
        with nothing_remembered():
            first = BINARY_TEXTS[before]
            as_request(first + RAW, len(first))
            first = first.replace(b'"inputs"', b'"outputs"')
            as_reply(first + RAW, len(first))
            again = said(as_request(text + contents, len(text))), said(as_reply(out + contents, len(out)))
            assert again == fresh, (text, contents)


def test_the_second_document_of_its_kind_is_not_read_as_a_whole() -> None:
    infer(with_document(entry()))
    with mock.patch.object(server, "read_document", side_effect=AssertionError):
        assert infer(with_document(entry("[3.0,4]"))).inputs[0].array.tolist() == [[3, 4]]
        assert infer(with_document(entry("[5.0,6]"))).model == "m"


@pytest.mark.parametrize(
    "parameters", ["", ',"parameters":{"binary_data":false}', ',"parameters":{"binary_data":true}']
)
def test_a_document_that_asks_for_outputs_is_not_read_as_a_whole(parameters: str) -> None:
    """As `tritonclient` asks for them."""
    asked = f',"outputs":[{{"name":"y"{parameters}}}]'
    infer(with_document(entry(), asked))
    with mock.patch.object(server, "read_document", side_effect=AssertionError):
        second = infer(with_document(entry("[3.0,4]"), asked))
    assert ([each.name for each in second.outputs], second.inputs[0].array.tolist()) == (["y"], [[3, 4]])


def test_documents_that_differ_in_the_id_are_of_one_kind() -> None:
    def body(id: str, data: str) -> bytes:
        return f'{{"id": "{id}", "inputs":[{entry(data)}]}}'.encode()

    infer(body("3f2a", "[1.5,-2]"))
    with mock.patch.object(server, "read_document", side_effect=AssertionError):
        second = infer(body("longer than before", "[3.0,1e1]"))
    assert (second.id, second.inputs[0].array.tolist()) == ("longer than before", [[3, 10]])
    assert V2_REST.encode_request(second, PLAIN).body == body("longer than before", "[3.0,1e1]")
    other = replace(second, id="8")
    assert b'"id":"8"' in bytes(V2_REST.encode_request(other, PLAIN).body)


MLSERVER_REPLY = (
    '{"model_name":"m","model_version":"1","id":"%s","parameters":{},"outputs":'
    '[{"name":"y","shape":[2,1],"datatype":"FP64","parameters":{"content_type":"np"},"data":[%s]}]}'
)


def test_a_reply_like_mlservers_is_not_read_as_a_whole() -> None:
    decode(reply((MLSERVER_REPLY % ("1", "1.5,2.0")).encode()))
    with mock.patch("gateway.protocols.v2.rest.client.read_document", side_effect=AssertionError):
        second = decode(reply((MLSERVER_REPLY % ("a-b", "3.0,4.5")).encode()))
    assert (second.id, second.model, second.version, second.parameters) == ("a-b", "m", "1", {})
    assert second.outputs[0].array.tolist() == [[3], [4.5]]
    assert second.outputs[0].parameters == {"content_type": "np"}
    asked = Request(Operation.INFER, "m", id="a-b")
    written = V2_REST.encode_response(second, asked, Translate()).body
    assert written == V2_REST.encode_response(replace(second, original=None), asked, Translate()).body


def test_a_reply_with_the_clients_id_comes_back() -> None:
    def body(id: str, data: str) -> bytes:
        return f'{{"id":"{id}","model_name":"m","outputs":[{entry(data)}]}}'.encode()

    decode(reply(body("1", "[1.5,2.0]")))
    second, asked = decode(reply(body("2", "[1e1,2.50]"))), Request(Operation.INFER, "m", id="2")
    assert V2_REST.encode_response(second, asked, Translate()).body == body("2", "[1e1,2.50]")
    other = V2_REST.encode_response(second, replace(asked, id="3"), Translate()).body
    assert json.loads(bytes(other))["id"] == "3"


def test_the_second_binary_body_of_its_kind_is_not_read_as_a_whole() -> None:
    text = with_document(binary_entry(), ',"parameters":{"binary_data_output":true}')
    first = infer(text + RAW, len(text))
    with mock.patch.object(server, "read_document", side_effect=AssertionError):
        second = infer(text + RAW[::-1], len(text))
    assert bytes(second.inputs[0].data) == RAW[::-1]
    assert type(second.origin) is type(first.origin) is server.BinaryOutputMessage
    assert second.origin is not first.origin


@pytest.mark.parametrize("limits", [Limits(json_values=5), Limits(message=16)], ids=["values", "bytes"])
def test_a_listener_with_smaller_limits_has_them_for_known_documents_too(limits: Limits) -> None:
    body = with_document(entry("[" + ",".join("1" * 40) + "]", shape="[40]"))
    assert infer(body).inputs
    small = replace(ListenerSettings("small"), limits=limits)
    with nothing_remembered(), pytest.raises((DecodeError, GatewayError)) as fresh:
        V2_REST.decode_request(infer_message(body), small)
    infer(body)
    with pytest.raises((DecodeError, GatewayError)) as known:
        V2_REST.decode_request(infer_message(body), small)
    assert str(known.value) == str(fresh.value)


def test_a_listener_with_a_smaller_limit_of_values_has_it_for_known_binary_bodies_too() -> None:
    text = with_document(binary_entry())
    small = replace(ListenerSettings("small"), limits=Limits(json_values=5))
    message = infer_message(text + RAW, len(text))
    with nothing_remembered(), pytest.raises((DecodeError, GatewayError)) as fresh:
        V2_REST.decode_request(message, small)
    assert infer(text + RAW, len(text)).inputs
    with pytest.raises((DecodeError, GatewayError)) as known:
        V2_REST.decode_request(message, small)
    assert str(known.value) == str(fresh.value)


def test_any_limit_of_values_is_that_of_a_new_document() -> None:
    body = with_document(entry("[" + ",".join(["1.5"] * 200) + "]", shape="[200]"))
    for values in range(90):
        listener = replace(ListenerSettings("small"), limits=Limits(json_values=values))

        def outcome(listener: ListenerSettings = listener) -> object:
            try:
                return said(V2_REST.decode_request(infer_message(body), listener))
            except (DecodeError, GatewayError) as error:
                return str(error)

        with nothing_remembered():
            fresh = outcome()
        infer(body)
        assert outcome() == fresh, values


@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_a_thousand_numbers_are_read_like_a_few(role: str) -> None:
    texts = [",".join([first, *(f"{at}.5" for at in range(1999))]) for first in ("1.5", "7", "1e3", "1.5e0")]
    read = as_request if role == "inputs" else as_reply
    bodies = [with_document(entry(f"[{text}]", shape="[2000]"), role=role) for text in texts]
    assert all(2**13 < len(body) < 2**15 for body in bodies)
    for before in bodies:
        for body in bodies:
            with nothing_remembered():
                fresh = said(read(body, None))
                forgotten = recalled._requests or recalled._responses
                assert len(forgotten) == 1
            with nothing_remembered():
                read(before, None)
                assert said(read(body, None)) == fresh


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
@settings(max_examples=100)
def test_bodies_that_are_searched_at_both_ends_alone(
    role: str, datatype: str, integers: bool, first: str, last: str, more: str, size: int
) -> None:
    """Bodies of 24 KB, and of several pieces, as the transport hands them over."""
    read = as_request if role == "inputs" else as_reply
    number = "1" if integers else "1.5"

    def body(first: str, last: str, more: str = "") -> memoryview:
        data = f"[{first},{','.join([number] * size)},{last}"
        return memoryview(with_document(entry(data, datatype, shape=f"[{size + 2}]") + more, role=role))

    known, changed = body(number, f"{number}]"), body(first, last, more)
    with nothing_remembered():
        fresh = said(read(changed, None))
    with nothing_remembered():
        read(known, None)
        assert said(read(changed, None)) == fresh


@pytest.mark.parametrize("datatype", ["FP64", "FP32"])
def test_ten_thousand_numbers_in_a_view_are_not_read_as_a_whole(datatype: str) -> None:
    doubles = np.random.default_rng(0).standard_normal(10_000).tolist()
    bodies = [
        memoryview(with_document(entry(json.dumps(each), datatype, shape="[10000]")))
        for each in (doubles, doubles[::-1])
    ]
    infer(bodies[0])
    with mock.patch.object(server, "read_document", side_effect=AssertionError("read as a whole")):
        read = infer(bodies[1])
    assert bytes(read.inputs[0].data) == np.array(doubles[::-1], "<f8" if datatype == "FP64" else "<f4").tobytes()
    # and goes on as it came
    assert V2_REST.encode_request(read, PLAIN).parts == (bodies[1],)


numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**66), 2**66))


@given(
    before=st.lists(numbers, min_size=1, max_size=5),
    data=st.lists(numbers, min_size=1, max_size=5),
    datatype=st.sampled_from(DATATYPES[:7]),
    blanks=st.booleans(),
)
def test_any_numbers_after_any_others(before: list[float], data: list[float], datatype: str, blanks: bool) -> None:
    def body(numbers: list[float]) -> bytes:
        tensor = {"name": "x", "shape": [len(before)], "datatype": datatype, "data": numbers}
        return json.dumps({"inputs": [tensor]}, separators=None if blanks else (",", ":")).encode()

    with nothing_remembered():
        fresh = said(as_request(body(data), None))
        as_request(body(before), None)
        assert said(as_request(body(data), None)) == fresh


PIECES = [b".", b"e", b"E", b"-", b"0", b"1", b",", b"[", b"]", b'"', b"true", b"null", b'".."', b"1e5", b" ", b"\\"]


@given(
    role=st.sampled_from(["inputs", "outputs"]),
    datatype=st.sampled_from(DATATYPES[:7]),
    text=st.sampled_from(["[1.5,-2.25]", "[3,4]", "[1.5,2]", "[1.0,1e3]"]),
    at=st.integers(0, 120),
    removed=st.integers(0, 4),
    added=st.lists(st.sampled_from(PIECES), max_size=3),
)
def test_any_change_of_a_known_document(
    role: str, datatype: str, text: str, at: int, removed: int, added: list[bytes]
) -> None:
    read = as_request if role == "inputs" else as_reply
    known = with_document(entry(text, datatype), role=role)
    changed = known[:at] + b"".join(added) + known[at + removed :]
    with nothing_remembered():
        fresh = said(read(changed, None))
    with nothing_remembered():
        read(known, None)
        assert said(read(changed, None)) == fresh


@pytest.mark.parametrize(
    ("datatype", "text"),
    [
        ("FP64", "[true,1.5]"),  # one point for two numbers, and `true` counts as a number
        ("FP64", '["1.5.",2]'),  # as many points as numbers, in a string
        ("FP64", "[[1.5],2.5]"),
        ("FP64", "[1.5,2.5,3]"),
        ("FP64", "[36893488147419103232,0.5]"),  # an integer of more than 64 bits
        ("FP64", "[1.5e400,0.5]"),
        ("FP32", "[1.5e39,0.5]"),
        ("INT64", "[true,1]"),
        ("INT64", "[1.0,2]"),
        ("INT64", "[1e3,2]"),
        ("INT64", "[18446744073709551616,2]"),
        ("INT8", "[128,2]"),
        ("UINT8", "[-1,2]"),
        ("INT64", "[null,2]"),
    ],
)
def test_numbers_that_their_text_does_not_show_to_be_usual(datatype: str, text: str) -> None:
    body = with_document(entry(text, datatype))
    with nothing_remembered():
        fresh = said(as_request(body, None))
    as_request(with_document(entry("[1.5,2.5]" if datatype[0] == "F" else "[1,2]", datatype)), None)
    assert said(as_request(body, None)) == fresh


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 100)
    for kept in (recalled._requests, recalled._responses, recalled._binary_requests):
        kept.clear()
    for at in range(300):
        infer(with_document(entry(name=f"x{at}")))
        text = with_document(binary_entry().replace('"x"', f'"x{at}"'))
        infer(text + RAW, len(text))
    assert len(recalled._requests) == len(recalled._binary_requests) == 100
    # the oldest was forgotten
    assert not any(b'"x199"' in before for before, _ in recalled._requests)
    assert any(b'"x200"' in before for before, _ in recalled._requests)
    infer(with_document(entry(name="x" * 2000)))
    assert not any(len(around[0]) > 2000 for around in recalled._requests)


def test_the_numbers_are_those_of_the_usual_reader() -> None:
    """What `usual` packs, for each datatype that has a layout."""
    assert len(usual.NUMBERS) == 10
    assert not usual.NUMBERS.keys() & {"BOOL", "BYTES", "FP16", "BF16"}


def test_a_message_in_several_buffers_has_no_layout() -> None:
    body = with_document(entry())
    infer(body)
    request = V2_REST.decode_request(infer_message(body, parts=(memoryview(body),)), ListenerSettings("http"))
    assert (request.operation, request.inputs[0].array.tolist()) == (Operation.INFER, [[1.5, -2]])
