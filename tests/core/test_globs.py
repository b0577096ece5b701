"""What the wildcards of a glob matched, and names made of it."""

from fnmatch import fnmatchcase

import pytest

from gateway.core.globs import ModelRenaming, captures, wildcards


@pytest.mark.parametrize(
    ("glob", "template", "client", "backend"),
    [
        ("team-*", "prod-{1}", "team-a", "prod-a"),
        ("team-*", "prod-{1}", "team-", "prod-"),
        ("team-*-model-?", "prod-{1}-{2}", "team-a-b-model-x", "prod-a-b-x"),
        ("*-*", "{2}/{1}", "a-b-c", "b-c/a"),
        ("a*b*b", "{1}|{2}", "aXbYbb", "X|Yb"),
        ("m[0-9]?", "{2}{1}", "m7x", "x7"),
        ("[!a]*", "{1}.{2}", "bcd", "b.cd"),
        ("m", "old-{0}", "m", "old-m"),
        ("a?*", "{0}.v1", "abc", "abc.v1"),
        ("*", "{1}-{1}", "x", "x-x"),
        ("*.x", "{1}{y}", "a.x", "a{y}"),
        ("*[", "{1}", "a[", "a"),
    ],
)
def test_a_name_is_made_of_what_the_wildcards_matched_and_back(
    glob: str, template: str, client: str, backend: str
) -> None:
    renaming = ModelRenaming(glob, template)
    assert fnmatchcase(client, glob)
    assert renaming(client) == backend
    assert renaming.client_name(backend) == client


@pytest.mark.parametrize(
    ("glob", "template", "backend"),
    [
        ("team-*", "prod-{1}", "stage-a"),  # not one of these names
        ("*-*", "{1}", "a"),  # nothing says what the second wildcard matched
        ("*", "{1}-{1}", "x-y"),  # the same text in both places
        ("m[0-9]", "{1}", "x"),  # no name that the glob matches
    ],
)
def test_a_backends_name_that_no_clients_name_leads_to_has_none(glob: str, template: str, backend: str) -> None:
    assert ModelRenaming(glob, template).client_name(backend) is None


def test_the_wildcards_are_those_of_fnmatch() -> None:
    assert wildcards("a*?[b][]c][!d][") == ["*", "?", "[b]", "[]c]", "[!d]"]
    assert captures("{1}{x}-{0}{12}") == (1, 0, 12)
    with pytest.raises(ValueError, match="has 1 wildcards"):
        ModelRenaming("a*", "{2}")


def test_a_name_made_to_match_slowly_is_read_in_one_pass() -> None:
    """With backtracking this would take longer than the world is old."""
    name = "a" * 1024
    assert ModelRenaming("*a" * 40 + "b", "{1}")(name) == name
