import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.http2 import hpack

# RFC 7541 appendices C.4 and C.6
CODED = {
    "f1e3c2e5f23a6ba0ab90f4ff": b"www.example.com",
    "a8eb10649cbf": b"no-cache",
    "25a849e95ba97d7f": b"custom-key",
    "25a849e95bb8e8b4bf": b"custom-value",
    "6402": b"302",
    "aec3771a4b": b"private",
    "d07abe941054d444a8200595040b8166e082a62d1bff": b"Mon, 21 Oct 2013 20:13:21 GMT",
    "9d29ad171863c78f0b97c8e9ae82ae43d3": b"https://www.example.com",
    "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007": (
        b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
    ),
    "": b"",
}

# Appendix B: the first and the last symbols of some lengths, padded with ones
ROWS = {
    "07": b"0",
    "4f": b"t",
    "53": b" ",
    "b7": b"u",
    "b9": b":",
    "f7": b"z",
    "f8": b"&",
    "fd": b"Z",
    "fe3f": b"!",
    "ff3f": b"?",
    "ff9f": b"|",
    "ffbf": b">",
    "ffc7": b"\x00",
    "ffef": b"~",
    "fffd": b"{",
    "fffe1f": b"\\",
    "fffe6f": b"\x80",
    "ffffb1": b"\x01",
    "ffffea": b"\t",
    "fffffbbf": b"\xff",
    "fffffe1f": b"\xfe",
    "ffffffef": b"\xf9",
    "fffffff3": b"\n",
    "fffffffb": b"\x16",
}

WRONG = {
    "padding of a whole octet": "07ff",
    "padding of zeros": "00",
    "a symbol that is not complete": "ffc0",
    "the end of the string": "ffffffff",
    "the end of the string, within": "ffffffff07",
    "endless ones": "ff" * 20,
}


@pytest.mark.parametrize(("coded", "text"), [*CODED.items(), *ROWS.items()])
def test_a_string_is_that_of_the_specification(coded: str, text: bytes) -> None:
    assert hpack.decode_huffman(bytes.fromhex(coded)) == text


@pytest.mark.parametrize("coded", WRONG.values(), ids=WRONG)
def test_what_is_no_string_is_refused(coded: str) -> None:
    with pytest.raises(DecodeError, match="a Huffman-coded string"):
        hpack.decode_huffman(bytes.fromhex(coded))


@given(st.binary(max_size=40))
def test_any_octets_are_a_string_or_refused(coded: bytes) -> None:
    try:
        text = hpack.decode_huffman(coded)
    except DecodeError:
        return
    assert len(text) * 5 <= len(coded) * 8
