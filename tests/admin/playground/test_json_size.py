"""How many values JSON has, before it is read."""

import pytest

from gateway.admin.playground.form import has_more_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 3]", 4), ("[[], [], []]", 7), ("[{}, {}]", 5), ('{"a": 1, "b": [2]}', 4), ('["a,b,[{", "c"]', 3),
        (r'["\"[,,,", "\\", "["]', 4), ('["[[[[', 2), ('["\\', 2), ("", 1), ("7", 1),
    ],
)  # fmt: skip
def test_texts_do_not_count(text: str, values: int) -> None:
    assert not has_more_values(text, values)
    assert has_more_values(text, values - 1)


def test_texts_without_an_end_take_no_longer() -> None:
    """A search that begins anew at each quotation mark would take hours."""
    assert not has_more_values('"' + r"\",[" * 500_000, 2)
