"""Which requests are equal, and what the store holds."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.policies.cached_answers import LARGEST_SHARE, AnswerStore, own_copy, request_key
from tests.clock import Clock

X = Tensor("x", Datatype.FP64, (2,), np.array([1.0, 2.0]).tobytes())


def infer(**more: Any) -> Request:
    return Request(Operation.INFER, "m", **{"inputs": (X,), **more})


@pytest.mark.parametrize(
    "other",
    [
        Request(Operation.GRADIENT, "m", inputs=(X,)),
        Request(Operation.INFER, "n", inputs=(X,)),
        infer(version="1"),
        infer(parameters={"config": "{}"}),
        infer(outputs=(RequestedOutput("y"),)),
        infer(outputs=(RequestedOutput("y", {"classification": 2}),)),
        infer(inputs=(Tensor("z", X.datatype, X.shape, X.data),)),
        infer(inputs=(Tensor("x", Datatype.INT64, X.shape, X.data),)),
        infer(inputs=(Tensor("x", X.datatype, (1, 2), X.data),)),
        infer(inputs=(Tensor("x", X.datatype, X.shape, X.data, "json"),)),
        infer(inputs=(Tensor("x", X.datatype, X.shape, X.data, "", {"a": 1}),)),
        infer(inputs=(X, X)),
        infer(translate=Translate(payload="str_data")),
        infer(schemaless=True),
    ],
)
def test_what_a_server_can_tell_apart_has_another_key(other: Request) -> None:
    assert request_key(infer()) != request_key(other)


def test_what_says_nothing_to_the_model_is_not_in_the_key() -> None:
    more = {"id": "7", "deadline": 1.0, "peer": "10.0.0.1:5", "protocol": "umbridge", "path": "/Evaluate"}
    other = infer(inputs=(Tensor("x", X.datatype, X.shape, memoryview(bytearray(X.data))),), origin=Message(), **more)
    assert request_key(infer()) == request_key(other)
    assert request_key(infer(parameters={"a": 1, "b": 2})) == request_key(infer(parameters={"b": 2, "a": 1}))


def test_parameters_of_other_types_are_others() -> None:
    values: list[Any] = [1, 1.0, True, "1", 0.0, -0.0, 0, False]
    assert len({request_key(infer(parameters={"a": each})) for each in values}) == len(values)


def test_tensors_count_by_their_bytes() -> None:
    quiet, other = (np.array([bits], np.uint64).view(np.float64) for bits in (0x7FF8 << 48, (0x7FF8 << 48) + 1))
    found = [infer(inputs=(tensor("x", each),)) for each in (np.array([0.0]), np.array([-0.0]), quiet, other)]
    assert len(set(map(request_key, found))) == 4


_TENSORS = st.lists(
    st.tuples(st.text(max_size=3), st.binary(max_size=6)).map(
        lambda each: Tensor(each[0], Datatype.UINT8, (len(each[1]),), each[1])
    ),
    max_size=3,
)
_REQUESTS = st.builds(
    Request,
    st.sampled_from([Operation.INFER, Operation.GRADIENT]),
    st.text(max_size=3),
    st.text(max_size=3),
    inputs=_TENSORS.map(tuple),
    outputs=st.lists(st.text(max_size=3).map(RequestedOutput), max_size=2).map(tuple),
    parameters=st.dictionaries(st.text(max_size=2), st.one_of(st.text(max_size=3), st.integers(), st.booleans())),
)


@given(_REQUESTS, _REQUESTS)
def test_keys_are_equal_exactly_if_requests_are(one: Request, other: Request) -> None:
    def said(request: Request) -> object:
        inputs = [(each.name, each.shape, bytes(each.data)) for each in request.inputs]
        parameters = sorted((name, repr(each)) for name, each in request.parameters.items())
        names = [each.name for each in request.outputs]
        return request.operation, request.model, request.version, inputs, names, parameters

    assert (request_key(one) == request_key(other)) == (said(one) == said(other))


def answer(size: int) -> Response:
    return own_copy(Response((Tensor("y", Datatype.UINT8, (size,), bytes(size)),), "m"))


def test_what_was_not_asked_for_longest_goes_first() -> None:
    store = AnswerStore(100_000, 10, Clock())
    for each in (b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"):
        store.put(each, answer(9_000), 0)
    store.get(b"a")
    store.put(b"j", answer(9_000), 0)
    assert store.get(b"b") is None
    assert store.get(b"a") is not None
    assert store.bytes <= 100_000
    assert store.evicted == 1


def test_one_answer_takes_a_share_at_most() -> None:
    store = AnswerStore(100_000, 10, Clock())
    store.put(b"a", answer(100_000 // LARGEST_SHARE), 0)
    assert (len(store), store.bytes, store.too_large) == (0, 0, 1)


def test_old_answers_leave_when_others_come() -> None:
    clock = Clock()
    store = AnswerStore(2**20, 10, clock)
    store.put(b"a", answer(10), 0)
    clock.now = 10
    store.put(b"b", answer(10), 0)
    assert (len(store), store.expired) == (1, 1)


def test_nothing_of_an_earlier_generation_is_kept() -> None:
    store = AnswerStore(2**20, 10, Clock())
    store.clear()
    store.put(b"a", answer(10), 0)
    assert (len(store), store.bytes) == (0, 0)


def test_a_view_of_a_large_body_does_not_keep_it() -> None:
    body = bytearray(2**20)
    kept = own_copy(Response((Tensor("y", Datatype.UINT8, (8,), memoryview(body)[:8]),)))
    body.extend(b"x")  # BufferError while somebody has a view of it
    assert bytes(kept.outputs[0].data) == bytes(8)


@pytest.mark.long
@pytest.mark.parametrize("size", [8, 10_000])
def test_a_flood_of_distinct_answers_stays_within_the_bytes(size: int) -> None:
    capacity = 4 * 2**20
    body = bytes(size)
    tracemalloc.start()
    try:
        store, before = AnswerStore(capacity, 3600, Clock()), tracemalloc.get_traced_memory()[0]
        for number in range(3 * capacity // (size + 1000)):
            view = memoryview(bytearray(body))
            outputs = (Tensor("output0", Datatype.UINT8, (1, size), view, "", {}),)
            response = Response(outputs, "model", "1", str(number))
            store.put(request_key(infer(id="", version=str(number))), own_copy(response), 0)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert store.evicted
    assert taken <= capacity
    assert taken >= capacity / 3  # the bytes that are counted are not far from those that are taken
