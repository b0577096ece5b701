"""Whether one model glob takes every name that another one takes."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

MOST_STEPS = 100_000
"""States looked at in one comparison. Patterns that people write take hundreds; beyond the bound nothing is claimed."""

# `[...]` as fnmatch reads it: a `]` that comes first is a member, and a `[` without its `]` is a plain character.
_TOKEN = re.compile(r"\*|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)


def covers(wide: str, narrow: str) -> bool:
    """Whether every name (at least one character) that the glob `narrow` takes is taken by the glob `wide`. False
    where that is not certain.

    A name that only `narrow` takes is looked for: along every state of `narrow` with the states that `wide` can be in
    after the same characters, over one character of each sort that the two tell apart.
    """
    wide_tokens, narrow_tokens = (_TOKEN.findall(re.sub(r"\*+", "*", glob)) for glob in (wide, narrow))
    alphabet = sorted(_alphabet([*wide_tokens, *narrow_tokens]))
    todo = [(at, _after_stars(wide_tokens, {0})) for at in _after_stars(narrow_tokens, {0})]
    seen = set(todo)
    steps = 0
    while todo:
        at, wide_states = todo.pop()
        for character in alphabet:
            steps += 1 + len(wide_states)
            if steps > MOST_STEPS:
                return False
            reached = _after(narrow_tokens, {at}, character)
            if not reached:
                continue
            states = _after(wide_tokens, wide_states, character)
            if len(narrow_tokens) in reached and len(wide_tokens) not in states:
                return False
            new = {(each, states) for each in reached} - seen
            seen |= new
            todo += new
    return True


def _after(tokens: list[str], states: "set[int] | frozenset[int]", character: str) -> frozenset[int]:
    """The states after `character`; a state is the number of tokens that are done."""
    moved = {
        at if tokens[at] == "*" else at + 1
        for at in states
        if at < len(tokens) and (tokens[at] == "*" or fnmatchcase(character, tokens[at]))
    }
    return _after_stars(tokens, moved)


def _after_stars(tokens: list[str], states: set[int]) -> frozenset[int]:
    """`states` and those that lie behind stars, which may stand for nothing."""
    found = set(states)
    for at in states:
        while at < len(tokens) and tokens[at] == "*":
            at += 1
            found.add(at)
    return frozenset(found)


def _alphabet(tokens: list[str]) -> Iterator[str]:
    """Each character that a token names, its neighbours (a range ends there), and one that none of them names."""
    named = {ord(character) for token in tokens for character in token}
    near = {code + step for code in named for step in (-1, 0, 1)}
    near.add(next(code for code in range(ord("a"), 0x10FFFF) if code not in near))
    return (chr(code) for code in near if 0 <= code <= 0x10FFFF)
