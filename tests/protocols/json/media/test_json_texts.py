"""Lists of JSON that are taken apart without being read."""

from itertools import chain

import pytest

from gateway.protocols.json.media import csv, lines
from gateway.protocols.json.media.json_texts import elements
from tests.traced import traced

MANY = 20_000
ITEMS = [
    b"1", b'"a],[b"', b'"},{,"', b"[1,[2,3]]", b"[[1],[2]]", b'{"a":[{"b":1},{"c":2}]}', b"NaN", b'"\\"],["', b"[NaN]",
    b"[]",
]  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        *([each] * MANY for each in ITEMS),
        ITEMS * (MANY // 10),
        [],
        [b"[%b]" % b",".join(ITEMS)],
        [b'"a"', b'"%b"' % (b"b" * 200_000)],
    ],
)
def test_the_elements_are_those_of_the_list_wherever_it_is_cut(items: list[bytes]) -> None:
    assert list(chain.from_iterable(elements(b"[%b]" % b",".join(items)))) == items


@pytest.mark.long
@pytest.mark.parametrize("item", [b"1", b"[1]", b'"a"', b'["a"]'])
def test_tables_and_lines_are_written_some_elements_at_a_time(item: bytes) -> None:
    text = b"[%b]" % b",".join([item] * 200_000)
    with traced() as memory:
        written = csv.write(text, header=False)
    assert written == (item.strip(b'["]') + b"\r\n") * 200_000
    assert memory.peak < 6 * len(text) + 2**22, "all elements at once take 50 bytes and more for each byte"
    with traced() as memory:
        written = lines.write(text)
    assert written == (item + b"\n") * 200_000
    assert memory.peak < 6 * len(text) + 2**22
