"""Tables in CSV: read as the JSON of the same table, written from it, and held against Python's `csv`."""

import csv as python_csv
import io
import json
import sys
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.protocols.json.media import csv, csv_rows
from gateway.protocols.json.media.csv import KindOf


def read(
    body: bytes, *, header: bool = False, limit: int = 10_000, kinds: KindOf = lambda name: None, flat: bool = False
) -> bytes:
    return csv.read(body, header=header, kind_of=kinds, columns=10, limit=limit, flat=flat)


BARE = {
    "numbers": (b"1,2.50\r\n-0,1e5\r\n", b"[[1,2.50],[-0,1e5]]"),
    "one number": (b"1\r\n", b"[[1]]"),
    "not finite": (b"NaN,Infinity,-Infinity\r\n", b"[[NaN,Infinity,-Infinity]]"),
    "beyond 64 bits": (b"123456789012345678901234567890,0.10\r\n", b"[[123456789012345678901234567890,0.10]]"),
    "texts": (b"a,\xc3\xa9\r\nb,c d\r\n", '[["a","é"],["b","c d"]]'.encode()),
    "quotes": (b'"a,b","say ""no"""\r\n"one\r\ntwo","\t"\r\n', b'[["a,b","say \\"no\\""],["one\\r\\ntwo","\\t"]]'),
    "texts that look like others": (b'"12","true",""\r\nNaNs,-,x\r\n', b'[["12","true",""],["NaNs","-","x"]]'),
    "a text beside numbers": (b"a,1\r\nb,2\r\n", b'[["a",1],["b",2]]'),
    "booleans": (b"true,1\r\nfalse,2\r\n", b"[[true,1],[false,2]]"),
    "an empty text alone": (b'""\r\na\r\n', b'[[""],["a"]]'),
    "nothing": (b"", b"[]"),
}
"""CSV without a header and its JSON, which is written as the same CSV again."""

NAMED = {
    "numbers": (b"x,y\r\n1,2.50\r\n3,4\r\n", b'[{"x":1,"y":2.50},{"x":3,"y":4}]'),
    "texts": (b'x,"a ""b"", c"\r\n1,c\r\n', b'[{"x":1,"a \\"b\\", c":"c"}]'),
    "percent": (b"%b%%\r\n1\r\n", b'[{"%b%%":1}]'),
    "letters beyond ASCII": ("größe\r\n1\r\n".encode(), '[{"größe":1}]'.encode()),
    "nothing": (b"", b"[]"),
}


@pytest.mark.parametrize(
    ("header", "body", "text"),
    [pytest.param(table is NAMED, *both, id=what) for table in (BARE, NAMED) for what, both in table.items()],
)
def test_a_table_in_both_directions(header: bool, body: bytes, text: bytes) -> None:
    assert read(body, header=header) == text
    assert csv.write(text, header=header) == body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1,2\n3,4", b"[[1,2],[3,4]]"),
        (b"1,2\r\n\r\n\n", b"[[1,2]]"),
        (b"\xef\xbb\xbf1,2\n", b"[[1,2]]"),
        (b"nan,inf\n-inf,1\n", b"[[NaN,Infinity],[-Infinity,1]]"),
        (b'a,nan\n"b",inf\n', b'[["a",NaN],["b",Infinity]]'),
        (b"1, 2 ,\t3\n", b"[[1, 2 ,\t3]]"),
        (b" a, b \n", b'[[" a"," b "]]'),
        (b"True,False\n", b"[[true,false]]"),
        (b'"a",b\n"c\n,","d"', b'[["a","b"],["c\\n,","d"]]'),
        (b"1,\n,2\n", b"[[1,NaN],[NaN,2]]"),
        (b"1,a\n,\n", b'[[1,"a"],[NaN,""]]'),
        (b",,\n", b"[[NaN,NaN,NaN]]"),
        (b"01\n+1\n.5\n1.\n0x1\n1_0\n", b'[["01"],["+1"],[".5"],["1."],["0x1"],["1_0"]]'),
        (b"1\nx\n", b'[["1"],["x"]]'),
        (b'1\n"2"\n', b'[["1"],["2"]]'),
        (b"true\n1\n", b'[["true"],["1"]]'),
        (b"true,\n,x\n", b'[["true",""],["","x"]]'),
        (b'1.5\n""\n', b"[[1.5],[NaN]]"),
        (b'""\n', b'[[""]]'),
        (b"a\x00b,\x7f\n", b'[["a\\u0000b","\x7f"]]'),
    ],
)
def test_other_spellings_are_read(body: bytes, text: bytes) -> None:
    assert read(body) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1\n2.50\nnan\n", b"[1,2.50,NaN]"),
        (b"1,2.50,nan\r\n", b"[1,2.50,NaN]"),
        (b'a,"b,c"\n', b'["a","b,c"]'),
        (b'a\n"b\n"\n', b'["a","b\\n"]'),
        (b"1\n", b"[1]"),
        (b"", b"[]"),
    ],
)
def test_one_column_or_row_is_a_flat_list(body: bytes, text: bytes) -> None:
    assert read(body, flat=True) == text


