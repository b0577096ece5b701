"""Header blocks against the `hpack` package: it reads what is written here, and what it writes is read, its dynamic
table and its Huffman coding included."""

import hpack
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.http2.hpack import Decoder, Field, HeadersTooLargeError, write

NAMES = st.sampled_from([b":path", b":status", b"content-type", b"user-agent", b"x-a", b"x-b"]) | st.binary(max_size=40)
VALUES = st.sampled_from([b"", b"/", b"200", b"application/grpc"]) | st.binary(max_size=300)
FIELDS = st.lists(st.tuples(NAMES, VALUES), max_size=8)
LIMIT = 2**20


def read_by_package(decoder: hpack.Decoder, block: bytes) -> list[Field]:
    return [(bytes(name), bytes(text)) for name, text in decoder.decode(block, raw=True)]


@given(FIELDS)
def test_the_package_reads_what_is_written(fields: list[Field]) -> None:
    assert read_by_package(hpack.Decoder(), write(fields)) == fields


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.none() | st.integers(0, 200) | st.just(4096)), max_size=6))
def test_blocks_of_one_connection_are_read_as_they_were_written(
    blocks: list[tuple[list[Field], bool, int | None]],
) -> None:
    encoder, decoder = hpack.Encoder(), Decoder(LIMIT)
    for fields, huffman, table_size in blocks:
        if table_size is not None:
            encoder.header_table_size = table_size
        assert decoder.read(encoder.encode(fields, huffman=huffman)) == fields


@given(st.lists(st.tuples(FIELDS, st.booleans()), min_size=1, max_size=4), st.data())
def test_both_read_the_same_in_octets_that_were_changed(
    blocks: list[tuple[list[Field], bool]], data: st.DataObject
) -> None:
    encoder, theirs, ours = hpack.Encoder(), hpack.Decoder(max_header_list_size=LIMIT), Decoder(LIMIT)
    for fields, huffman in blocks:
        block = bytearray(encoder.encode(fields, huffman=huffman))
        if block and data.draw(st.booleans()):
            block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
        try:
            found = ours.read(bytes(block))
        except (DecodeError, HeadersTooLargeError):
            return
        try:
            expected = read_by_package(theirs, bytes(block))
        except hpack.HPACKError:
            return  # it is stricter about where a table's size may be told
        assert found == expected
