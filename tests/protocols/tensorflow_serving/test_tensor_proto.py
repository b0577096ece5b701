"""TensorProto: every list and `tensor_content`, what TensorFlow reads them as, and what is refused instead."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.tensors import Tensor
from gateway.protocols.tensorflow_serving.tensor_proto import (
    TensorAllowance,
    in_content,
    in_list,
    read_tensor,
    write_entry,
)
from tests.contract.strategies import tensors
from tests.protocols.tensorflow_serving.wire import TFS, google

PROTO = google("tensorflow.TensorProto")
LIMIT = 2**20


def read(body: bytes, limit: int = LIMIT) -> Tensor:
    return read_tensor(body, "x", "input 'x'", TensorAllowance(limit, len(body)))


def proto(dtype: str, shape: list[int] | None = None, **fields: Any) -> bytes:
    """The bytes that Google's library writes."""
    made = PROTO(dtype=dtype, **fields)
    if shape is not None:
        made.tensor_shape.SetInParent()
        for size in shape:
            made.tensor_shape.dim.add(size=size)
    body: bytes = made.SerializeToString(deterministic=True)
    return body


def refused(body: bytes, limit: int = LIMIT) -> str:
    with pytest.raises((DecodeError, GatewayError)) as caught:
        read(body, limit)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "datatype", "expected"),
    [
        ("080112002a0400004040", Datatype.FP32, 3.0),
        ("081312006a028078", Datatype.FP16, 1.0),
        ("080e12006a02807f", Datatype.BF16, 1.0),
        ("080612003a0afbffffffffffffffff01", Datatype.INT8, -5),
        ("080a12005a0101", Datatype.BOOL, True),
        ("081712008a010105", Datatype.UINT64, 5),
        ("080712041202080242016142026263", Datatype.BYTES, [b"a", b"bc"]),
    ],
)
def test_bytes_of_make_tensor_proto(written: str, datatype: Datatype, expected: object) -> None:
    found = read(bytes.fromhex(written))
    assert (found.name, found.datatype, found.array.tolist()) == ("x", datatype, expected)
    [head, *data] = write_entry(2, found, in_list, "input")
    assert b"".join((head, *data)).endswith(bytes.fromhex(written))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (proto("DT_FLOAT", [2, 2], float_val=[1, 2]), [[1, 2], [2, 2]]),
        (proto("DT_INT32", [3], int_val=[-7]), [-7, -7, -7]),
        (proto("DT_HALF", [3], half_val=[15360, 0]), [1, 0, 0]),
        (proto("DT_BOOL", [3], bool_val=[False, True]), [False, True, True]),
        (proto("DT_STRING", [3], string_val=[b"", b"ab"]), [b"", b"ab", b"ab"]),
        (proto("DT_DOUBLE", [2]), [0, 0]),
        (proto("DT_STRING", [2]), [b"", b""]),
        (proto("DT_INT64", [0, 5]), []),
        (proto("DT_FLOAT", None, float_val=[3]), 3),
        (proto("DT_FLOAT", None), 0),
    ],
)
def test_the_last_element_of_a_short_list_goes_on(body: bytes, expected: object) -> None:
    assert read(body).array.tolist() == expected


def test_an_unknown_rank_with_one_element_is_a_scalar() -> None:
    made = PROTO(dtype="DT_FLOAT", float_val=[3])
    made.tensor_shape.unknown_rank = True
    assert read(made.SerializeToString(deterministic=True)).shape == ()


def test_strings_in_tensor_content_have_their_lengths_before_them() -> None:
    assert read(proto("DT_STRING", [2], tensor_content=bytes.fromhex("01016162"))).array.tolist() == [b"a", b"b"]
    assert "lengths are 9" in refused(proto("DT_STRING", [2], tensor_content=bytes.fromhex("01086162")))
    assert "cannot hold" in refused(proto("DT_STRING", [9], tensor_content=b"\x00"))


