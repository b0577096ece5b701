from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest.tensors import WITHOUT_JSON
from tests.protocols.v2.rest.wire import LISTENER, TARGET, decode, infer, one_input, received, values


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("INT64", "9223372036854775807,-9223372036854775808", [2**63 - 1, -(2**63)]),
        ("UINT64", "18446744073709551615,0", [2**64 - 1, 0]),
        ("UINT8", "255,0", [255, 0]),
        ("INT32", "1.0,1e3", [1, 1000]),
        ("FP64", "1,-0.0", [1.0, -0.0]),
        ("FP64", "5e-324,1e308", [5e-324, 1e308]),
        ("FP32", "0.1,16777217", [0.10000000149011612, 16777216.0]),
        ("FP32", "NaN,-Infinity", "[nan, -inf]"),
        ("FP64", "NaN,Infinity", "[nan, inf]"),
        ("BOOL", "true,false", [True, False]),
        ("BYTES", r'"","a\u0000b"', [b"", b"a\x00b"]),
    ],
)
def test_reads_numbers_and_strings_exactly(datatype: str, data: str, expected: object) -> None:
    (tensor,) = one_input(f'"datatype":"{datatype}","shape":[2],"data":[{data}]'.encode()).inputs
    found = values(tensor)
    assert (str(found) if isinstance(expected, str) else found) == expected


@pytest.mark.parametrize("datatype", ["BYTES", "FP64", "BOOL"])
def test_reads_tensors_without_elements(datatype: str) -> None:
    (tensor,) = one_input(f'"datatype":"{datatype}","shape":[0],"data":[]'.encode()).inputs
    assert (tensor.shape, bytes(tensor.data)) == ((0,), b"")


@pytest.mark.parametrize(
    ("shape", "data", "found"),
    [
        ("[2,2]", "[1,2,3,4]", (2, 2)),
        ("[2,2]", "[[1,2],[3,4]]", (2, 2)),
        ("[1,1,1]", "[7]", (1, 1, 1)),
        ("[]", "[7]", ()),
        ("[]", "7", ()),
        ("[0]", "[]", (0,)),
        ("[0,3]", "[]", (0, 3)),
        ("[2,0]", "[[],[]]", (2, 0)),
        ("[1" + ",1" * 31 + "]", "[7]", (1,) * 32),
    ],
)
def test_reads_flat_and_nested_data(shape: str, data: str, found: tuple[int, ...]) -> None:
    (tensor,) = one_input(f'"datatype":"INT32","shape":{shape},"data":{data}'.encode()).inputs
    assert tensor.shape == tensor.array.shape == found


def test_base64_is_decoded_only_if_marked() -> None:
    plain = one_input(b'"datatype":"BYTES","shape":[1],"data":["AP8="]').inputs[0]
    assert (values(plain), plain.content_type) == ([b"AP8="], "")
    (marked,) = one_input(
        b'"datatype":"BYTES","shape":[1],"parameters":{"content_type":"base64"},"data":["AP8="]'
    ).inputs
    assert (values(marked), marked.content_type, marked.parameters) == ([b"\x00\xff"], "base64", {})


