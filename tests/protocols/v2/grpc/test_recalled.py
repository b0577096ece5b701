"""Messages like one that came before: what they say, and which of them go on as they came."""

import struct
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import layouts
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, WrongReplyError
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Target
from gateway.core.types import Message, Request, Response, Translate
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc import recalled, schema
from gateway.protocols.v2.grpc.tensors import REQUEST, write_inference

TARGET = Target("models", "127.0.0.1:8001", "triton")
LISTENER = ListenerSettings("grpc")
RAW = struct.pack("<2f", 1.5, -2)


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    recalled._layouts.clear()
    recalled._attempts.clear()


def request_body(raw: bytes = RAW, model: str = "model", datatype: str = "FP32", **more: object) -> bytes:
    message = schema.ModelInferRequest(model_name=model, **more)
    message.inputs.add(name="x", datatype=datatype, shape=[2])
    message.raw_input_contents.append(raw)
    written: bytes = message.SerializeToString()
    return written


def reply_body(raw: bytes = RAW, model: str = "model", **more: object) -> bytes:
    message = schema.ModelInferResponse(model_name=model, **more)
    message.outputs.add(name="y", datatype="FP32", shape=[2])
    message.raw_output_contents.append(raw)
    written: bytes = message.SerializeToString()
    return written


def read(body: bytes) -> Request:
    message = Message(path=schema.MODEL_INFER, parts=(body,), pattern=schema.MODEL_INFER)
    return decoded(message, V2_GRPC, LISTENER)


def answer(body: bytes, request: Request) -> Response:
    found = V2_GRPC.decode_response(Message(parts=(body,)), request, TARGET)
    assert isinstance(found, Response)
    return found


def test_the_second_of_its_kind_says_the_same_and_goes_on_as_it_came() -> None:
    first, body = read(request_body()), request_body(struct.pack("<2f", 3, 4))
    assert first.original is None
    second = read(body)
    assert second.original is not None
    (tensor,) = second.inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", Datatype.FP32, (2,))
    assert tensor.array.tolist() == [3, 4]
    assert (second.model, second.version, second.id, second.outputs) == ("model", "", None, ())
    assert (second.parameters, second.operation) == ({}, Operation.INFER)
    message = V2_GRPC.encode_request(second, TARGET)
    assert (message.parts[0], message.path) == (body, schema.MODEL_INFER)
    assert message.parts[0] is body


def test_a_reply_goes_back_as_it_came() -> None:
    request = read(request_body())
    answer(reply_body(model_version="1"), request)
    body = reply_body(struct.pack("<2f", 3, 4), model_version="1")
    second = answer(body, request)
    assert (second.model, second.version, second.outputs[0].array.tolist()) == ("model", "1", [3, 4])
    assert V2_GRPC.encode_response(second, request, Translate()).parts[0] is body
    for asked in (replace(request, id="7"), replace(request, model="other"), replace(request, version="2")):
        written = V2_GRPC.encode_response(second, asked, Translate()).body
        assert written == V2_GRPC.encode_response(replace(second, original=None), asked, Translate()).body != body


@pytest.mark.parametrize("first", [None, "1", "before"])
def test_messages_that_differ_in_their_id_have_one_layout(first: str | None) -> None:
    read(request_body() if first is None else request_body(id=first))
    for id in ("2", "an id that is longer", "größer"):
        body = request_body(struct.pack("<2f", 3, 4), id=id)
        request = read(body)
        assert (request.id, request.inputs[0].array.tolist(), request.model) == (id, [3, 4], "model")
        assert V2_GRPC.encode_request(request, TARGET).parts[0] is body
        written = V2_GRPC.encode_request(replace(request, id="other"), TARGET).body
        assert written == request_body(struct.pack("<2f", 3, 4), id="other")
    assert V2_GRPC.encode_request(read(request_body()), TARGET).body == request_body()
    assert len(recalled._layouts) == 1


