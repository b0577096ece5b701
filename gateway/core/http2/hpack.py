"""HPACK, the compression of header blocks (RFC 7541). The code performs no I/O.

**Why not a dynamic table?** With a dynamic table, each block changes the meaning of later blocks. The gateway would
have to read every block of a connection, in order, and the encoding of the same request would differ each time.
Therefore, the gateway announces a table size of 0 to clients and servers (SETTINGS_HEADER_TABLE_SIZE). Once the peer
uses this size, the meaning of a block depends only on its own bytes:

- The gateway can look up a repeated block instead of reading it. For a request's head, a lookup takes 0.2 us, while
  reading, checking and interpreting the block take 9.7 us. With a dynamic table, reading alone takes 2 us in this
  module, and 9 us in the `hpack` package.
- The gateway can skip a block that is too large or irrelevant.
- A peer cannot make the gateway store 4 KiB for each connection.

The disadvantage is size: a request's head has about 110 bytes instead of 6. In the networks where gateways usually run,
sending these bytes costs less than maintaining a table. Blocks written by this module do not use a dynamic table
either.

Until a client has received the gateway's announcement, it can use the initial table of 4,096 bytes. Therefore,
`Decoder` can also read blocks that use a table.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain, repeat

from gateway.core.errors import DecodeError

Field = tuple[bytes, bytes]

# Appendix A, the static table: names and the non-empty values.
_NAMES = (
    b":authority :method :method :path :path :scheme :scheme :status :status :status :status :status :status :status "
    b"accept-charset accept-encoding accept-language accept-ranges accept access-control-allow-origin age allow "
    b"authorization cache-control content-disposition content-encoding content-language content-length "
    b"content-location content-range content-type cookie date etag expect expires from host if-match "
    b"if-modified-since if-none-match if-range if-unmodified-since last-modified link location max-forwards "
    b"proxy-authenticate proxy-authorization range referer refresh retry-after server set-cookie "
    b"strict-transport-security transfer-encoding user-agent vary via www-authenticate"
).split()
_VALUES = {
    2: b"GET",
    3: b"POST",
    4: b"/",
    5: b"/index.html",
    6: b"http",
    7: b"https",
    8: b"200",
    9: b"204",
    10: b"206",
    11: b"304",
    12: b"400",
    13: b"404",
    14: b"500",
    16: b"gzip, deflate",
}
_TABLE: tuple[Field, ...] = tuple((name, _VALUES.get(index, b"")) for index, name in enumerate(_NAMES, 1))

NO_TABLE = b"\x20"
"""The beginning of a connection's first block, which sets the size of the writer's dynamic table to 0 (section 6.3).

This beginning is required only if the peer announces a table smaller than the initial table."""

_OVERHEAD = 32
"""Number of bytes that each field adds to the counted size, in addition to its name and value (RFC 9113 section 6.5.2,
RFC 7541 section 4.1)."""

_MOST_FIELDS = 4096
"""Maximum number of fields in a block that exceeds the size limit. The decoder reads all fields of this block to keep
the dynamic table correct."""

INITIAL_TABLE_SIZE = 4096
"""The initial value of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 section 6.5.2)."""


class HeadersTooLargeError(Exception):
    """The size of a header block's fields exceeds the limit."""


def literal(name: bytes, text: bytes) -> bytes:
    """Return the encoding of a field that must not be added to any dynamic table, including proxies' tables (section
    6.2.3: "Never Indexed")."""
    return b"\x10" + _integer(len(name), 7) + name + _integer(len(text), 7) + text


class Decoder:
    """Reads the header blocks of one connection in the order of their arrival.

    `limit` is the maximum size of a block's fields, in bytes. The size is counted as for SETTINGS_MAX_HEADER_LIST_SIZE.
    `table_size` is the maximum size of the peer's dynamic table, in bytes."""

    __slots__ = ("_allowed", "_entries", "_limit", "_size", "_table_size", "is_stateless")

    def __init__(self, limit: int, table_size: int = INITIAL_TABLE_SIZE) -> None:
        self._limit = limit
        self._allowed = table_size
        self._table_size = table_size
        self.is_stateless = not table_size
        """True if no block depends on an earlier block, so blocks can be skipped and cached."""
        self._entries: deque[Field] = deque()
        """The entries of the dynamic table, the newest first."""
        self._size = 0

    def allow(self, table_size: int) -> None:
        """Apply a maximum table size that the peer has acknowledged.

        The peer's next block announces the new table size (section 4.2). Without this announcement, the peer keeps its
        current table."""
        self._allowed = table_size

    def read(self, block: bytes) -> list[Field]:
        """Return the fields of a complete block. The dynamic table stays correct even if the block is too large.

        Raises:
            DecodeError: the block is not a header block, or refers to a missing entry; the connection cannot continue.
            HeadersTooLargeError: the fields exceed the limit.
        """
        fields: list[Field] = []
        at, many, left = 0, 0, self._limit
        while at < len(block):
            field, at = self._read_field(block, at)
            if field is None:
                continue
            left -= _size_of(field)
            many += 1
            if left >= 0:
                fields.append(field)
            elif not self._table_size:
                break
            elif many > _MOST_FIELDS:
                raise DecodeError(f"a header block of more than {_MOST_FIELDS} fields")
        if left < 0:
            raise HeadersTooLargeError
        return fields

    def skip(self, block: bytes) -> None:
        """Skip a block without reading it. The block can be truncated.

        Raises:
            DecodeError: the peer uses a dynamic table, so later blocks could refer to this block; the connection cannot
                continue.
        """
        at = 0
        while at < len(block) and block[at] & 0xE0 == 0x20:
            _, at = self._read_field(block, at)
        if self._table_size:
            raise DecodeError("a header block that is too large adds to a dynamic table")

    def _read_field(self, block: bytes, at: int) -> tuple[Field | None, int]:
        """Return the field at offset `at` (None for a change of the table size), and the offset at which it ends."""
        octet = block[at]
        if octet & 0x80:
            index, at = _read_integer(block, at, 7)
            return self._entry(index), at
        if octet & 0xE0 == 0x20:
            size, at = _read_integer(block, at, 5)
            self._resize(size)
            return None, at
        # with incremental indexing, without indexing, or never indexed
        index, at = _read_integer(block, at, 6 if octet & 0x40 else 4)
        name, at = (self._entry(index)[0], at) if index else _read_string(block, at)
        text, at = _read_string(block, at)
        if octet & 0x40:
            self._add((name, text))
        return (name, text), at

    def _entry(self, index: int) -> Field:
        if 0 < index <= len(_TABLE):
            return _TABLE[index - 1]
        index -= len(_TABLE)
        if not 0 < index <= len(self._entries):
            many = len(_TABLE) + len(self._entries)
            raise DecodeError(f"a header block refers to entry {index + len(_TABLE)}, there are {many}")
        return self._entries[index - 1]

    def _resize(self, size: int) -> None:
        if size > self._allowed:
            raise DecodeError(f"a header block sets a dynamic table of {size} bytes, {self._allowed} are allowed")
        self._table_size = size
        self.is_stateless = not size
        self._evict(0)

    def _add(self, field: Field) -> None:
        """Add an entry to the table. An entry that is larger than the table empties it (section 4.4)."""
        size = _size_of(field)
        self._evict(size)
        if size <= self._table_size:
            self._entries.appendleft(field)
            self._size += size

    def _evict(self, size: int) -> None:
        """Remove entries until the table has space for an entry of `size` bytes."""
        while self._entries and self._size + size > self._table_size:
            self._size -= _size_of(self._entries.pop())


