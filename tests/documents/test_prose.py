"""Tests `tests.documents.prose`: the sentences that it finds, their lines, and that the allowed numbers only go
down."""

from collections import Counter

import pytest

from tests.documents.prose import complaints, counted, docstring_lines, faults, page_lines, read, shrunk, written


def rules(text: str) -> list[str]:
    return [each.rule.name for each in faults("page.md", page_lines(text))]


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("The default is that of the model server.", "R1"),
        ("The gateway answers those that wait for a slot.", "R1"),
        ("It has two inputs; one that is empty is left out.", "R1"),
        ("Of a stream the gateway logs the first message.", "R3"),
        ("Not logged are the steps of a graph.", "R3"),
        ("The first call fails, and so does the second call.", "R3"),
        ("TLS is configured as of a listener.", "R9"),
        ("Numbers are texts, as JSON has them.", "R9"),
        ("It sends a zero in place of the value.", "R9"),
        ("The connection towards the client is closed.", "R9"),
        ("Every wire form has one encoding.", "R10"),
        ("The gateway is told how busy the server is.", "R10"),
    ],
)
def test_a_sentence_against_a_rule_is_found(sentence: str, rule: str) -> None:
    assert rules(f"# A title of four words\n\n{sentence}\n") == [rule]
    assert rules(f"| key | meaning |\n|---|---|\n| `bind` | {sentence} |\n") == [rule]


@pytest.mark.parametrize(
    "text",
    [
        "The default is the model server's default.",
        "For a stream, the gateway logs the first message.",
        "It uses the same keys as with TLS, and runs as long as at least one call runs.",
        "The key `those of` and the [text](x.md#told).",
        "```\nOne that is told, as JSON has it\n```",
        "<!-- keys: begin -->\n| `a` | The value is that of the model server. |\n<!-- keys: end -->",
        "In place of it",
    ],
)
def test_code_generated_tables_and_good_sentences_are_not_found(text: str) -> None:
    assert rules(text) == []


def test_a_fault_has_the_line_in_which_its_sentence_begins() -> None:
    page = "# Title\n\nThe first sentence is good. Here\nanother one: it is told so.\n\n- An item that is told\n"
    assert [each.line for each in faults("page.md", page_lines(page))] == [3, 6]
    module = (
        '"""A.\n\nIt does the work of those that wait.\n"""\n\nclass A:\n    x = 1\n    """The x of a told load."""\n'
    )
    assert [each.line for each in faults("a.py", docstring_lines(module))] == [3, 8]


def test_more_and_fewer_faults_than_allowed_fail() -> None:
    some = list(faults("page.md", page_lines("It is told of it.\n\nTwo are told of it.\n")))
    assert complaints(some, counted(some)) == []
    assert [each.split(":")[0] for each in complaints(some, Counter())] == ["page.md"] * 3
    [line] = complaints(some, Counter({("page.md", "R10"): 3}))
    assert line == (
        "page.md: 2 sentences against R10, 3 allowed; lower the number with python -m tests.documents.prose --shrink"
    )
    assert len(complaints([], Counter({("gone.md", "R1"): 1}))) == 1


def test_the_allowed_numbers_only_go_down() -> None:
    numbers = Counter({("a.md", "R1"): 2, ("b.md", "R1"): 5, ("new.md", "R9"): 1})
    allowed = Counter({("a.md", "R1"): 4, ("b.md", "R1"): 3, ("gone.md", "R3"): 1})
    lower = shrunk(numbers, allowed)
    assert written(lower) == "a.md R1 2\nb.md R1 3\n"
    assert read(written(lower)) == lower
    assert shrunk(numbers, None) == numbers
