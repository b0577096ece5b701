"""Media types in headers, and what an Accept header prefers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.protocols.json.media.media_types import MediaType, check_charset, declared, parse, preferred


def known(text: str) -> MediaType:
    found = parse(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "essence", "parameters"),
    [
        ("application/json", "application/json", {}),
        (" Text/CSV ;Header=Present ; charset=utf-8 ", "text/csv", {"header": "Present", "charset": "utf-8"}),
        ('multipart/form-data; boundary="a b;,c"', "multipart/form-data", {"boundary": "a b;,c"}),
        (r'a/b; c="\"\\d"', "a/b", {"c": '"\\d'}),
        ("a/b;; c=d;", "a/b", {"c": "d"}),
        ('a/b; c=""', "a/b", {"c": ""}),
        ("image/*", "image/*", {}),
        ("application/vnd.api+json", "application/vnd.api+json", {}),
    ],
)
def test_a_media_type_is_read(text: str, essence: str, parameters: dict[str, str]) -> None:
    assert (known(text).essence, known(text).parameters) == (essence, parameters)


@pytest.mark.parametrize(
    "text",
    ["", "json", "a/", "/b", "a/b/c", "a/b, c/d", "a/b,", "a/b; c", "a/b; c=", 'a/b; c="d', "a/b; c = d", "a b/c",
     "a/b; c=1; C=2", "ä/b"],
)  # fmt: skip
def test_what_is_no_media_type(text: str) -> None:
    assert parse(text) is None
    assert declared(text) is None


@pytest.mark.parametrize(
    ("one", "other", "match"),
    [
        ("application/json", "APPLICATION/JSON; charset=utf-8", True),
        ("application/json", "application/x-ndjson", False),
        ("application/json", "text/json", False),
        ("text/csv; header=present", "text/csv", True),
        ("text/csv; header=present", "text/csv; header=Present", True),
        ("text/csv; header=present", "text/csv; header=absent", False),
        ("image/*", "image/png", True),
        ("image/*", "text/png", False),
        ("*/*", "text/plain", True),
        ("*/*; a=b", "text/plain; a=c", False),
    ],
)
def test_types_match(one: str, other: str, match: bool) -> None:
    assert known(one).matches(known(other)) is match
    assert known(other).matches(known(one)) is match


def test_csv_is_declared_with_a_header_or_without() -> None:
    bare, named = declared("text/csv"), declared("text/csv; header=present")
    assert bare is not None
    assert named is not None
    assert bare.matches(known("text/csv"))
    assert not bare.matches(known("text/csv; header=present"))
    assert named.matches(known("text/csv"))
    assert declared("application/json") == known("application/json")


OFFERED = ("application/json", "text/csv; header=present", "application/x-npy")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", 0),
        ("*/*", 0),
        ("application/json", 0),
        ("text/csv", 1),
        ("Text/*", 1),
        ("text/csv;header=absent", None),
        ("application/x-npy, application/json", 0),
        ("application/x-npy, application/json;q=0.5", 2),
        ("application/json;q=0.4,*/*;q=0.5", 1),
        ("application/json ; Q=0 , */*", 1),
        ("application/*;q=0.1, application/x-npy;q=0.001, text/csv;q=0.01", 0),
        ("application/*, application/json;q=0, */*;q=0.5", 2),
        ("application/json;charset=utf-8", 0),
        ("text/html", None),
        ("*/*;q=0", None),
        ("*/*;q=0.0", None),
        ("text/html, */*;q=0.1", 0),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", 0),
        (", ,text/csv,,", 1),
        ('text/html;a="x, application/json", text/csv', 1),
        ("json", 0),
        ("nonsense, text/csv", 1),
        ("application/json;q=2, text/csv;q=0.1", 1),
    ],
)
def test_accept_headers(accept: str, chosen: int | None) -> None:
    assert preferred(accept, [known(each) for each in OFFERED]) == chosen


def test_a_range_that_is_offered_is_accepted_by_its_members() -> None:
    assert preferred("image/png", [known("application/json"), known("image/*")]) == 1
    assert preferred("image/png", []) is None
    assert preferred("", []) is None


@pytest.mark.parametrize("text", ["text/csv", "text/csv; charset=UTF-8", 'text/csv; charset="us-ascii"'])
def test_texts_are_utf8(text: str) -> None:
    check_charset(known(text))


def test_another_charset_is_refused() -> None:
    with pytest.raises(DecodeError, match=re.escape("Content-Type has charset 'latin-1', expected utf-8")):
        check_charset(known("text/plain; charset=latin-1"))


@given(st.text(st.sampled_from('ab/*;,="\\ q01.'), max_size=40))
def test_any_header_is_read(text: str) -> None:
    found = parse(text)
    assert found is None or "/" in found.essence
    assert preferred(text, [known("a/b")]) in (0, None)


@pytest.mark.parametrize("text", ["a/b" + ";" * 60_000, "a/b;c=" + '"\\' * 30_000, "a/b," * 15_000, "a/b; c=d" * 8_000])
def test_long_headers_are_read_in_linear_time(text: str) -> None:
    assert preferred(text, [known("x/y")]) in (0, None)