@pytest.mark.parametrize("name", ["m", "fourteen-bytes", "the-model-of-the-laboratory"])
@pytest.mark.parametrize("version", ["", "1"])
def test_ids_are_cut_out_behind_names_of_any_length_and_before_several_tensors(name: str, version: str) -> None:
    def body(id: str, *numbers: float) -> bytes:
        message = schema.ModelInferRequest(model_name=name, model_version=version, id=id)
        for at, number in enumerate(numbers):
            message.inputs.add(name=f"x{at}", datatype="FP64", shape=[1])
            message.raw_input_contents.append(struct.pack("<d", number))
        written: bytes = message.SerializeToString()
        return written

    read(body("first", 1.5, 2.5, 3.5))
    for id in ("a", "of another length"):
        came = body(id, 4.5, 5.5, 6.5)
        request = read(came)
        assert (request.model, request.version, request.id) == (name, version, id)
        assert [each.array.tolist() for each in request.inputs] == [[4.5], [5.5], [6.5]]
        assert V2_GRPC.encode_request(request, TARGET).parts[0] is came


def test_a_reply_goes_back_as_it_came_to_the_request_with_its_id() -> None:
    request = read(request_body(id="a"))
    answer(reply_body(id="a", model_version="1"), request)
    body = reply_body(struct.pack("<2f", 3, 4), id="a", model_version="1")
    second = answer(body, request)
    assert (second.id, second.outputs[0].array.tolist()) == ("a", [3, 4])
    assert V2_GRPC.encode_response(second, request, Translate()).parts[0] is body
    # Servers answer requests without an id with one, or leave that of the request out.
    for asked, told in ((read(request_body()), body), (request, reply_body(model_version="1"))):
        response = answer(told, asked)
        assert response.original is not None
        written = V2_GRPC.encode_response(response, asked, Translate()).body
        assert written == V2_GRPC.encode_response(replace(response, original=None), asked, Translate()).body != told


def test_the_id_of_another_request_is_refused_in_a_known_reply() -> None:
    request = read(request_body(id="a"))
    answer(reply_body(id="a"), request)
    with pytest.raises(WrongReplyError):
        answer(reply_body(id="b"), request)


@pytest.mark.parametrize(
    "head",
    [
        b"\x1a\x01\xff",  # not UTF-8
        b"\x1a\x80\x01" + b"i" * 128,
        b"\x1a\x00",
        b"\x1a\x81\x00i",  # a length in two bytes
        b"\x1a\x01i\x1a\x01j",
        b"\x1a\x7fi",
        b"\x1a\x7f",
        b"\x1a",
    ],
)
def test_an_id_in_another_form_is_parsed(head: bytes) -> None:
    read(request_body())
    body = b"\x0a\x05model" + head + request_body()[7:]

    def outcome() -> object:
        try:
            found = read(body)
        except DecodeError as error:
            return str(error)
        assert found.original is None
        return said(found)

    known = outcome()
    forget()
    assert outcome() == known


def test_an_id_behind_the_tensors_is_parsed() -> None:
    read(request_body())
    for _ in range(2):
        request = read(HEAD + b"\x1a\x01i" + TAIL)
        assert (request.id, request.original) == ("i", None)


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"version": "2"}, {"id": "7"}, {"inputs": ()}, {"parameters": {"p": 1}}], ids=str
)
def test_a_changed_request_is_written_anew(change: dict[str, object]) -> None:
    read(request_body())
    changed = replace(read(request_body()), **change)  # type: ignore[arg-type]
    assert changed.original is not None
    written = V2_GRPC.encode_request(changed, TARGET).body
    assert written == V2_GRPC.encode_request(replace(changed, original=None), TARGET).body != request_body()


def test_what_a_flavor_lacks_is_written_anew() -> None:
    body = request_body(RAW[:4], datatype="BF16")
    read(body)
    request = read(body)
    assert V2_GRPC.encode_request(request, TARGET).body == body
    assert b"FP32" in V2_GRPC.encode_request(request, replace(TARGET, flavor="kserve")).body


UNKNOWN = b"\x98\x06\x01"  # field 99
HEAD = request_body()[: -len(RAW) - 2]
TAIL = request_body()[len(HEAD) :]


@pytest.mark.parametrize(
    "body",
    [
        request_body() + UNKNOWN,
        UNKNOWN + request_body(),
        HEAD + UNKNOWN + TAIL,
        b"\x0a\x01a" + request_body(),  # a model's name that the second replaces
        TAIL + HEAD,
        HEAD + b"\x3a\x88\x00" + RAW,  # a length in two bytes
        request_body(b"\x00\x01", datatype="BOOL"),
        request_body(b"\1\0\0\0a\1\0\0\0b", datatype="BYTES"),
    ],
    ids=range(8),
)
def test_what_says_more_or_must_be_looked_at_is_parsed_each_time(body: bytes) -> None:
    for _ in range(3):
        request = read(body)
        assert request.original is None
    assert not recalled._layouts


