"""Heads of requests: which are read again, and which are remembered."""

from gateway.core.http2.heads import HeadReader, RequestHeads
from gateway.core.http2.hpack import Field
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import ECHO, LIMIT, fields


def test_blocks_are_remembered_only_while_there_is_no_table() -> None:
    heads: RequestHeads[list[Field]] = RequestHeads(LIMIT, lambda fields, by_name: list(fields), [])
    reader, remembered = HeadReader(heads), heads.remembered
    block = http2.block(*fields())
    first = reader.read(block)
    assert not remembered
    reader.settle()
    assert reader.read(b"\x20" + block) == first
    known = reader.read(block)
    assert remembered[block] is known is reader.read(block)
    for number in range(2000):
        reader.read(http2.block(*fields(ECHO, (b"x", b"%d" % number))))
    assert len(remembered) <= 512
