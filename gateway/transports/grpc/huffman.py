"""HPACK's Huffman code, RFC 7541 appendix B. Pure.

It is canonical: codes of one length are consecutive numbers, in the order of their symbols, and the first of a length
follows the last of the length before it. So the lengths tell all the codes.
"""

from collections.abc import Iterator
from itertools import chain, repeat

from gateway.core.errors import DecodeError

_SYMBOLS: dict[int, bytes] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf"
    b"\xc5\xe7\xef",
    24: b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: bytes((*range(2, 9), 11, 12, *range(14, 22), *range(23, 32), 127, 220, 249)),
    30: b"\n\r\x16",  # and the end of the string, which none may hold
}


def _codes() -> Iterator[tuple[tuple[int, int], int]]:
    """Each code, as its length and its number, and the symbol that it stands for."""
    number = last = 0
    for length, symbol in chain.from_iterable(zip(repeat(length), found) for length, found in _SYMBOLS.items()):
        number <<= length - last
        yield (length, number), symbol
        number, last = number + 1, length


_CODES = dict(_codes())
_SHORTEST, _LONGEST = min(_SYMBOLS), max(_SYMBOLS)


def decode(coded: bytes) -> bytes:
    """The string of `coded`.

    Raises:
        DecodeError: it holds a code that is none; or it does not end as section 5.2 says, with up to seven bits of
            padding, all ones.
    """
    symbols, length, number = bytearray(), 0, 0
    for octet in coded:
        for shift in range(7, -1, -1):
            number = number << 1 | octet >> shift & 1
            length += 1
            if length >= _SHORTEST and (symbol := _CODES.get((length, number))) is not None:
                symbols.append(symbol)
                length = number = 0
        if length > _LONGEST:
            raise DecodeError("a Huffman-coded string holds a code that is none")
    if length > 7 or number != (1 << length) - 1:
        raise DecodeError("a Huffman-coded string does not end in padding")
    return bytes(symbols)
