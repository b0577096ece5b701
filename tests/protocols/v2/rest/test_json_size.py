"""How much of a request with binary tensors is looked at one by one: what decides whether a thread decodes it."""

import pytest

from gateway.core.messages import Headers, Message
from gateway.protocols.v2.rest.binary import HEADER_LENGTH, json_size

DATA = bytes(1000)


@pytest.mark.parametrize(
    ("header", "is_whole"),
    [
        (b'{"inputs":[{"datatype":"FP32"}]}', False),
        (b'{"inputs":[{"datatype":"BYTES"}]}', True),
        (b'{"inputs":[{"datatype":"BYTE\\u0053"}]}', True),
    ],
)
def test_the_elements_of_bytes_count_and_numbers_do_not(header: bytes, is_whole: bool) -> None:
    length = (HEADER_LENGTH.encode(), str(len(header)).encode())
    message = Message(headers=Headers((length,)), parts=(header + DATA,))
    assert json_size(message) == len(header) + (len(DATA) if is_whole else 0)


def test_without_the_header_the_whole_body_is_json() -> None:
    assert json_size(Message(parts=(DATA,))) == len(DATA)
