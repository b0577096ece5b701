"""Text of servers on terminals."""

import json

import pytest
import yaml

from gateway.tools.printed import in_yaml, indented_json, printable, printable_lines

BIDI = "safe\u202egnp.\u2066exe\x1b[2J\x07\x9b31m\U000e0041"
"""Shown as another name, with commands for terminals."""


def test_nothing_moves_the_cursor_or_turns_the_text() -> None:
    assert printable(BIDI) == "safe?gnp.?exe?[2J??31m?"
    assert printable_lines("größe\n\u202e") == "größe\n?"


@pytest.mark.parametrize("text", [BIDI, "größe \u6a21 \U0001f600", 'quote" \\ back', "a\nb"])
def test_what_is_escaped_is_read_back(text: str) -> None:
    for written, read in ((indented_json({"name": text}), json.loads), (f"name: {in_yaml(text)}", yaml.safe_load)):
        assert all(each.isprintable() or each == "\n" for each in written)
        assert read(written) == {"name": text}
