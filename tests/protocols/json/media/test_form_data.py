"""Form data as the JSON of an object with a member for each part, and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.protocols.json.media import multipart
from gateway.protocols.json.media.form_data import FormFields
from gateway.protocols.json.media.multipart import FormPart
from tests.traced import traced

FIELDS = FormFields(frozenset({"image"}), frozenset({"prompt", "id"}), frozenset({"x", "y"}))

PARTS = (
    FormPart("prompt", '"ä", 1'.encode()),
    FormPart("image", b"\x89PNG\r\n", "application/octet-stream", "image"),
    FormPart("x", b"[[1.50,NaN]]", "application/json"),
    FormPart("id", b"7"),
)
TEXT = '{"prompt":"\\"ä\\", 1","image":"iVBORw0K","x":[[1.50,NaN]],"id":"7"}'.encode()


def read(*parts: FormPart, fields: FormFields = FIELDS, limit: int = 2**20) -> bytes:
    body = multipart.write(parts)
    return fields.read(multipart.read(b"".join(body), multipart.content_type(body), parts=10), limit=limit)


def test_form_data_in_both_directions() -> None:
    assert read(*PARTS) == TEXT
    assert FIELDS.write(TEXT) == list(PARTS)
    assert read() == b"{}"
    assert FIELDS.write(b"{}") == []


def test_parts_that_the_form_does_not_know_are_left_to_its_reader() -> None:
    assert read(FormPart("other", b"1"), FormPart("file", b"\xff")) == b'{"other":"1","file":"/w=="}'


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (FormPart("image", b"\0" * 1000), 6000),
        (FormPart("image", b"\xff\0" * 500), 1333),
        (FormPart("image", b'a\n"' * 100), 500),
        (FormPart("prompt", b"\1" * 1000), 6000),
        (FormPart("other", b"\1" * 1000), 6000),
        (FormPart("x", b'["\\u0000"]'), 10),
    ],
)
def test_a_part_is_counted_as_what_it_becomes(part: FormPart, size: int) -> None:
    assert read(part, limit=size)
    with pytest.raises(GatewayError, match=rf"as JSON the form data has more than {size - 1} bytes .*'{part.name}'"):
        read(part, limit=size - 1)


@pytest.mark.parametrize("content", [b"", b"1,2", b'1,"y":2', b"[1", b"1}{", b'"a', b"abc", b"[" * 100_000])
def test_a_document_is_exactly_one(content: bytes) -> None:
    with pytest.raises(DecodeError, match="part 'x' is not one JSON document"):
        read(FormPart("x", content))


def test_a_text_is_utf8() -> None:
    with pytest.raises(DecodeError, match="part 'prompt' is not UTF-8"):
        read(FormPart("prompt", b"\xff"))


def test_numbers_among_texts_are_written_as_they_are() -> None:
    body = b"".join(multipart.write(FIELDS.write(b'{"id":7,"prompt":true,"y":{"a":-Infinity}}')))
    assert b'name="id"\r\n\r\n7\r\n' in body
    assert b'name="prompt"\r\n\r\ntrue\r\n' in body
    assert b'name="y"\r\nContent-Type: application/json\r\n\r\n{"a":-Infinity}\r\n' in body


@given(st.text(), st.binary(), st.lists(st.floats()))
def test_what_is_written_comes_back(prompt: str, image: bytes, x: list[float]) -> None:
    prompt = prompt.encode("utf-8", "replace").decode()
    parts = [FormPart("prompt", prompt.encode()), FormPart("image", image), FormPart("x", json.dumps(x).encode())]
    text = read(*parts)
    again = read(*FIELDS.write(json.dumps(json.loads(text), separators=(",", ":")).encode()))
    assert repr(json.loads(again)) == repr(json.loads(text))


@pytest.mark.parametrize("last", [b'""', b"NaN"])
def test_a_document_of_many_strings_takes_little_memory(last: bytes) -> None:
    text = b"[" + b'"",' * 100_000 + last + b"]"
    with traced() as memory:
        read(FormPart("x", text))
    assert memory.peak < 10 * len(text), "a match of a pattern for each string takes 60 bytes for each byte"