@pytest.mark.parametrize(
    ("members", "error_text"),
    [
        # shapes
        (b'"datatype":"INT32","data":[1]', "shape must be a list"),
        (b'"datatype":"INT32","shape":3,"data":[1,2,3]', "shape must be a list"),
        (b'"datatype":"INT32","shape":[-1],"data":[1]', "dimension must be an integer of at least 0, not -1"),
        (b'"datatype":"INT32","shape":[1.0],"data":[1]', "dimension must be an integer of at least 0, not 1.0"),
        (b'"datatype":"INT32","shape":["1"],"data":[1]', "dimension must be an integer of at least 0, not '1'"),
        (b'"datatype":"INT32","shape":[true],"data":[1]', "dimension must be an integer of at least 0, not True"),
        (b'"datatype":"INT32","shape":[[1]],"data":[1]', "dimension must be an integer of at least 0"),
        (b'"datatype":"INT32","shape":[1,4611686018427387904],"data":[1,2,3]', "more than 2^63 bytes"),
        (b'"datatype":"INT32","shape":[0,4611686018427387904],"data":[]', "more than 2^63 bytes"),
        (b'"datatype":"INT32","shape":[4294967296,4294967296],"data":[1]', "more than 2^63 bytes"),
        (b'"datatype":"INT32","shape":[1,2305843009213693951],"data":[1,2,3]', "takes 2305843009213693951"),
        (b'"datatype":"INT32","shape":[1' + b",1" * 32 + b'],"data":[1]', "at most 32 integers"),
        # datatypes
        (b'"shape":[1],"data":[1]', "datatype must be one of BOOL, "),
        (b'"datatype":"int32","shape":[1],"data":[1]', "datatype must be one of"),
        (b'"datatype":"FP8","shape":[1],"data":[1]', "datatype must be one of"),
        (b'"datatype":[],"shape":[1],"data":[1]', "datatype must be one of"),
        # counts
        (b'"datatype":"INT32","shape":[3],"data":[1,2]', "2 elements, but shape [3] takes 3"),
        (b'"datatype":"INT32","shape":[3],"data":[1,2,3,4]', "4 elements, but shape [3] takes 3"),
        (b'"datatype":"BOOL","shape":[3],"data":[true]', "1 elements, but shape [3] takes 3"),
        (b'"datatype":"INT32","shape":[2,2],"data":[[1,2,3,4]]', "data nested as [1, 4]"),
        (b'"datatype":"INT32","shape":[4],"data":[[1,2],[3,4]]', "data nested as [2, 2]"),
        (b'"datatype":"INT32","shape":[1],"data":7', "data nested as []"),
        (b'"datatype":"INT32","shape":[2,2],"data":[[1,2],[3]]', ""),
        (b'"datatype":"INT32","shape":[2],"data":[1,[2]]', ""),
        # what wraps, is coerced or kills elsewhere
        (b'"datatype":"UINT8","shape":[1],"data":[256]', "256, is out of the range of UINT8"),
        (b'"datatype":"INT8","shape":[1],"data":[128]', "128, is out of the range of INT8"),
        (b'"datatype":"INT32","shape":[1],"data":[2147483648]', "out of the range of INT32"),
        (b'"datatype":"INT64","shape":[1],"data":[9223372036854775808]', "out of the range of INT64"),
        (b'"datatype":"UINT64","shape":[1],"data":[-1]', "out of the range of UINT64"),
        (b'"datatype":"INT32","shape":[1],"data":[1.5]', "1.5, is not integral"),
        (b'"datatype":"INT32","shape":[1],"data":[NaN]', "nan, has no exact value"),
        (b'"datatype":"FP32","shape":[1],"data":[1e39]', "out of the range of FP32"),
        (b'"datatype":"FP32","shape":[1],"data":["3"]', "holds strings, expected FP32"),
        (b'"datatype":"FP32","shape":[1],"data":[true]', "holds true or false, expected FP32"),
        (b'"datatype":"INT32","shape":[1],"data":[true]', "holds true or false, expected INT32"),
        (b'"datatype":"BOOL","shape":[1],"data":[1]', "expected BOOL"),
        (b'"datatype":"BOOL","shape":[1],"data":["true"]', "holds strings, expected BOOL"),
        (b'"datatype":"BYTES","shape":[1],"data":[7]', "expected BYTES as strings"),
        (b'"datatype":"BYTES","shape":[1],"data":[true]', "expected BYTES as strings"),
        (b'"datatype":"BYTES","shape":[1],"data":["\\ud800"]', ""),
        (b'"datatype":"BYTES","shape":[1],"parameters":{"content_type":"base64"},"data":["A"]', "not base64"),
        (b'"datatype":"INT32","shape":[1],"data":[null]', "null is read as NaN, which no integer can be"),
        (b'"datatype":"FP32","shape":[1],"data":[{}]', ""),
        (b'"datatype":"FP16","shape":[1],"data":[65520]', "65520, is out of the range of FP16"),
        (b'"datatype":"BF16","shape":[1],"data":[1]', "BF16 has no JSON form; use the binary data format"),
        # forms
        (b'"datatype":"INT8","shape":[1]', "has neither data nor binary_data_size"),
        (b'"datatype":"INT8","shape":[1],"data":[1],"parameters":{"binary_data_size":1}', "has both data and"),
    ],
)
def test_refuses_by_name(members: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        one_input(members)
    assert error_text in str(refused.value)
    assert not error_text or "input 'x'" in str(refused.value)


@pytest.mark.parametrize(
    ("members", "tensors", "error_text"),
    [
        (b'"datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}', b"1234567", "but 7 bytes are left"),
        (b'"datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}', b"123456789", "1 bytes follow"),
        (b'"datatype":"INT32","shape":[2],"parameters":{"binary_data_size":4}', b"1234", "takes 8"),
        (b'"datatype":"INT32","shape":[2],"parameters":{"binary_data_size":-8}', b"", "an integer of at least 0"),
        (b'"datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8.0}', b"12345678", "an integer of at"),
        (b'"datatype":"INT32","shape":[1],"parameters":{"binary_data_size":true}', b"1", "an integer of at least 0"),
        (b'"datatype":"INT32","shape":[1],"parameters":{"binary_data_size":"4"}', b"1234", "an integer of at least 0"),
        (b'"datatype":"INT32","shape":[1,4611686018427387904],"parameters":{"binary_data_size":0}', b"", "2^63"),
        (b'"datatype":"BOOL","shape":[3],"parameters":{"binary_data_size":3}', b"\x00\x02\x01", "element 1 of BOOL"),
        (b'"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}', b"\x02\x00\x00\x00a", "past the end"),
        (b'"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":3}', b"\x02\x00\x00", "past the end"),
        (b'"datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":5}', b"\x01\x00\x00\x00a", "1 BYTES el"),
        (b'"datatype":"BYTES","shape":[0],"parameters":{"binary_data_size":4}', b"\x00" * 4, "1 BYTES elements"),
        (b'"datatype":"INT8","shape":[1],"data":[1],"parameters":{"binary_data_size":1}', b"1", "both data and"),
        (b'"datatype":"INT8","shape":[1],"data":[1]', b"1", "1 bytes follow the last tensor"),
    ],
)
def test_refuses_binary_data_that_does_not_fit(members: bytes, tensors: bytes, error_text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        one_input(members, tensors)
    assert error_text in str(refused.value)


def test_takes_tensors_in_the_order_of_the_json() -> None:
    header = (
        b'{"inputs":[{"name":"a","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}},'
        b'{"name":"j","datatype":"INT8","shape":[1],"data":[5]},'
        b'{"name":"b","datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}}]}'
    )
    request = infer(header + b"\x01\x02\x03", len(header))
    assert [values(each) for each in request.inputs] == [[1], [5], [2, 3]]


SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)
NAMES = st.text(st.characters(codec="utf-8"), max_size=5)


@st.composite
def tensors(draw: st.DrawFn, *, text: bool) -> Tensor:
    """Any tensor; with `text` only finite numbers and UTF-8, as JSON can carry."""
    datatype, shape = draw(st.sampled_from(list(Datatype))), draw(SHAPES)
    count = prod(shape)
    if datatype is Datatype.BYTES:
        element = st.text(st.characters(codec="utf-8"), max_size=4).map(str.encode) if text else st.binary(max_size=4)
        data = bytes_elements.pack(draw(st.lists(element, min_size=count, max_size=count)))
    elif datatype is Datatype.BOOL:
        data = bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count)))
    else:
        data = draw(st.binary(min_size=count * datatype.size, max_size=count * datatype.size))
        if text and datatype.kind is Kind.FLOAT:
            # without the exponent's upper bits nothing is infinite; in little-endian they are in each last byte
            data = bytes(b & 0xBF if at % datatype.size == datatype.size - 1 else b for at, b in enumerate(data))
    return Tensor(draw(NAMES), datatype, shape, data)


