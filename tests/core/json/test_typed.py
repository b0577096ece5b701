"""TypedReader: it reads a document whole, or leaves it to the general reader."""

import pytest
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core.errors import DecodeError
from gateway.core.json import CUT_FROM, Text, TypedReader


class Entry(Struct):
    name: str
    data: Raw | UnsetType = UNSET


class Document(Struct):
    entries: list[Entry]
    id: str | UnsetType = UNSET


READER = TypedReader(Document, entries=lambda document: document.entries)
LONG = b"[%b]" % b",".join([b"1.5"] * CUT_FROM)


def test_a_document_with_its_members_alone() -> None:
    document = READER.read(b'{"id": "a:b", "entries": [{"name": "x", "data": [1, 2]}]}', 100)
    assert (document.id, document.entries[0].name, document.entries[0].data) == ("a:b", "x", Raw(b"[1, 2]"))


def test_another_buffer_than_bytes_is_for_the_general_reader() -> None:
    with pytest.raises(DecodeError):
        READER.read(bytearray(b'{"entries": []}'), 100)


def test_a_document_with_more_values_than_allowed_is_for_the_general_reader() -> None:
    text = b'{"entries": [%b]}' % b",".join([b'{"name": "x"}'] * 10)
    READER.read(text, 22)  # and no fewer, since each bracket and comma counts
    with pytest.raises(DecodeError):
        READER.read(text, 21)


def test_long_arrays_are_cut_out_and_belong_to_their_entries() -> None:
    text = b'{"entries": [{"name": "x"}, {"name": "y", "data": %b}, {"data": [7], "name": "z"}]}' % LONG
    x, *others = READER.read(text, 100, b"data").entries
    assert x.data is UNSET
    found: list[object] = [each.data for each in others]
    assert [each.bytes for each in found if isinstance(each, Text)] == [LONG, b"[7]"]


def test_an_array_of_something_else_is_for_the_general_reader() -> None:
    with pytest.raises(DecodeError):
        READER.read(b'{"entries": [{"name": "x"}], "more": {"data": %b}}' % LONG, 100, b"data")
