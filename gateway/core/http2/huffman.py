"""HPACK's Huffman code (RFC 7541 appendix B). The code is pure.

The code is canonical: codes of equal length are consecutive numbers in the order of their symbols, and the numbers of
longer codes follow the numbers of shorter codes. So the table below needs only the code length of each symbol.

The decoder is a state machine that reads half an octet at a time. A state is the sequence of bits since the last
complete code.
"""

from collections.abc import Iterator
from functools import cache
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
    30: b"\n\r\x16",  # also the end of the string, which no string can contain
}


def _codes() -> Iterator[tuple[tuple[int, int], int]]:
    """Yield each code (its length and its number) with its symbol."""
    number = last = 0
    for length, symbol in chain.from_iterable(zip(repeat(length), found) for length, found in _SYMBOLS.items()):
        number <<= length - last
        yield (length, number), symbol
        number, last = number + 1, length


_CODES = dict(_codes())
_LONGEST = max(_SYMBOLS)

_Prefix = tuple[int, int]
"""The beginning of a code: the number of bits, and their value."""
_BEGINNING: _Prefix = 0, 0
_NEVER: _Prefix = _LONGEST, 0
"""The state of an invalid string: no code starts with these bits, and all transitions lead back to this state."""


@cache
def _transitions() -> tuple[list[list[tuple[int, bytes]]], frozenset[int]]:
    """Return the transitions: for each state and each value of the next four bits, the index of the next state, and the
    completed symbol if there is one. Codes have five bits or more, so four bits complete at most one symbol. Also
    return the states in which a string can end."""
    indices = {_BEGINNING: 0, _NEVER: 1}
    rows = []
    for prefix in (found := list(indices)):
        row = []
        for four in range(16):
            left, symbol = _step(prefix, four)
            if left not in indices:
                indices[left] = len(indices)
                found.append(left)
            row.append((indices[left], symbol))
        rows.append(row)
    padding = [(length, (1 << length) - 1) for length in range(8)]
    return rows, frozenset(indices[each] for each in padding)


def _step(prefix: _Prefix, four: int) -> tuple[_Prefix, bytes]:
    (length, number), symbol = prefix, b""
    for shift in (3, 2, 1, 0):
        length, number = length + 1, number << 1 | four >> shift & 1
        if (length, number) in _CODES:
            symbol = bytes([_CODES[length, number]])
            length, number = _BEGINNING
    return (length, number) if length < _LONGEST else _NEVER, symbol


def decode(coded: bytes) -> bytes:
    """Return the string that `coded` encodes.

    Raises:
        DecodeError: a code does not exist, or the end violates section 5.2 (it must be up to seven bits of padding, all
            ones).
    """
    rows, ends = _transitions()
    symbols, prefix = bytearray(), 0
    for octet in coded:
        prefix, symbol = rows[prefix][octet >> 4]
        symbols += symbol
        prefix, symbol = rows[prefix][octet & 0xF]
        symbols += symbol
    if prefix not in ends:
        raise DecodeError("a Huffman-coded string does not end with a symbol and its padding")
    return bytes(symbols)
