"""Examples in JSON that go on as they came, and those that must not."""

import json as python_json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.protocol import Target
from gateway.core.types import Message, Request, Response, Tensor, Translate
from tests.protocols.mip.wire import LISTENER, MIP, SPLIT, WHOLE, inference, json, sent, tlv

TENTHS = f"[{','.join(['0.10'] * 20_000)}]"
TEXT, JSON, IMAGE = 1, 2, 3


def asked(message: Message) -> Request:
    return MIP.decode_request(message, LISTENER)


def fitted(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors as the bridge gives them to a codec: new ones with the same data."""
    return tuple(
        Tensor(f"input{at}", each.datatype, each.shape, each.data, each.content_type, each.parameters)
        for at, each in enumerate(tensors)
    )


def out(request: Request, target: Target = SPLIT) -> bytes:
    return sent(MIP.encode_request(replace(request, inputs=fitted(request.inputs)), target))


def anew(request: Request, target: Target = SPLIT) -> bytes:
    return out(replace(request, original=None), target)


PACKETS = {
    "floats": inference(1, 1, *json("[1e3, 0.10]")),
    "many floats": inference(1, 1, *json(TENTHS)),
    "nested": inference(1, 1, *json("[[1e3], [0.10]]")),
    "a number": inference(1, 1, *json("0.10")),
    "integers": inference(1, 1, *json("[1 ,2]")),
    "booleans": inference(1, 1, *json("[true ,false]")),
    "strings": inference(1, 1, *json('["ä" ,""]')),
    "a batch": inference(1, 3, *json("[0.10]", "[1]", "[-2e0]")),
    "two inputs": inference(2, 2, *json("[0.10]", "1", "[1e1]", "2.50")),
    "of all types": inference(3, 1, tlv(TEXT, b"a"), tlv(IMAGE, b"\xff"), *json("[0.10]")),
    "a document": inference(1, 1, *json('{"a": 1e3}')),
}


@pytest.mark.parametrize("message", PACKETS.values(), ids=list(PACKETS))
def test_a_packet_goes_on(message: Message) -> None:
    assert out(asked(message)) == sent(message)


HOSTILE = {
    "NaN": "[0.10, NaN]",
    "infinities": "[Infinity, -Infinity]",
    "another spelling": "[0.10, nan]",
    "NaN among many": TENTHS.replace("0.10]", "NaN]"),
    "blanks before": " [0.10]",
    "blanks behind": "[0.10]\n",
    "a byte order mark": "\ufeff[0.10]",
    "escapes": '["\\u0078"]',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_a_text_that_says_more_is_written_anew(text: str) -> None:
    message = inference(1, 1, *json(text))
    assert out(asked(message)) == anew(asked(message)) != sent(message)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_another_encoding_is_written_anew(encoding: str) -> None:
    message = inference(1, 1, tlv(JSON, "[0.10]".encode(encoding)))
    assert out(asked(message)) == anew(asked(message)) != sent(message)


def test_what_a_peer_wrote_around_the_examples_is_written_anew() -> None:
    right, wrong = inference(1, 1, *json("[0.10]")), inference(1, 1, *json("[0.10]"), outputs=7)
    header = bytearray(wrong.parts[0])
    header[3] = 1  # reserved
    assert out(asked(replace(wrong, parts=(bytes(header), wrong.parts[1])))) == sent(right)


def changed_inputs(**changes: Any) -> Any:
    return lambda request: replace(request, inputs=tuple(replace(each, **changes) for each in request.inputs))


CHANGES = {
    "other data": lambda request: replace(
        request, inputs=tuple(replace(each, data=bytes(bytearray(each.data))) for each in request.inputs)
    ),
    "another order": lambda request: replace(request, inputs=request.inputs[::-1]),
    "the last input alone": lambda request: replace(request, inputs=request.inputs[1:]),
    "another shape": changed_inputs(shape=(1, 2, 1)),
    "another datatype": changed_inputs(datatype=Datatype.INT64),
    "a .npy file": changed_inputs(content_type="npy"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_request_is_written_anew(change: Any) -> None:
    message = inference(2, 1, *json("[1e3, 0.10]", "[2e0, 0.20]"))
    changed = change(asked(message))
    assert out(changed) == anew(changed) != sent(message)


def test_one_input_more_keeps_the_text_of_the_others() -> None:
    request = asked(inference(1, 1, *json("[0.10]")))
    more = replace(request, inputs=(request.inputs[0], replace(request.inputs[0], data=b"\0" * 8)))
    assert out(more) == sent(inference(2, 1, *json("[0.10]", "[0.0]")))


def test_the_whole_batch_as_one_example_is_written_anew() -> None:
    request = asked(inference(1, 2, *json("[0.10]", "[1e0]")))
    assert out(request, WHOLE) == sent(inference(1, 1, *json("[[0.1],[1.0]]")))
    single = asked(inference(1, 1, *json("[0.10]")))
    assert out(single, WHOLE) == sent(inference(1, 1, *json("[[0.1]]")))


def test_parameters_are_refused_all_the_same() -> None:
    request = replace(asked(inference(1, 1, *json("[0.10]"))), parameters={"p": 1})
    with pytest.raises(GatewayError, match="parameters are not supported"):
        MIP.encode_request(request, SPLIT)


# --- replies ---


def answered(message: Message, request: Request, target: Target = SPLIT) -> Response:
    found = MIP.decode_response(message, request, target)
    assert isinstance(found, Response)
    return found


def returned(answer: Response, request: Request) -> bytes:
    return sent(MIP.encode_response(replace(answer, outputs=fitted(answer.outputs)), request, Translate()))


def test_a_reply_comes_back() -> None:
    request = asked(inference(1, 2, *json("[0.10]", "[1e0]")))
    reply = inference(1, 2, *json("[0.10 ]", "[1e0]"), outputs=1, subtype=1)
    assert returned(answered(reply, request), request) == sent(reply)


def test_a_count_of_outputs_that_is_wrong_is_written_right() -> None:
    request = asked(inference(1, 1, *json("[0.10]")))
    reply = inference(1, 1, *json("[0.10 ]", "1e0"), outputs=1, subtype=1)
    assert returned(answered(reply, request), request) == sent(
        inference(1, 1, *json("[0.10 ]", "1e0"), outputs=2, subtype=1)
    )


def test_a_reply_with_one_example_for_all_rows_is_written_anew() -> None:
    request = asked(inference(1, 1, *json("[0.10]")))
    reply = inference(1, 1, *json("[[0.10]]"), outputs=1, subtype=1)
    assert returned(answered(reply, request, WHOLE), request) == sent(
        inference(1, 1, *json("[0.1]"), outputs=1, subtype=1)
    )


def test_a_client_of_npy_files_gets_one() -> None:
    npy = MIP.encode_request(replace(asked(inference(1, 1, *json("[0.10]"))), inputs=(NPY,)), SPLIT)
    request = asked(npy)
    reply = inference(1, 1, *json("[0.10]"), outputs=1, subtype=1)
    assert b"NUMPY" in returned(answered(reply, request), request)


NPY = Tensor("", Datatype.FP64, (1, 1), b"\0" * 8, content_type="npy")


# --- whatever the texts ---

LEAVES = st.one_of(
    st.floats().map(python_json.dumps),
    st.integers(-(2**65), 2**65).map(str),
    st.text(max_size=3).map(python_json.dumps),
    st.sampled_from(
        ["1e3", "0.10", "-0", "1E-400", "1e400", "nan", "-inf", "true", "null", "01", "1.", "+1", '"\\ud800"']
    ),
)
TEXTS = st.one_of(
    LEAVES,
    st.lists(LEAVES, max_size=3).map(lambda each: f"[{', '.join(each)}]"),
    st.lists(st.lists(LEAVES, min_size=1, max_size=1).map(lambda each: f"[{each[0]}]")).map(
        lambda each: f"[{','.join(each)}]"
    ),
)
AROUND = st.sampled_from(["{}", " {}", "{}\n", "\ufeff{}", "[{}", "{}]", '{{"a":{}}}'])


def said(tensors: tuple[Tensor, ...]) -> list[tuple[object, ...]]:
    return [(each.datatype, each.shape, bytes(each.data), each.content_type) for each in tensors]


@given(st.lists(st.builds(str.format, AROUND, TEXTS), min_size=1, max_size=3))
@example(["[0.10]"])
def test_what_goes_out_says_what_came_in(texts: list[str]) -> None:
    message = inference(1, len(texts), *json(*texts))
    try:
        request = asked(message)
    except DecodeError:
        return  # refused, as ever
    try:
        written = anew(request)
    except GatewayError:
        with pytest.raises(GatewayError):
            out(request)
        return
    packet = out(request)
    again = asked(Message(parts=(packet[:8], packet[8:])))
    if packet != written:
        assert packet == sent(message)
        assert said(again.inputs) == said(request.inputs)
        for text in texts:  # strict JSON alone
            python_json.loads(text, parse_constant=pytest.fail)


@given(st.lists(st.builds(str.format, AROUND, TEXTS), min_size=1, max_size=3))
def test_what_comes_back_says_what_the_backend_said(texts: list[str]) -> None:
    request = asked(inference(1, 1, *json("[0.10]")))
    message = inference(1, 1, *json(*texts), outputs=len(texts), subtype=1)
    try:
        answer = answered(message, request)
        written = returned(replace(answer, original=None), request)
    except (DecodeError, GatewayError):
        return
    packet = returned(answer, request)
    again = answered(Message(parts=(packet[:8], packet[8:])), request)
    if packet != written:
        assert said(again.outputs) == said(answer.outputs)
