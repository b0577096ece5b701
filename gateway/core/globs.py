"""Globs of model names, with the syntax of fnmatch.

Routes use this module to rename models. It finds the substrings that the wildcards matched, and builds names from them.

A wildcard is `*`, `?` or `[...]`. Every `*` except the last matches the shortest substring after which the glob up to
the next `*` matches. Matching never tries longer substrings, because clients choose the names and could use
backtracking to make matching slow.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import translate
from typing import TypeAlias

from gateway.core.frozen import frozen

# A `]` that comes first in `[...]` is a member, and a `[` without a closing `]` is a plain character.
TOKEN = re.compile(r"\*|\?|\[!?+\]?+[^\]]*\]|.", re.DOTALL)
"""One wildcard or character of a glob."""

_CAPTURE = re.compile(r"\{([0-9]+)\}")


def wildcards(glob: str) -> list[str]:
    """Return the wildcards in `glob`, in order."""
    return [token for token in TOKEN.findall(glob) if _is_wildcard(token)]


def captures(template: str) -> tuple[int, ...]:
    """Return the numbers of the captures `{0}`, `{1}`, ... in `template`, in order."""
    return tuple(int(each) for each in _CAPTURE.findall(template))


@frozen
class _Part:
    """A literal character of a template, or the number of a capture."""

    text: str = ""
    capture: int | None = None


class ModelRenaming:
    """Converts the client's model name to the backend's name. The result can contain substrings that wildcards matched.

    In `template`, `{1}`, `{2}`, ... stand for the substrings that the first, second, ... wildcard of `glob` matched,
    and `{0}` stands for the entire name.

    Raises:
        ValueError: `template` contains a number without a matching wildcard in `glob`.
    """

    def __init__(self, glob: str, template: str) -> None:
        self._tokens = TOKEN.findall(glob)
        self._pattern = _compiled(self._tokens)
        self._parts = _parts(template)
        captured = ["*", *wildcards(glob)]
        used = set(captures(template))
        if used and max(used) >= len(captured):
            raise ValueError(f"{glob!r} has {len(captured) - 1} wildcards, {template!r} needs {max(used)}")
        reversed_tokens = [each.text if each.capture is None else captured[each.capture] for each in self._parts]
        self._backend = _compiled(reversed_tokens)
        self._is_invertible = 0 in used or used >= set(range(1, len(captured)))

    def __call__(self, name: str) -> str:
        """Return the backend's name if the glob matches `name`, otherwise `name` itself."""
        found = self._pattern.fullmatch(name)
        if found is None:
            return name
        groups = (name, *found.groups())
        return "".join(part.text if part.capture is None else groups[part.capture] for part in self._parts)

    def client_name(self, name: str) -> str | None:
        """Return a client's name that maps to the backend's `name`; None if no such name exists, or if it cannot be
        determined."""
        found = self._backend.fullmatch(name) if self._is_invertible else None
        if found is None:
            return None
        numbers = [part.capture for part in self._parts if part.capture is not None]
        taken: Mapping[int, str] = dict(zip(numbers, found.groups(), strict=True))
        client = taken[0] if 0 in taken else self._filled(taken)
        return client if self._pattern.fullmatch(client) and self(client) == name else None

    def _filled(self, taken: Mapping[int, str]) -> str:
        """Return the glob with its wildcards replaced by the substrings in `taken`."""
        texts, number = [], 0
        for token in self._tokens:
            number += _is_wildcard(token)
            texts.append(taken[number] if _is_wildcard(token) else token)
        return "".join(texts)


Rewritten: TypeAlias = str | ModelRenaming | None
"""The rule for a model's name at the backend: a fixed name, a renaming of the client's name, or None to keep the
client's name."""


def backend_name(rewritten: Rewritten, name: str) -> str:
    """Return the backend's name for the model that clients call `name`."""
    if rewritten is None:
        return name
    return rewritten if isinstance(rewritten, str) else rewritten(name)


def client_name(rewritten: Rewritten, name: str) -> str | None:
    """Return a name by which clients reach the model that the backend calls `name`; None if it cannot be determined."""
    return rewritten.client_name(name) if isinstance(rewritten, ModelRenaming) else None if rewritten else name


def _parts(template: str) -> tuple[_Part, ...]:
    """Return the parts of the template: single characters, and captures."""
    pieces = _CAPTURE.split(template)  # texts are at even positions, numbers at odd positions
    parts: list[_Part] = []
    for at, piece in enumerate(pieces):
        parts += [_Part(capture=int(piece))] if at % 2 else [_Part(each) for each in piece]
    return tuple(parts)


def _is_wildcard(token: str) -> bool:
    return token in ("*", "?") or len(token) > 1


def _compiled(tokens: Sequence[str]) -> re.Pattern[str]:
    """Return a regular expression for these tokens, with a group for each wildcard. The part between two `*` is in an
    atomic group, so no backtracking occurs there."""
    segments = [""]
    for token in tokens:
        if token == "*":
            segments.append("")
        elif token == "?":
            segments[-1] += "(.)"
        else:
            segments[-1] += f"({_character_class(token)})" if len(token) > 1 else re.escape(token)
    first, *rest = segments
    if not rest:
        return re.compile(first, re.DOTALL)
    inner = "".join(f"(?>(.*?){segment})" for segment in rest[:-1])
    return re.compile(f"{first}{inner}(.*){rest[-1]}", re.DOTALL)


def _character_class(token: str) -> str:
    """Return a glob's `[...]` as a regular expression, translated by fnmatch itself."""
    whole = translate(token)
    return whole.removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
