"""CloudEvents as bytes, in all content modes."""

import pytest

from gateway.observing.payload_log.events import JSON, OCTETS, Event, batch, headers, moment, structured

EVENT = Event({"id": "1", "type": "t", "complete": True, "headerlength": 3}, JSON, b'{"a":1}')
TEXT = (
    b'{"specversion":"1.0","id":"1","type":"t","complete":true,"headerlength":3,'
    b'"datacontenttype":"application/json","data":{"a":1}}'
)


def test_structured() -> None:
    assert structured(EVENT) == TEXT


def test_structured_with_bytes() -> None:
    text = structured(Event({"id": "1"}, OCTETS, b"\xff"))
    assert text == (b'{"specversion":"1.0","id":"1","datacontenttype":"application/octet-stream","data_base64":"/w=="}')


def test_batch() -> None:
    assert batch([EVENT, EVENT]) == b"[" + TEXT + b"," + TEXT + b"]"


def test_binary() -> None:
    assert headers(EVENT) == [
        (b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-type", b"t"), (b"ce-complete", b"true"),
        (b"ce-headerlength", b"3"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [
        # CloudEvents' HTTP Protocol Binding, section 3.1.3.2: "Euro \u20ac \U0001f600" is its example
        ("Euro \u20ac \U0001f600", b"Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ('a"b%c', b"a%22b%25c"),
        ("a\r\nx: y", b"a%0D%0Ax:%20y"),
        ("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", b"!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("\u00fc<>", b"%C3%BC<>"),
        ("\ud800", b"\\ud800"),
    ],
)
def test_values_of_attributes_are_escaped_in_headers(value: str, written: bytes) -> None:
    assert headers(Event({"a": value}, JSON, b""))[1] == (b"ce-a", written)


def test_time_is_in_utc() -> None:
    assert moment(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"