def test_a_table_is_no_flat_list() -> None:
    with pytest.raises(DecodeError, match="line 2: a second row of 2 cells, expected one column or one row"):
        read(b"1,2\n3,4\n", flat=True)


def test_the_datatype_of_a_column_decides_over_its_looks() -> None:
    body = b'x,y,z\n"1.5",007,1\n,,FALSE\n'
    kinds = {"x": Kind.FLOAT, "y": Kind.BYTES, "z": Kind.BOOL}
    assert read(body, header=True, kinds=kinds.get) == b'[{"x":1.5,"y":"007","z":true},{"x":NaN,"y":"","z":false}]'
    assert read(b"1,2\n", kinds={"1": Kind.BYTES}.get) == b'[[1,"2"]]'
    assert read(b"1,2\n", kinds={"0": Kind.SIGNED, "1": Kind.FLOAT}.get) == b"[[1,2]]"


@pytest.mark.parametrize(
    ("cell", "kind", "why"),
    [
        (b"a", Kind.FLOAT, "line 3, column 'x': 'a' is not a number"),
        (b"true", Kind.SIGNED, "line 3, column 'x': 'true' is not a number"),
        (b'"1""2"', Kind.FLOAT, "line 3, column 'x': '1\"2' is not a number"),
        (b"2", Kind.BOOL, r"line 3, column 'x': '2' is not a boolean \(true or false\)"),
        (b"", Kind.BOOL, "line 3, column 'x': '' is not a boolean"),
    ],
)
def test_a_cell_of_another_datatype_is_refused(cell: bytes, kind: Kind, why: str) -> None:
    first = b"true" if kind is Kind.BOOL else b"1"
    with pytest.raises(DecodeError, match=why):
        read(b"x,y\n%b,1\n%b,1\n" % (first, cell), header=True, kinds={"x": kind}.get)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"1,2\n3\n", "line 2 has 1 cell, but the first row 2 cells"),
        (b"1\n2,3\n", "line 2 has 2 cells, but the first row 1 cell"),
        (b'"a\n\n",b\nc\n', "line 4 has 1 cell"),
        (b"1,2\n\n3,4\n", "line 2 is empty"),
        (b"\n", "line 1 is empty"),
        (b'1,"a', "line 1: the closing quote of a cell is missing"),
        (b'1,"a""', "line 1: the closing quote of a cell is missing"),
        (b'1,2\n"a\nb', "line 2: the closing quote of a cell is missing"),
        (b'a"b,c\n', "line 1: 'a\"b,c'; a cell with a quote is quoted"),
        (b'"a"b,c\n', "line 1: '\"a\"b,c'; a cell with a quote is quoted"),
        (b' "a",b\n', "line 1: ' \"a\",b'; a cell with a quote is quoted"),
        (b"1\r2\n", "line 1: a carriage return without a line feed"),
        (b"a\nb\rc\n", "line 2: a carriage return without a line feed"),
        (b'"a"\nb"c\n', "line 2: 'b\"c'; a cell with a quote is quoted"),
        (b"a\nb\xff\n", "line 2: byte 0xff is not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(body)


@pytest.mark.parametrize("body", [b'"%b"x\n', b'%b"\n', b"%b,%b\n1,2\n", b"%b,y\n1\n", b"y\n1\n%b\n"])
def test_errors_are_short_whatever_is_wrong(body: bytes) -> None:
    with pytest.raises(DecodeError) as refused:
        read(body.replace(b"%b", b"x" * 200_000), header=True, limit=2**20, kinds={"y": Kind.FLOAT}.get)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("body", "why"),
    [
        # a header without rows may be a row without a header
        (b"x,y\n", "line 1 is the header, but no row follows it; add a row"),
        (b"1,2", "line 1 is the header, but no row follows it; add a row"),
        (b'"x\ny",z\r\n', "line 1 is the header, but no row follows it; add a row"),
        (b"x,y\n1\n", "line 2 has 1 cell, but the first row 2 cells"),
        (b'x,y,"x"\n1,2,3\n', "line 1: column 'x' occurs twice"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(body, header=True)


@pytest.mark.parametrize(
    ("body", "header", "why"),
    [
        (b"a,b,c,d,e,f,g,h,i,j,k\n", True, r"11 columns, more than 10 \(limits.json_values\)"),
        (b"1\n" * 3000, False, r"as JSON the table has more than 10000 bytes \(limits.message\)"),
        (b"x" * 100 + b"\n" + b"1\n" * 100, True, "as JSON the table has more than 10000 bytes"),
        (b"x" * 100 + b"\n" + b"a\n" * 100, True, "as JSON the table has more than 10000 bytes"),
        (b"x" * 2**20 + b"\n" + b"1\n" * 2**14, True, "as JSON the table has more than 10000 bytes"),
        (b"x" * 2**20 + b"\n" + b"a\n" * 2**14, True, "as JSON the table has more than 10000 bytes"),
        (b"a" + b"," * 2**20 + b"\n", False, "line 1 has more than 1048576 cells"),
        (b'""' + b"," * 2**20 + b"\n", False, r"line 1 has more than 10 cells \(limits.json_values\)"),
    ],
)
def test_what_a_table_takes_is_bounded(body: bytes, header: bool, why: str) -> None:
    with pytest.raises(GatewayError, match=why) as refused:
        read(body, header=header)
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.long
def test_long_tables_are_read_in_pieces() -> None:
    lines = [f"{at},{at / 7!r}" for at in range(200_000)]
    body = "\n".join(lines).encode()
    assert read(body, limit=2**26) == "[[{}]]".format("],[".join(lines)).encode()
    mixed = json.loads(read(body + b"\nx,1", limit=2**26))
    assert mixed == [*([text, float(number)] for text, number in (line.split(",") for line in lines)), ["x", 1]]


@pytest.mark.parametrize("quotes", [1, 2**16, 2**16 + 1, 3 * 2**16])
def test_long_cells_are_read_in_pieces(quotes: int) -> None:
    text = "ä" * 2**17 + '"' * quotes + "," + '"' * quotes + "\n"
    body = f'"{text.replace(chr(34), chr(34) * 2)}",{"b" * 2**18}\n'.encode()
    assert json.loads(read(body, limit=2**22)) == [[text, "b" * 2**18]]
    with pytest.raises(DecodeError, match="line 1: the closing quote of a cell is missing"):
        read(body.partition(b"b")[0][:-2], limit=2**22)


def test_a_character_at_the_end_of_a_piece_is_whole() -> None:
    text = "a" + "é" * 2**19
    assert json.loads(read(f"{text}\n1\n".encode(), limit=2**22)) == [[text], ["1"]]


def test_quotes_here_and_there_do_not_change_the_other_rows() -> None:
    lines = [f"a{at},{at}" if at % 30_000 else f'"a\n{at}",{at}' for at in range(100_000)]
    rows = [[f"a{at}" if at % 30_000 else f"a\n{at}", at] for at in range(100_000)]
    assert json.loads(read("\n".join(lines).encode(), limit=2**26)) == rows
    with pytest.raises(DecodeError, match="line 100005 has 1 cell, but the first row 2 cells"):
        read("\n".join([*lines, "x"]).encode(), limit=2**26)


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (b"[1,2.5]", b"1\r\n2.5\r\n"),
        (b'["a"]', b"a\r\n"),
        (b"[[1,null],[2,3]]", b"1,\r\n2,3\r\n"),
        (b"[null,1]", b'""\r\n1\r\n'),
    ],
)
def test_other_tables_are_written(text: bytes, body: bytes) -> None:
    assert csv.write(text, header=False) == body


@pytest.mark.parametrize(
    ("text", "header", "why"),
    [
        (b"[[[1,2]],[[3,4]]]", False, "a row holds a list or an object, but a cell of CSV is a single value"),
        (b"[[1,[2]]]", False, "a row holds a list or an object"),
        (b'[[1,{"a":1}]]', False, "a row holds a list or an object"),
        (b'[{"x":[1]}]', True, "a row holds a list or an object"),
        (b"[[1],[]]", False, "a row is empty"),
        (b"[[]]", False, "a row is empty"),
        (b"[{}]", True, "a row is empty"),
        (b"[[1,2],[3]]", False, "row 1 has 1 cell, but row 0 2 cells"),
        (b'[["a"],["b","c"]]', False, "row 1 has 2 cells, but row 0 1 cell"),
        (b'[{"x":1},{"y":1}]', True, r"row 1 has the members \['y'\], but row 0 has \['x'\]"),
        (b"1.5", False, "expected a list of rows"),
        (b'{"x":1}', True, "expected a list of rows"),
    ],
)
def test_what_no_table_can_say_is_not_written(text: bytes, header: bool, why: str) -> None:
    with pytest.raises(GatewayError, match=why) as refused:
        csv.write(text, header=header)
    assert refused.value.reason is Reason.INVALID_INPUT


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tables = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(texts, min_size=width, max_size=width), min_size=1))


