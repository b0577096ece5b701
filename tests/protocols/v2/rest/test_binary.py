import pytest

from gateway.core.errors import DecodeError
from gateway.core.messages import Message
from gateway.protocols.v2.rest.binary import BinaryTensors, split_body
from tests.protocols.v2.rest.wire import headers

BODY = b"{}abcd"


def message(header_length: object, body: bytes = BODY) -> Message:
    return Message(headers=headers(header_length), parts=(body,))


@pytest.mark.parametrize(("header_length", "json", "left"), [(2, b"{}", 4), ("02", b"{}", 4), (6, BODY, 0)])
def test_splits_where_the_header_says(header_length: object, json: bytes, left: int) -> None:
    found, behind = split_body(message(header_length))
    assert bytes(found) == json
    tensors = BinaryTensors(behind)
    assert bytes(tensors.take(left, "input 'x'")) == BODY[len(BODY) - left :]
    tensors.finish()


def test_without_the_header_the_whole_body_is_json() -> None:
    found, behind = split_body(message(None))
    assert found is BODY
    assert not len(behind)


@pytest.mark.parametrize("length", ["", "abc", "-1", "+2", "1_0", "2.0", " 2", "0x2", "²", "9" * 5000])
def test_the_header_must_be_a_number(length: str) -> None:
    message = Message(headers=headers("0"), parts=(BODY,))
    message.headers.raw = ((b"inference-header-content-length", length.encode("latin-1")),)
    with pytest.raises(DecodeError, match="must be a number of bytes"):
        split_body(message)


def test_the_header_must_lie_within_the_body() -> None:
    with pytest.raises(DecodeError, match="is 7, but the body has 6 bytes"):
        split_body(message(7))


def test_triton_s_raw_binary_request_is_refused_by_name() -> None:
    with pytest.raises(DecodeError, match="raw binary request"):
        split_body(message(0))
