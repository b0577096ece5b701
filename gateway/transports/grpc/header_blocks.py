"""Header blocks, RFC 7541 (HPACK), without its dynamic table. Pure.

A client that announces a table of size 0 gets none of the other side's, and it need not use any itself: what a block
means then depends on nothing but its bytes. So blocks can be remembered whole, and one that is not wanted be skipped.
"""

from collections.abc import Iterable

from gateway.core.errors import DecodeError, Reason, refusal
from gateway.transports.grpc import huffman

Field = tuple[bytes, bytes]

# Appendix A; the values that it has none of are empty.
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

_OVERHEAD = 32
"""What RFC 9113 section 6.5.2 counts for a field beside its name and its value."""


def literal(name: bytes, text: bytes) -> bytes:
    """A field that neither side remembers, nor may anyone on the way (section 6.2.3: "Never Indexed")."""
    return b"\x10" + _integer(len(name), 7) + name + _integer(len(text), 7) + text


def read(block: bytes, limit: int) -> list[Field]:
    """The fields of a whole block.

    Raises:
        DecodeError: it is none, or it refers to a dynamic table.
        GatewayError: RESOURCE_EXHAUSTED, more than `limit` bytes, counted as SETTINGS_MAX_HEADER_LIST_SIZE does.
    """
    fields: list[Field] = []
    at = 0
    while at < len(block):
        field, at = _read_field(block, at)
        if field is None:
            continue
        limit -= len(field[0]) + len(field[1]) + _OVERHEAD
        if limit < 0:
            raise refusal(Reason.HEADERS_TOO_LARGE, "too large")
        fields.append(field)
    return fields


def _read_field(block: bytes, at: int) -> tuple[Field | None, int]:
    """The field at `at`, None if there is only a new size of the table; and where it ends."""
    octet = block[at]
    if octet & 0x80:
        index, at = _read_integer(block, at, 7)
        return _entry(index), at
    if octet & 0xE0 == 0x20:
        size, at = _read_integer(block, at, 5)
        if size:
            raise DecodeError(f"a header block sets a dynamic table of {size} bytes, 0 are allowed")
        return None, at
    # with incremental indexing, in a table that holds nothing; without; or never
    index, at = _read_integer(block, at, 6 if octet & 0x40 else 4)
    name, at = (_entry(index)[0], at) if index else _read_string(block, at)
    text, at = _read_string(block, at)
    return (name, text), at


def _entry(index: int) -> Field:
    if not 0 < index <= len(_TABLE):
        raise DecodeError(f"a header block refers to entry {index}, there are {len(_TABLE)}")
    return _TABLE[index - 1]


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(block):
        raise DecodeError("a header block ends within a field")
    coded = block[at] & 0x80
    size, at = _read_integer(block, at, 7)
    if size > len(block) - at:
        raise DecodeError(f"a header block has a string of {size} bytes, {len(block) - at} are left")
    text = block[at : at + size]
    return (huffman.decode(text) if coded else text), at + size


_MOST_OCTETS = 4
"""Of an integer behind its prefix: nothing here is larger."""


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """Section 5.1: the integer in the lower `bits` of the octet at `at` and, where they are all ones, in those that
    follow, seven bits each, the lowest first."""
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
    """The same, written; the upper bits of the first octet are 0."""
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
    """A block of `fields`."""
    return b"".join(literal(*field) for field in fields)