@given(tables, st.sampled_from(["\r\n", "\n"]))
def test_what_python_writes_is_read(rows: list[list[str]], end: str) -> None:
    file = io.StringIO()
    python_csv.writer(file, lineterminator=end, quoting=python_csv.QUOTE_ALL).writerows(rows)
    assert json.loads(read(file.getvalue().encode(), limit=2**20)) == rows


@given(tables, st.booleans())
def test_cells_that_go_on_from_block_to_block_are_whole(rows: list[list[str]], all_quoted: bool) -> None:
    body = csv.write(json.dumps(rows).encode(), header=False)
    if all_quoted:
        file = io.StringIO()
        python_csv.writer(file, quoting=python_csv.QUOTE_ALL).writerows(rows)
        body = file.getvalue().encode()
    kinds = {str(at): Kind.BYTES for at in range(len(rows[0]))}
    with patch.object(csv_rows, "BLOCK", 3):
        rest = csv_rows.CsvRows(body, 0, len(rows[0]))
        found = [cell for batch in rest.batches() for cell in batch.cells]
    assert found == [cell for row in rows for cell in row]
    assert json.loads(read(body, limit=2**20, kinds=kinds.get)) == rows


HOSTILE = {
    "rows of an empty text": b'""\n' * 50_000,
    "rows of a quote": b'""""\n' * 50_000,
    "rows of line feeds": b'"\n"\n' * 50_000,
    "rows of a number, then a text": b"1\n" * 50_000 + b"a\n",
    "a cell of quotes": b'"%b"\n' % (b'""' * 100_000),
    "a late letter beyond ASCII": b"a\n" * 50_000 + "é\n".encode(),
    "a cell of digits": b"1" * 200_000 + b"\n",
}


