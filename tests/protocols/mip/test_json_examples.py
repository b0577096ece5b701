"""JSON texts to tensors."""

from math import inf

import pytest

from gateway.core.errors import DecodeError
from tests.protocols.mip.wire import decoded, inference, json, shown, tlv


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["[1, 2]", "[3, 4]"], ("INT64~", [2, 2], [1, 2, 3, 4])),
        (["[1, 2]", "[3, 4.5]"], ("FP64~", [2, 2], [1.0, 2.0, 3.0, 4.5])),
        (["1", "2"], ("INT64~", [2], [1, 2])),
        (["[[1], [2]]"], ("INT64~", [1, 2, 1], [1, 2])),
        (["[]", "[]"], ("INT64~", [2, 0], [])),
        (["[true]", "[false]"], ("BOOL~", [2, 1], [True, False])),
        (["18446744073709551615"], ("UINT64~", [1], [2**64 - 1])),
        (["-Infinity"], ("FP64~", [1], [-inf])),
        ([" [1 , 2]\n", "\t[3,4]"], ("INT64~", [2, 2], [1, 2, 3, 4])),
        (['["a", "é"]', '["b", "]"]'], ("BYTES~", [2, 2], [b"a", "é".encode(), b"b", b"]"])),
        (['"a"', '"b"'], ("BYTES~", [2], [b"a", b"b"])),
        # JSON that is no rectangular array of one sort, in one example or across all, is its own text
        (['{"a": 1}'], ("BYTES", [1], [b'{"a": 1}'])),
        (["[1, [2]]"], ("BYTES", [1], [b"[1, [2]]"])),
        (["null", "1"], ("BYTES", [2], [b"null", b"1"])),
        (['[1, "a"]'], ("BYTES", [1], [b'[1, "a"]'])),
        (["[1]", "[2, 3]"], ("BYTES", [2], [b"[1]", b"[2, 3]"])),
        (["[1]", '["a"]'], ("BYTES", [2], [b"[1]", b'["a"]'])),
        (["[1]", "[true]"], ("BYTES", [2], [b"[1]", b"[true]"])),
        (["18446744073709551616"], ("BYTES", [1], [b"18446744073709551616"])),
        (["[{}]", "[{}]"], ("BYTES", [2], [b"[{}]", b"[{}]"])),
    ],
)  # fmt: skip
def test_json(texts: list[str], expected: object) -> None:
    [tensor] = decoded(inference(1, len(texts), *json(*texts)))
    assert shown((tensor,)) == [expected]
    assert (tensor.content_type == "json") is (shown((tensor,))[0][2] == [text.encode() for text in texts])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_json_in_the_encodings_that_python_finds(encoding: str) -> None:
    [tensor] = decoded(inference(1, 1, tlv(2, '["é", "b"]'.encode(encoding))))
    assert shown((tensor,)) == [("BYTES~", [1, 2], ["é".encode(), b"b"])]


@pytest.mark.parametrize(
    "texts",
    [["[1", "2],[3,4]"], ["[1],[2", "3],[4]"], ["[1]],[[2]", "[3]"], ["1,2", "3"], ["[1],[2]", ""], ["[", "]"]],
)
def test_examples_do_not_run_into_each_other(texts: list[str]) -> None:
    """Each is JSON by itself, although all are read together."""
    with pytest.raises(DecodeError, match="of example"):
        decoded(inference(1, len(texts), *json(*texts)))
