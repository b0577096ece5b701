"""Requests and responses are written as the specification's members, in Triton's order, with numbers as doubles."""

import json
import math
import struct

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import INFER
from gateway.core.protocol import Target
from gateway.core.requests import Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.v2 import V2_REST
from gateway.protocols.v2.rest.server import BinaryOutputMessage

PLAIN, TRITON = (Target("models", "127.0.0.1:8000", flavor) for flavor in ("plain", "triton"))
REQUEST, RESPONSE = Request(INFER, "m"), Response((), "backend's", "3")


def in_json(tensor: Tensor) -> dict[str, object]:
    parameters = {"parameters": tensor.parameters} if tensor.parameters else {}
    array = tensor.array.reshape(-1)
    numbers = (array.astype(np.float64) if tensor.datatype.kind is Kind.FLOAT else array).tolist()
    named = {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape}
    return {**named, **parameters, "data": numbers}


def in_binary(tensor: Tensor) -> dict[str, object]:
    parameters = {**tensor.parameters, "binary_data_size": len(tensor.data)}
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape, "parameters": parameters}


def expected(request: Request, tensors: tuple[Tensor, ...], *, response: bool, binary: bool) -> bytes:
    """The document, written by orjson from plain values."""
    document: dict[str, object] = {} if request.id is None else {"id": request.id}
    parameters = dict(request.parameters)
    if response:
        document |= {"model_name": request.model, "model_version": request.version or "3"}
    elif binary and not request.outputs:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    document["outputs" if response else "inputs"] = [(in_binary if binary else in_json)(each) for each in tensors]
    if request.outputs and not response:
        wish = {"parameters": {"binary_data": True}} if binary else {}
        document["outputs"] = [{"name": each.name, **wish} for each in request.outputs]
    text = orjson.dumps(document)
    return text + b"".join(bytes(each.data) for each in tensors) if binary else text


def assert_written(tensors: tuple[Tensor, ...], request: Request = REQUEST) -> None:
    """To servers and to clients, in JSON and in binary."""
    asked = replace(request, inputs=tensors)
    answer = replace(RESPONSE, outputs=tensors, parameters=request.parameters)
    for binary in (False, True):
        found = V2_REST.encode_request(asked, TRITON if binary else PLAIN)
        assert b"".join(map(bytes, found.parts)) == expected(request, tensors, response=False, binary=binary)
        client = replace(request, origin=BinaryOutputMessage(binary_data_output=True) if binary else Message())
        found = V2_REST.encode_response(answer, client, Translate())
        assert b"".join(map(bytes, found.parts)) == expected(request, tensors, response=True, binary=binary)


NAMES = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6)
IN_JSON = [each for each in Datatype if each not in (Datatype.BYTES, Datatype.FP16, Datatype.BF16)]


@given(
    data=st.data(),
    names=st.lists(NAMES, min_size=1, max_size=2, unique=True),
    datatype=st.sampled_from(IN_JSON),
    id=st.one_of(st.none(), NAMES),
    model=NAMES.filter(lambda name: name not in ("", ".", "..")),
    version=st.sampled_from(["", "1"]),
    parameters=st.sampled_from([{}, {"p": 1}]),
    own=st.sampled_from([{}, {}, {"q": "\0"}]),
    outputs=st.sampled_from([(), (), (RequestedOutput("y"),)]),
)
def test_any_message(
    data: st.DataObject, names: list[str], datatype: Datatype, id: str | None, model: str, version: str,
    parameters: dict[str, int], own: dict[str, str], outputs: tuple[RequestedOutput, ...],
) -> None:  # fmt: skip
    tensors = []
    for name in names:
        shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=3)))
        size = math.prod(shape) * datatype.size
        raw = data.draw(st.binary(min_size=size, max_size=size))
        if datatype is Datatype.BOOL:
            raw = bytes(each & 1 for each in raw)
        elif datatype.kind is Kind.FLOAT:  # without the exponent's highest bit nothing is infinite
            raw = bytes(each & 0xBF if at % datatype.size == datatype.size - 1 else each for at, each in enumerate(raw))
        tensors.append(Tensor(name, datatype, shape, raw or b"", "", own))
    if not any(len(each.data) for each in tensors):
        return  # without a byte of binary data the body is JSON
    assert_written(tuple(tensors), Request(INFER, model, version, id, (), outputs, parameters))


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("datatype", [Datatype.FP64, Datatype.FP32, Datatype.INT8, Datatype.UINT64])
def test_about_as_many_numbers_as_are_few(count: int, datatype: Datatype) -> None:
    numbers = np.random.default_rng(count).standard_normal(count) * 100
    numbers = numbers if datatype.kind is Kind.FLOAT else numbers.round().clip(0, 100)
    assert_written((tensor("x", numbers.astype(datatype.dtype)),))


@pytest.mark.parametrize("value", [-0.0, 5e-324, 1e22, 1.7976931348623157e308])
def test_numbers_at_the_edge(value: float) -> None:
    assert_written((tensor("x", np.array([1.5, value])),))


def test_single_precision_is_widened_before_it_becomes_text() -> None:
    message = V2_REST.encode_request(replace(REQUEST, inputs=(tensor("x", np.array([0.1], np.float32)),)), PLAIN)
    assert b"[0.10000000149011612]" in message.body
    (number,) = json.loads(bytes(message.body))["inputs"][0]["data"]
    assert struct.pack("<f", number) == struct.pack("<f", 0.1)


@pytest.mark.parametrize(
    ("nan", "text"),
    [
        ("literal", b"[1.5,NaN,Infinity,-Infinity"),
        ("null", b"[1.5,null,null,null"),
        ("string", b'[1.5,"NaN","Infinity","-Infinity"'),
    ],
)
@pytest.mark.parametrize("count", [4, 200])
def test_numbers_that_json_lacks(nan: str, text: bytes, count: int) -> None:
    outputs = (tensor("x", np.resize(np.array([1.5, math.nan, math.inf, -math.inf]), count)),)
    answer = replace(RESPONSE, outputs=outputs)
    assert text in V2_REST.encode_response(answer, REQUEST, Translate(nan=nan)).body  # type: ignore[arg-type]
    with pytest.raises(GatewayError, match="output 'x': element 1 is nan"):
        V2_REST.encode_response(answer, REQUEST, Translate())


@pytest.mark.parametrize("id", [None, "1", "", 'quote"', "\0", "ü"])
def test_an_id_of_its_own(id: str | None) -> None:
    assert_written((tensor("x", np.array([1.5])),), replace(REQUEST, id=id))


def test_many_texts_are_written_as_few() -> None:
    texts = [f"{at} é" for at in range(50_000)]
    few, many = (tensor("x", np.array(each, object)) for each in (texts[:2], texts))
    for each, expected in ((few, texts[:2]), (many, texts)):
        message = V2_REST.encode_response(replace(RESPONSE, outputs=(each,)), REQUEST, Translate())
        [output] = json.loads(b"".join(map(bytes, message.parts)))["outputs"]
        assert output["data"] == expected


def test_large_tensors_are_not_joined() -> None:
    outputs = (tensor("x", np.arange(50_000)), tensor("y", np.array([1])), tensor("z", np.arange(50_000)))
    message = V2_REST.encode_response(replace(RESPONSE, outputs=outputs), REQUEST, Translate())
    assert len(message.parts) > 6
    found = json.loads(b"".join(map(bytes, message.parts)))
    assert [len(each["data"]) for each in found["outputs"]] == [50_000, 1, 50_000]