def test_lists_that_are_not_packed() -> None:
    head = proto("DT_INT32", [2])
    assert read(head + bytes.fromhex("38013802")).array.tolist() == [1, 2]
    head = proto("DT_FLOAT", [2])
    assert read(head + bytes.fromhex("2d0000803f") + bytes.fromhex("2a0400000040")).array.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (proto("DT_FLOAT", [2], float_val=[1, 2, 3]), "3 elements in float_val, but its shape has 2"),
        (proto("DT_STRING", [1], string_val=[b"a", b"b"]), "2 elements in string_val, but its shape has 1"),
        (proto("DT_FLOAT", [1], tensor_content=b"12345"), "5 bytes of tensor_content"),
        (proto("DT_BOOL", [2], tensor_content=b"\x01\x02"), "element 1 of tensor_content is the byte 2"),
        (proto("DT_FLOAT", [1], tensor_content=b"1234", float_val=[1]), "both tensor_content and float_val"),
        (proto("DT_INT64", [1], int_val=[1]), "int_val is filled, but DT_INT64 takes int64_val"),
        (proto("DT_FLOAT", [1], string_val=[b"a"]), "string_val is filled, but DT_FLOAT takes float_val"),
        (proto("DT_UINT8", [1], int_val=[256]), "element 0, 256, is out of the range of UINT8"),
        (proto("DT_UINT8", [1], int_val=[-1]), "out of the range of UINT8"),
        (proto("DT_INT8", [1], int_val=[-129]), "element 0, -129, is out of the range of INT8"),
        (proto("DT_HALF", [1], half_val=[65536]), "65536, is out of the range of UINT16"),
        (proto("DT_FLOAT", [-1], float_val=[1]), "a dimension of -1"),
        (proto("DT_FLOAT", [2**62, 4]), "spans more than 2^63"),
        (proto("DT_FLOAT", [1] * 33, float_val=[1]), "more than 32 dimensions"),
        (proto("DT_COMPLEX64", [1], scomplex_val=[1, 0]), "DT_COMPLEX64 has no datatype here; expected one of DT_BOOL"),
        (proto("DT_QINT8", [1], int_val=[1]), "DT_QINT8 has no datatype here"),
        (proto("DT_RESOURCE", [1]), "DT_RESOURCE has no datatype here"),
        (proto("DT_INVALID", [1]), "DT_INVALID has no datatype here"),
        (bytes.fromhex("0863"), "data type 99 has no datatype here"),
        (proto("DT_FLOAT", [1]) + bytes.fromhex("2a03000000"), "3 bytes, no multiple of 4"),
        (proto("DT_FLOAT", [1]) + bytes.fromhex("2801"), "float_val has wire type 0"),
        (proto("DT_INT32", [1]) + bytes.fromhex("3a01ff"), "cut short"),
        (proto("DT_INT32", [2]) + bytes.fromhex("3a0201ff3a0101"), "cut short"),
        (proto("DT_FLOAT", [2]) + bytes.fromhex("2a030000002a050000000000"), "no multiple of 4"),
        (proto("DT_STRING", [1]) + bytes.fromhex("4205"), "reaches past the end"),
        (proto("DT_STRING", [1]) + bytes.fromhex("42"), "reaches past the end"),
    ],
)
def test_what_would_compute_something_else_is_refused(body: bytes, text: str) -> None:
    assert text in refused(body)


@pytest.mark.parametrize(
    "body",
    [
        proto("DT_FLOAT", [2**40], float_val=[1]),
        proto("DT_DOUBLE", [2**60]),
        proto("DT_STRING", [2**40], string_val=[b"a"]),
        proto("DT_STRING", [2**17], string_val=[b"a" * 1000]),
        proto("DT_INT64", [2**18], int64_val=[1]),
    ],
)
def test_a_short_list_is_not_made_longer_than_the_limit(body: bytes) -> None:
    with pytest.raises(GatewayError) as caught:
        read(body)
    assert caught.value.reason is Reason.TOO_LARGE
    assert "limits.message" in caught.value.message or "send all elements" in caught.value.message


@pytest.mark.parametrize("body", [proto("DT_INT8", [2**20 + 2], int_val=[1]), proto("DT_STRING", [2**18 + 1])])
def test_a_few_bytes_do_not_claim_much_memory(body: bytes) -> None:
    with pytest.raises(GatewayError, match="of short lists at most 1048576 bytes are made") as caught:
        read(body, 2**30)
    assert caught.value.reason is Reason.TOO_LARGE
    assert read(proto("DT_INT8", [2**20 + 1], int_val=[1]), 2**30).shape == (2**20 + 1,)


def test_the_limit_holds_for_all_tensors_of_a_message() -> None:
    allowance = TensorAllowance(100, 0)
    body = proto("DT_DOUBLE", [10])
    read_tensor(body, "x", "input 'x'", allowance)
    with pytest.raises(GatewayError):
        read_tensor(body, "y", "input 'y'", allowance)


def test_fields_outside_tensor_data_are_bounded() -> None:
    assert "outside tensor data" in refused(proto("DT_FLOAT", [1]) + bytes.fromhex("1800") * 70_000)


@given(tensors(TFS.traits, "x"))
def test_google_reads_what_is_written(sent: Tensor) -> None:
    for field in (in_content, in_list):
        entry = b"".join(map(bytes, write_entry(2, sent, field, "input")))
        [(name, made)] = google("tensorflow.serving.PredictRequest").FromString(entry).inputs.items()
        assert (name, [each.size for each in made.tensor_shape.dim]) == ("x", list(sent.shape))
        found = read(made.SerializeToString(deterministic=True), 2**30)
        assert (found.datatype, found.shape) == (sent.datatype, sent.shape)
        assert bytes(found.data) == bytes(sent.data)
        if field is in_list and sent.elements:
            [values] = [list(value) for each, value in made.ListFields() if each.name.endswith("_val")]
            bits = sent.array.view(np.uint16) if sent.datatype in (Datatype.FP16, Datatype.BF16) else sent.array
            assert values == bits.reshape(-1).tolist()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_tensor_or_an_error(body: bytes) -> None:
    try:
        found = read(body)
    except (DecodeError, GatewayError):
        return
    assert found.array.shape == found.shape


def test_signalling_nans_stay_as_they_are() -> None:
    raw = bytes.fromhex("0100a07f")
    found = read(proto("DT_FLOAT", [1])[:2] + bytes.fromhex("12041202080122") + b"\x04" + raw)
    assert bytes(found.data) == raw
