"""JSON texts to tensors."""

from json import loads
from math import inf, prod

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.json import PIECE
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.mip.json_examples import encode_strings
from tests.protocols.mip.wire import decoded, inference, json, shown, tlv
from tests.traced import traced


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
        (['["a"]', "[1]"], ("BYTES", [2], [b'["a"]', b"[1]"])),
        (["[1]", "[true]"], ("BYTES", [2], [b"[1]", b"[true]"])),
        (["18446744073709551616"], ("BYTES", [1], [b"18446744073709551616"])),
        (["[{}]", "[{}]"], ("BYTES", [2], [b"[{}]", b"[{}]"])),
    ],
)  # fmt: skip
def test_json(texts: list[str], expected: object) -> None:
    [found] = decoded(inference(1, len(texts), *json(*texts)))
    assert shown((found,)) == [expected]
    assert (found.content_type == "json") is (shown((found,))[0][2] == [text.encode() for text in texts])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-be"])
def test_json_in_the_encodings_that_python_finds(encoding: str) -> None:
    [tensor] = decoded(inference(1, 1, tlv(2, '["é", "b"]'.encode(encoding))))
    assert shown((tensor,)) == [("BYTES~", [1, 2], ["é".encode(), b"b"])]


@pytest.mark.parametrize(
    "texts",
    [
        ["[1", "2],[3,4]"],
        ["[1],[2", "3],[4]"],
        ["[1]],[[2]", "[3]"],
        ["1,2", "3"],
        ["[1],[2]", ""],
        ["[1],[2]", "[3]"],
        ["[", "]"],
    ],
)
def test_examples_do_not_run_into_each_other(texts: list[str]) -> None:
    """Each is JSON by itself, although all are read together."""
    with pytest.raises(DecodeError, match="of example"):
        decoded(inference(1, len(texts), *json(*texts)))


@pytest.mark.parametrize("shape", [(2, PIECE + 1), (1, 3, PIECE), (PIECE + 1, 1), (3, 2, 2), (2, 0), (1, PIECE + 1, 2)])
def test_texts_of_any_shape_become_json(shape: tuple[int, ...]) -> None:
    texts = np.array([str(at) for at in range(prod(shape))], object).reshape(shape)
    written = encode_strings(tensor("x", texts, Datatype.BYTES), "input 'x'")
    assert [loads(b"".join(row)) for row in written] == texts.tolist()


@pytest.mark.long
def test_one_long_example_is_written_in_pieces() -> None:
    count = 96 * PIECE
    empty = Tensor("x", Datatype.BYTES, (1, count), bytes(4 * count))
    with traced() as memory:
        [row] = encode_strings(empty, "input 'x'")
    assert sum(map(len, row)) == 3 * count + 1
    assert memory.peak < 12 * count, "in one list, its elements and their texts take 16 bytes each, beside the result"


def test_a_text_that_is_no_utf_8_is_named() -> None:
    wrong = tensor("x", np.array([[b"a"] * PIECE + [b"\xff"]], object), Datatype.BYTES)
    with pytest.raises(GatewayError, match=f"element {PIECE} is not UTF-8"):
        encode_strings(wrong, "input 'x'")