@pytest.mark.parametrize("header", [False, True])
@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_the_calls_for_a_table_grow_with_its_bytes_and_not_with_its_cells(body: bytes, header: bool) -> None:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        read(b"x\n" + body if header else body, header=header, limit=2**22)
    finally:
        sys.setprofile(None)
    assert calls < 1_500


@given(tables)
def test_python_reads_what_is_written(rows: list[list[str]]) -> None:
    body = csv.write(json.dumps(rows).encode(), header=False)
    assert list(python_csv.reader(io.StringIO(body.decode(), newline=""), strict=True)) == rows
    kinds = {str(at): Kind.BYTES for at in range(len(rows[0]))}
    assert json.loads(read(body, limit=2**20, kinds=kinds.get)) == rows


@given(st.lists(st.one_of(st.floats(), st.integers(-(2**70), 2**70)), min_size=1, max_size=20))
def test_numbers_and_what_looks_like_them_come_back(numbers: list[Any]) -> None:
    cells = [[number, str(number), True] for number in numbers]
    text = json.dumps(cells, separators=(",", ":")).encode()
    assert read(csv.write(text, header=False), limit=2**20) == text


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_a_table_or_refused(body: bytes, header: bool) -> None:
    try:
        text = read(body, header=header)
    except (DecodeError, GatewayError):
        return
    rows = json.loads(text)
    assert len({len(row) for row in rows}) <= 1


def test_numpy_reads_and_writes_the_same_tables() -> None:
    array = np.random.default_rng(0).normal(size=(5, 3))
    file = io.BytesIO()
    np.savetxt(file, array, delimiter=",")
    assert np.array_equal(np.array(json.loads(read(file.getvalue()))), array)
    body = csv.write(json.dumps(array.tolist(), separators=(",", ":")).encode(), header=False)
    assert np.array_equal(np.loadtxt(io.BytesIO(body), delimiter=","), array)
