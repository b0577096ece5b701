"""Removes the quotes around numbers. Servers write int64, NaN and infinities in quotes, as in proto3's JSON mapping.

The quotes are removed from the JSON text before the parser reads it, so the parser can read lists directly into arrays.
A large text is processed in steps, because a single C call blocks all other threads while it scans the text.
"""

import re
from collections.abc import Iterator
from functools import partial

_SMALL = 8192
"""Maximum size of a text for which one call of `bytes.find` is the fastest, in bytes."""

_STEP = 2**18
"""Number of bytes that one call scans or copies. In 64 MiB, finding a word takes 50 ms, and matching a pattern takes
0.1 s."""

_LIST = re.compile(rb'"flat_?(?![sS]tring)[A-Za-z0-9]++"[ \t\r\n]*+:[ \t\r\n]*+\[')
_IN_NUMBERS = b"0123456789+-.eE \t\r\n"

_NDARRAY = re.compile(rb'"ndarray"[ \t\r\n]*+:[ \t\r\n]*+(?=\[)')
_IN_NDARRAY = re.compile(rb'(?:[-+0-9.eE\[\], \t\r\n]++|"(?:NaN|-?Infinity)")++')


def unquote(body: bytes) -> bytes:
    """Return `body` without the quotes around numbers in its `flat_...` lists, in both spellings, and in its `ndarray`.

    `body` can be invalid JSON. Strings that are not numbers keep their quotes."""
    find = body.find if len(body) <= _SMALL else partial(_find, body)
    pieces, kept, at = [], 0, 0
    while (key := find(b'"flat', at)) >= 0:
        # A match is always a key: inside a string, a backslash would precede the second quote.
        match = _LIST.match(body, key)
        at = match.end() if match else key + 1
        if match:
            start, at = at, body.find(b"]", at)
            if at < 0:
                break
            if body.find(b'"', start, at) >= 0:
                pieces += [body[kept:start], _unquote_list(body, start, at)]
                kept = at
    is_ndarray = find(b'"ndarray"') >= 0
    body = b"".join([*pieces, body[kept:]]) if pieces else body
    # without these letters, the list contains neither NaN nor Infinity
    return _unquote_ndarray(body) if is_ndarray and (b"N" in body or b"I" in body) else body


def _find(body: bytes, word: bytes, at: int = 0) -> int:
    """Return the result of `body.find` for a word that begins with a quote, but search in steps.

    The search up to the next quote needs no steps, because finding one byte takes a tenth of the time of finding a
    word."""
    while (at := body.find(b'"', at)) >= 0:
        found = body.find(word, at, at + _STEP)
        if found >= 0:
            return found
        at += _STEP - len(word) + 1
    return -1


def _unquote_list(body: bytes, start: int, end: int) -> bytes:
    """Return the elements of one list of numbers without quotes.

    Either all elements are in quotes, or only NaN and infinities are."""
    if end - start > _STEP:
        return _unquote_in_steps(body, start, end)
    elements = body[start:end]
    return elements.translate(None, b'"') if _are_quoted(elements) else _unquote_words(elements)


def _unquote_in_steps(body: bytes, start: int, end: int) -> bytes:
    spans = list(_spans(body, start, end))
    if any(to - at > 2 * _STEP for at, to in spans):
        return body[start:end]  # an element that is longer than any number
    if all(_are_quoted(body[at:to]) for at, to in spans):
        return b",".join([body[at:to].translate(None, b'"') for at, to in spans])
    return b",".join([_unquote_words(body[at:to]) for at, to in spans])


def _spans(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each part of a list. The parts take about _STEP bytes and end at commas."""
    while (comma := body.find(b",", start + _STEP, end)) >= 0:
        yield start, comma
        start = comma + 1
    yield start, end


def _are_quoted(elements: bytes) -> bool:
    """Return whether all elements are numbers in quotes."""
    punctuation = elements.translate(None, _IN_NUMBERS)
    return punctuation == b'"",' * (len(punctuation) // 3) + b'""'


def _unquote_ndarray(body: bytes) -> bytes:
    """Return `body` without the quotes around NaN and infinities in its `ndarray`."""
    pieces, kept, at = [], 0, 0
    while (key := _find(body, b'"ndarray"', at)) >= 0:
        match = _NDARRAY.match(body, key)
        at = match.end() if match else key + 1
        if match:
            pieces.append(body[kept:at])
            while part := _IN_NDARRAY.match(body, at, at + _STEP):
                pieces.append(_unquote_words(part[0]))
                at = part.end()
            kept = at
    return b"".join([*pieces, body[kept:]])


def _unquote_words(text: bytes) -> bytes:
    if b'"NaN"' not in text and b'Infinity"' not in text:
        return text
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        text = text.replace(b'"%b"' % word, word)
    return text
