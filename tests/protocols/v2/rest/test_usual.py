"""Usual documents are read as all others are: the quick way never says anything else than the thorough one."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.types import Tensor
from gateway.protocols.v2.rest.binary import BinaryTensors
from gateway.protocols.v2.rest.tensors import read_inference, read_tensors
from gateway.protocols.v2.rest.usual import read_usual

VALUES, LIMIT = 40, 400


def thorough(text: bytes, behind: bytes) -> tuple[dict[str, Any], tuple[Tensor, ...]] | None:
    try:
        document = read_inference(text, VALUES)
        return document, read_tensors(document, "input", BinaryTensors(memoryview(behind)), LIMIT)
    except (DecodeError, GatewayError):
        return None


def alike(text: bytes, behind: bytes) -> bool:
    """Whether the document is usual; both ways must agree if it is."""
    binary = BinaryTensors(memoryview(behind))
    found = read_usual(text, "inputs", binary, VALUES, LIMIT)
    if found is None:
        assert binary.left == len(behind)
        return False
    expected = thorough(text, behind)
    assert expected is not None
    for document in (found[0], expected[0]):
        del document["inputs"]
    assert found[0] == expected[0]
    for ours, theirs in zip(found[1], expected[1], strict=True):
        assert (ours.name, ours.datatype, ours.shape) == (theirs.name, theirs.datatype, theirs.shape)
        assert (bytes(ours.data), ours.parameters) == (bytes(theirs.data), theirs.parameters)
    return True


def document(**changes: Any) -> bytes:
    tensor = {"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1.5, -2]} | changes
    return json.dumps({"id": "a", "inputs": [tensor]}).encode()


@pytest.mark.parametrize(
    "text",
    [
        document(),
        document(datatype="FP32", data=[0.1, 3.4e18]),
        document(datatype="INT8", data=[-128, 127]),
        document(datatype="UINT64", data=[0, 2**64 - 1]),
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP64","data":[0.1]}],"outputs":[{"name":"y"}]}',
        b'{"outputs":[{"name":"y","parameters":{"binary_data":true}}],"parameters":{"a":1,"b":"c"},'
        b'"inputs":[{"datatype":"FP64","name":"x","data":[0.1],"shape":[1]}]}',
    ],
)
def test_these_are_usual(text: bytes) -> None:
    assert alike(text, b"")


def test_so_are_binary_tensors() -> None:
    sizes = [document(data=None, parameters={"binary_data_size": 16}).replace(b'"data": null, ', b"")]
    assert alike(sizes[0], bytes(range(16)))
    assert not alike(sizes[0], bytes(range(17)))
    assert not alike(sizes[0].replace(b"16", b"true"), b"\0" * 16)
    assert not alike(sizes[0].replace(b"16", b"16.0"), b"\0" * 16)


@pytest.mark.parametrize(
    "text",
    [
        document(data=[1, 2]),  # integers as FP64 must be exact
        document(data=[[1.5, 2.5]]),
        document(data=[1.5, 1e19]),  # may have been an integer of 65 bits
        document(data=[1.5, True]),
        document(data=[1.5]),
        document(data=["a", "b"]),
        document(datatype="FP32", data=[1.5, 1e39]),
        document(datatype="INT8", data=[1, 128]),
        document(datatype="INT8", data=[1, 2.0]),
        document(datatype="FP16"),
        document(datatype=["FP64"]),
        document(shape=[2, True]),
        document(shape=[0]),
        document(shape=[1000], data=[0.5] * 1000),
        document(parameters={}),
        document()[:-1] + b',"id":"b"}',
        document()[:-1] + b',"outputs":[{"name":"y","data":null}]}',
        document()[:-1] + b',"outputs":[[]]}',
        document()[:-1] + b',"outputs":[' + b",".join([b"{}"] * 50) + b"]}",
        document()[:-1] + b',"parameters":{"a":1e30}}',
        document()[:-1] + b',"parameters":{"a":{}}}',
        document().replace(b"1.5", b"NaN"),
        document().replace(b'"x"', b'"x\\u0000"'),
        document().replace(b"}]", b"},1]"),
        b'{"inputs":[]}',
        b'{"inputs":null}',
        b"[]",
        b"",
    ],
)
def test_these_are_not_usual(text: bytes) -> None:
    assert not alike(text, b"")


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


@settings(deadline=None, max_examples=500)
@given(documents, st.sampled_from([b"", b"12345678", b"1234567890123456"]), st.booleans())
def test_both_ways_agree_about_any_document(found: dict[str, Any], behind: bytes, compact: bool) -> None:
    separators = (",", ":") if compact else (", ", ": ")
    alike(json.dumps(found, separators=separators, ensure_ascii=False).encode("utf-8", "surrogatepass"), behind)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_both_ways_agree_about_usual_documents_with_a_byte_changed(data: st.DataObject) -> None:
    text = bytearray(document(datatype="FP64", data=[1.5, -2]))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] = data.draw(st.integers(0, 255))
    alike(bytes(text), b"")
