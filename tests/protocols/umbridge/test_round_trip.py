"""What one side writes the other reads, whatever the numbers are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from gateway.core.tensors import Tensor
from tests.protocols.umbridge.wire import LISTENER, TARGET, UMBRIDGE, call, floats, index, integers

FLOATS = st.lists(st.floats(allow_nan=False), min_size=1, max_size=9)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9)
VECTOR = st.one_of(FLOATS.map(lambda numbers: floats(*numbers)), INTEGERS.map(lambda numbers: integers(*numbers)))
VECTORS = st.lists(VECTOR, max_size=4)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1)
TEXTS = st.text(st.characters(codec="utf-8"))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), FINITE, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
CONFIGS = st.dictionaries(st.sampled_from(["input", "sens", "name", "config", "level"]), JSON, max_size=3)
INDEX = st.integers(-(2**63), 2**63 - 1)


def arrived(request: Request) -> Request:
    message = UMBRIDGE.encode_request(request, TARGET)
    return UMBRIDGE.decode_request(call(message.path, bytes(message.body)), LISTENER)


@given(NAMES, VECTORS, CONFIGS)
def test_evaluate_arrives_as_it_was_sent(model: str, inputs: list[Tensor], config: dict[str, Any]) -> None:
    text = json.dumps(config, separators=(",", ":"), ensure_ascii=False)
    sent = Request(Operation.INFER, model, inputs=tuple(inputs), parameters={"config": text} if config else {})
    found = arrived(sent)
    assert (found.operation, found.model, found.inputs) == (sent.operation, sent.model, sent.inputs)
    found_config = json.loads(str(found.parameters.get("config", "{}")), object_pairs_hook=list)
    assert found_config == json.loads(text, object_pairs_hook=list)


@given(VECTORS, INDEX, INDEX, INDEX, INTEGERS, FLOATS)
def test_apply_hessian_arrives_as_it_was_sent(
    inputs: list[Tensor], out_wrt: int, in_wrt1: int, in_wrt2: int, sens: list[int], vec: list[float]
) -> None:
    positions = (index("out_wrt", out_wrt), index("in_wrt1", in_wrt1), index("in_wrt2", in_wrt2))
    extras = (*positions, integers(*sens, name="sens"), floats(*vec, name="vec"))
    sent = Request(Operation.APPLY_HESSIAN, "m", inputs=(*inputs, *extras))
    assert arrived(sent).inputs == sent.inputs


@given(VECTORS)
def test_outputs_arrive_as_they_were_sent(outputs: list[Tensor]) -> None:
    request = Request(Operation.INFER, "m")
    sent = Response(tuple(outputs))
    message = UMBRIDGE.encode_response(sent, request, DEFAULT_TRANSLATE)
    assert UMBRIDGE.decode_response(Message(parts=(message.body,), status=200), request, TARGET) == sent


@given(st.binary(max_size=60))
def test_any_bytes_raise_only_the_gateways_errors(body: bytes) -> None:
    with pytest.raises((DecodeError, GatewayError)):
        UMBRIDGE.decode_request(call("/Evaluate", body), LISTENER)