def _size_of(field: Field) -> int:
    return len(field[0]) + len(field[1]) + _OVERHEAD


def read(block: bytes, limit: int) -> list[Field]:
    """Return the fields of a complete block from a peer without a dynamic table. Raises the same errors as
    `Decoder.read`."""
    return Decoder(limit, 0).read(block)


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise DecodeError("a header block ends within a field")
    coded = block[at] & 0x80
    size, at = _read_integer(block, at, 7)
    if size > len(block) - at:
        raise DecodeError(f"a header block has a string of {size} bytes, only {len(block) - at} remain")
    text = block[at : at + size]
    return (decode_huffman(text) if coded else text), at + size


_MOST_OCTETS = 4
"""Maximum number of octets in an integer after its prefix. Their 28 bits are enough for every limit."""


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return the integer (section 5.1) at offset `at`, and the offset at which it ends. The integer is in the lower
    `bits` bits of the first octet. If these bits are all ones, the integer continues in the following octets, with
    seven bits in each, the lowest bits first."""
    full = (1 << bits) - 1
    number = block[at] & full
    at += 1
    if number < full:
        return number, at
    for place, octet in enumerate(block[at : at + _MOST_OCTETS]):
        number += (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return number, at + place + 1
    raise DecodeError("a header block has an integer that does not end")


def _integer(number: int, bits: int) -> bytes:
    """Return the encoding of `number` that `_read_integer` reads. The upper bits of the first octet are 0."""
    full = (1 << bits) - 1
    if number < full:
        return bytes([number])
    octets = bytearray([full])
    number -= full
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def write(fields: Iterable[Field]) -> bytes:
    """Return a block that contains all `fields` as literals."""
    return b"".join(literal(*field) for field in fields)


def write_repeated(fields: Iterable[Field]) -> bytes:
    """Same as `write`, but faster for a few recurring names whose values vary and have only a few different lengths."""
    block = b""
    for name, text in fields:
        block += up_to_value(name, len(text)) + text
    return block


@lru_cache(1024)
def up_to_value(name: bytes, size: int) -> bytes:
    """Return the beginning of a literal, up to its value, which has `size` bytes."""
    return literal(name, b"")[:-1] + _integer(size, 7)


# --- Huffman code (appendix B) ---

# The code is canonical: codes of equal length are consecutive numbers in the order of their symbols, and the numbers of
# longer codes follow the numbers of shorter codes. Therefore, the table below contains only each symbol's code length.
#
# The decoder is a state machine that reads half an octet at a time. A state is the sequence of bits since the last
# complete code.

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
    """Yield each code (its length in bits and its number) with its symbol."""
    number = last = 0
    for length, symbol in chain.from_iterable(zip(repeat(length), found) for length, found in _SYMBOLS.items()):
        number <<= length - last
        yield (length, number), symbol
        number, last = number + 1, length


_CODES = dict(_codes())
_LONGEST = max(_SYMBOLS)

_Prefix = tuple[int, int]
"""The beginning of a code: the number of bits and their value."""
_BEGINNING: _Prefix = 0, 0
_NEVER: _Prefix = _LONGEST, 0
"""The state of an invalid string: no code starts with these bits, and all transitions lead back to this state."""


@cache
def _transitions() -> tuple[list[list[tuple[int, bytes]]], frozenset[int]]:
    """Return the transitions, and the states in which a string can end. For each state and each value of the next four
    bits, the transitions contain the index of the next state and the completed symbol, if any. Codes have at least five
    bits, so four bits complete at most one symbol."""
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


def decode_huffman(coded: bytes) -> bytes:
    """Return the string that `coded` encodes.

    Raises:
        DecodeError: a code does not exist, or the padding at the end has more than seven bits, or contains a bit that
            is not one (section 5.2).
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