def unique(found: list[Tensor]) -> tuple[Tensor, ...]:
    return tuple({each.name: each for each in found}.values())


@given(st.lists(tensors(text=True), max_size=3).map(unique))
def test_json_requests_and_replies_keep_every_bit(found: tuple[Tensor, ...]) -> None:
    with_json = tuple(each for each in found if each.datatype not in WITHOUT_JSON)
    request = Request(Operation.INFER, "m", inputs=with_json)
    message = V2_REST.encode_request(request, Target(flavor="mlserver"))
    again = V2_REST.decode_request(received(message), LISTENER)
    assert [replace(each, content_type="") for each in again.inputs] == list(with_json)
    answer = received(V2_REST.encode_response(Response(with_json, "m"), again, Translate()))
    assert [replace(each, content_type="") for each in decode(answer).outputs] == list(with_json)


@given(st.lists(tensors(text=False), max_size=3).map(unique), st.data())
def test_each_output_has_the_form_that_was_requested(found: tuple[Tensor, ...], data: st.DataObject) -> None:
    outputs = tuple(RequestedOutput(each.name) for each in found)
    request = Request(Operation.INFER, "m", inputs=found, outputs=outputs)
    client_request = V2_REST.decode_request(received(V2_REST.encode_request(request, TARGET)), LISTENER)
    assert (client_request.inputs, client_request.outputs) == (found, outputs)
    translate = Translate(nan="literal", bytes="base64")
    answer = received(V2_REST.encode_response(Response(found, "m"), client_request, translate))
    assert [replace(each, content_type="") for each in decode(answer).outputs] == list(found)
    cut = data.draw(st.integers(0, len(answer.body) - 1))
    with pytest.raises(DecodeError):
        decode(replace(answer, parts=(bytes(answer.body[:cut]),)))