def test_a_proof_that_always_fails_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    writes = mock.Mock(wraps=write_inference)
    monkeypatch.setattr(recalled, "write_inference", writes)
    for at in range(100):
        read(request_body(struct.pack("<2f", at, 0)) + UNKNOWN)
    assert writes.call_count == 8
    read(request_body())
    assert read(request_body()).original is not None
    assert writes.call_count == 9


def test_contents_that_must_be_looked_at_are() -> None:
    read(request_body(b"\x00\x01", datatype="BOOL"))
    with pytest.raises(DecodeError, match="byte 2"):
        read(request_body(b"\x00\x02", datatype="BOOL"))


def recall(body: bytes) -> recalled.Recalled | None:
    return recalled.recall(body, REQUEST, Message(parts=(body,)))


def test_what_differs_in_one_byte_outside_the_contents_is_parsed() -> None:
    body = request_body()
    read(body)
    for place in range(len(body) - len(RAW)):
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert recall(changed) is None


@pytest.mark.parametrize("model", ["model", "the-model-of-the-laboratory"])
def test_what_differs_in_one_byte_around_an_id_is_parsed(model: str) -> None:
    body = request_body(model=model, id="id")
    read(body)
    assert recall(body) is not None
    id = body.index(b"id")
    for place in {*range(len(body) - len(RAW))} - {id, id + 1}:
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert recall(changed) is None


def test_models_whose_long_names_begin_alike_are_told_apart_and_remembered() -> None:
    names = [f"the-model-of-the-laboratory-{at}" for at in range(3)]
    bodies = [request_body(model=name) for name in names]
    for body in bodies:
        assert read(body).original is None
    for name, body in zip(names, bodies, strict=True):
        request = read(body)
        assert request.model == name
        assert request.original is not None
        assert V2_GRPC.encode_request(request, TARGET).body == body


def test_only_so_many_that_begin_alike_are_remembered() -> None:
    for at in range(10, 60):
        read(request_body(model=f"the-model-of-the-laboratory-{at}"))
    [alike] = recalled._layouts.values()
    assert len(alike) == layouts.ALIKE


def test_only_so_many_are_remembered_and_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 100)
    forget()
    for number in range(300):
        read(request_body(model=f"model {number}"))
    models = [layout.head.model for kind in recalled._layouts.values() for layout in kind]
    assert len(recalled._layouts) == 100
    assert "model 299" in models
    assert "model 99" not in models


NAMES = st.text(min_size=1, max_size=3)
DATATYPES = st.sampled_from(["FP32", "INT8", "BF16", "BOOL"])


@given(
    st.lists(
        st.tuples(NAMES, DATATYPES, st.integers(0, 3)),
        min_size=1,
        max_size=3,
        unique_by=lambda each: each[0],
    ),
    st.lists(NAMES, unique=True, max_size=2),
    st.sampled_from(["", "1"]),
    st.tuples(st.text(max_size=200), st.text(max_size=200)),
    st.data(),
)
def test_it_says_what_parsing_says(
    tensors: list[tuple[str, str, int]], outputs: list[str], version: str, ids: tuple[str, str], data: st.DataObject
) -> None:
    forget()
    bodies = []
    for id in ids:
        message = schema.ModelInferRequest(model_name="m", model_version=version, id=id)
        for name, datatype, size in tensors:
            message.inputs.add(name=name, datatype=datatype, shape=[size])
            width = {"FP32": 4, "INT8": 1, "BF16": 2, "BOOL": 1}[datatype] * size
            raw = data.draw(st.binary(min_size=width, max_size=width))
            message.raw_input_contents.append(bytes(each & 1 for each in raw) if datatype == "BOOL" else raw)
        for name in outputs:
            message.outputs.add(name=name)
        bodies.append(message.SerializeToString())
    read(bodies[0])
    found = read(bodies[1])
    forget()
    parsed = read(bodies[1])
    assert parsed.original is None
    assert said(found) == said(parsed)
    assert V2_GRPC.encode_request(found, TARGET).body == V2_GRPC.encode_request(parsed, TARGET).body


def said(request: Request) -> tuple[object, ...]:
    inputs = [(each.name, each.datatype, each.shape, bytes(each.data), each.parameters) for each in request.inputs]
    return inputs, request.outputs, request.model, request.version, request.id, request.parameters, request.deadline
