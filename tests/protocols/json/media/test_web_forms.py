"""Web forms to named fields, and back."""

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.protocols.json.media import web_forms
from gateway.protocols.json.media.multipart import FormPart

TYPE = web_forms.CONTENT_TYPE


def read(body: bytes, kind: str = TYPE, parts: int = 10) -> dict[str, bytes]:
    return {name: bytes(part.content) for name, part in web_forms.read(body, kind, parts=parts).items()}


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", {}),
        (b"a=1", {"a": b"1"}),
        (b"a=1&&b=", {"a": b"1", "b": b""}),
        (b"a", {"a": b""}),
        (b"a=b=c", {"a": b"b=c"}),
        (b"a+b=%2B+%26%ff", {"a b": b"+ &\xff"}),
        # WHATWG's URL standard: a percent sign without two digits is a percent sign
        (b"a=100%&b=%zz%4", {"a": b"100%", "b": b"%zz%4"}),
    ],
)
def test_fields_are_read(body: bytes, fields: dict[str, bytes]) -> None:
    assert read(body) == fields


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (b"a=1&a=2", TYPE, "two fields of the web form have the name 'a'; rename one"),
        (b"%ff=1", TYPE, "not UTF-8"),
        (b"a" * 1001, TYPE, "a name of 1001 bytes"),
        (b"a=1", f"{TYPE}; charset=latin-1", "charset 'latin-1'"),
    ],
)
def test_a_malformed_form_is_refused(body: bytes, kind: str, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(body, kind)


def test_the_number_of_fields_is_bounded() -> None:
    assert len(read(b"&".join(b"%d" % at for at in range(10)))) == 10
    with pytest.raises(GatewayError, match="more than 10 fields"):
        read(b"&" * 10)


@pytest.mark.parametrize("shift", range(4))
def test_long_texts_are_decoded_in_pieces_that_cut_no_escape(shift: int) -> None:
    text = b"x" * shift + b"\xc3\xa4%" * 2**16
    assert read(b"a=" + b"x" * shift + b"%C3%A4%25" * 2**16) == {"a": text}


@given(st.dictionaries(st.text(max_size=20), st.text(), min_size=1, max_size=9))
def test_what_python_writes_is_read_and_the_other_way_round(fields: dict[str, str]) -> None:
    fields = {
        name.encode("utf-8", "replace").decode(): text.encode("utf-8", "replace").decode()
        for name, text in fields.items()
    }
    found = read(urlencode(fields).encode())
    assert {name: text.decode() for name, text in found.items()} == {name: fields[name] for name in found}
    [body] = web_forms.write([FormPart(name, text.encode()) for name, text in fields.items()])
    assert dict(parse_qsl(bytes(body).decode(), keep_blank_values=True)) == fields
