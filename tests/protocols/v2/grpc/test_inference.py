"""Inference messages beside protobuf's own library: what is read of any bytes, and what is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.requests import Request
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc import schema
from tests.protocols.v2.grpc.wire import AS_IS, RAW, TRITON, decode, infer, reply_body, request_body


def written(request: Request) -> bytes:
    return b"".join(V2_GRPC.encode_request(request, TRITON).parts)


def test_a_request_is_written_as_the_library_writes_it() -> None:
    for body in (request_body(), request_body(id="größe"), request_body(model_version="1", id="i" * 200)):
        assert written(infer(body)) == body


def test_a_reply_has_the_names_and_the_id_of_the_request() -> None:
    request = infer(request_body(id="a"))
    response = decode(reply_body(id="a", model_version="1"), request)
    assert b"".join(V2_GRPC.encode_response(response, request, AS_IS).parts) == reply_body(id="a", model_version="1")
    for asked in (replace(request, id="7"), replace(request, model="other"), replace(request, version="2")):
        body = b"".join(V2_GRPC.encode_response(response, asked, AS_IS).parts)
        told = schema.ModelInferResponse.FromString(body)
        assert (told.id, told.model_name, told.model_version) == (asked.id, asked.model, asked.version or "1")


HEAD = request_body()[: -len(RAW) - 2]
TAIL = request_body()[len(HEAD) :]
MODEL = b"\x0a\x05model"
UNKNOWN = b"\x98\x06\x01"  # field 99
GROUP = b"\x9b\x06\x9c\x06"  # field 99, begin and end


@pytest.mark.parametrize(
    "body",
    [
        request_body() + UNKNOWN,
        UNKNOWN + request_body(),
        HEAD + UNKNOWN + TAIL,
        b"\x0a\x01a" + request_body(),  # a model's name that the second replaces
        TAIL + HEAD,
        HEAD + b"\x3a\x88\x00" + RAW,  # a length in two bytes
        b"\x8a\x00\x05model" + HEAD[len(MODEL) :] + TAIL,  # a tag in two bytes
        b"\x08\x07" + request_body(),  # a model's name of another wire type
    ],
    ids=range(8),
)
def test_what_a_message_has_besides_is_left_out(body: bytes) -> None:
    assert written(infer(body)) == request_body()


@pytest.mark.parametrize("tensor", [b"\x0a\x01x\x12\x04FP32\x18\x02", b"\x12\x04FP32\x0a\x01x\x1a\x02\x82\x00"])
def test_shapes_are_read_packed_and_unpacked_in_any_order(tensor: bytes) -> None:
    entry = b"\x2a" + bytes((len(tensor),)) + tensor
    assert written(infer(MODEL + entry + TAIL)) == request_body()


@pytest.mark.parametrize(
    "id",
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
@pytest.mark.parametrize("behind", [False, True])
def test_ids_are_read_as_the_library_reads_them(id: bytes, behind: bool) -> None:
    body = request_body() + id if behind else MODEL + id + request_body()[len(MODEL) :]
    try:
        expected = schema.ModelInferRequest.FromString(body)
    except Exception:  # the library's own error
        with pytest.raises(DecodeError, match=r"inference\.ModelInferRequest|whole field"):
            infer(body)
    else:
        assert (infer(body).id or "") == expected.id


def test_a_change_of_any_byte_is_read_as_the_library_reads_it() -> None:
    body = request_body(id="id")
    for place in range(len(body)):
        for flip in (1, 2, 8, 128):
            changed = body[:place] + bytes((body[place] ^ flip,)) + body[place + 1 :]
            try:
                found = infer(changed)
            except DecodeError:
                continue
            expected = schema.ModelInferRequest.FromString(changed)
            assert (found.model, found.version) == (expected.model_name, expected.model_version)
            assert (found.id or "") == expected.id
            assert [(each.name, list(each.shape)) for each in found.inputs] == [
                (each.name, list(each.shape)) for each in expected.inputs
            ]
            assert [bytes(each.data) for each in found.inputs] == list(expected.raw_input_contents)


def test_groups_are_refused() -> None:
    with pytest.raises(DecodeError, match="wire type 3"):
        infer(request_body() + GROUP)


def test_each_message_is_looked_at_by_itself() -> None:
    infer(request_body(b"\x00\x01", datatype="BOOL"))
    with pytest.raises(DecodeError, match="byte 2"):
        infer(request_body(b"\x00\x02", datatype="BOOL"))
    with pytest.raises(DecodeError, match="7 bytes, but FP32"):
        infer(request_body(RAW[1:]))


def test_data_of_large_messages_are_views_of_them() -> None:
    for size in (10, 100_000):
        message = schema.ModelInferRequest(model_name="model")
        message.inputs.add(name="x", datatype="FP64", shape=[size])
        message.raw_input_contents.append(bytes(8 * size))
        body = message.SerializeToString()
        (tensor,) = infer(body).inputs
        assert isinstance(tensor.data, memoryview) == (size > 10)
        parts = V2_GRPC.encode_request(infer(body), TRITON).parts
        assert b"".join(parts) == body


NAMES = st.text(min_size=1, max_size=3)
DATATYPES = {"FP32": 4, "INT8": 1, "BF16": 2, "BOOL": 1}


@given(
    st.lists(
        st.tuples(NAMES | st.text(min_size=250, max_size=260), st.sampled_from(sorted(DATATYPES)), st.integers(0, 300)),
        max_size=3,
        unique_by=lambda each: each[0],
    ),
    st.lists(NAMES, unique=True, max_size=2),
    st.sampled_from(["", "1"]),
    st.text(max_size=200),
    st.data(),
)
def test_bytes_out_equal_bytes_in(
    tensors: list[tuple[str, str, int]], outputs: list[str], version: str, id: str, data: st.DataObject
) -> None:
    message = schema.ModelInferRequest(model_name="m", model_version=version, id=id)
    contents = []
    for name, datatype, size in tensors:
        message.inputs.add(name=name, datatype=datatype, shape=[size])
        width = DATATYPES[datatype] * size
        raw = data.draw(st.binary(min_size=width, max_size=width))
        contents.append(bytes(each & 1 for each in raw) if datatype == "BOOL" else raw)
    message.raw_input_contents.extend(contents)
    for name in outputs:
        message.outputs.add(name=name)
    body = message.SerializeToString()
    request = infer(body)
    assert [(each.name, each.datatype, each.shape, bytes(each.data)) for each in request.inputs] == [
        (name, Datatype[datatype], (size,), raw) for (name, datatype, size), raw in zip(tensors, contents, strict=True)
    ]
    assert [each.name for each in request.outputs] == outputs
    assert (request.model, request.version, request.id or "") == ("m", version, id)
    assert written(request) == body


def test_a_request_without_anything_is_written_as_the_library_writes_it() -> None:
    assert written(infer(b"")) == b""
