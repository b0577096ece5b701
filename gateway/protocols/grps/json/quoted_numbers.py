"""Numbers in quotes: servers print int64 that way, as proto3 does, and NaN and infinities.

The quotes are removed from the JSON text before it is parsed, so that the lists can be read straight into arrays.
"""

import re

_LIST = re.compile(rb'"flat_(?!string)[a-z0-9]++"[ \t\r\n]*+:[ \t\r\n]*+\[')
_NDARRAY = re.compile(
    rb'("ndarray"[ \t\r\n]*+:[ \t\r\n]*+)(\[(?:[-+0-9.eE\[\], \t\r\n]++|"(?:NaN|-?Infinity)")*+)',
)
_IN_NUMBERS = b"0123456789+-.eE \t\r\n"


def unquote(body: bytes) -> bytes:
    """`body` without the quotes around numbers in its `flat_...` lists and its `ndarray`.

    `body` need not be valid JSON. Strings that are not numbers keep their quotes.
    """
    pieces, kept, at, is_ndarray = [], 0, 0, False
    while (key := body.find(b'"flat_', at)) >= 0:
        # Searched between the lists only: in a list of a million numbers that takes a quarter of the time to read them.
        is_ndarray = is_ndarray or body.find(b'"ndarray"', at, key) >= 0
        # A match is a key, not text within a string: there its second quote would have a backslash before it.
        match = _LIST.match(body, key)
        start = match.end() if match else key + 1
        end = body.find(b"]", start) if match else start
        if match and body.find(b'"', start, end) >= 0:
            pieces += [body[kept:start], _unquote_list(body[start:end])]
            kept = end
        if end < 0:
            break
        at = end
    is_ndarray = is_ndarray or body.find(b'"ndarray"', at) >= 0
    body = b"".join([*pieces, body[kept:]]) if pieces else body
    if is_ndarray and _has_nan_words(body):
        body = _NDARRAY.sub(lambda found: found[1] + _unquote_nan_words(found[2]), body)
    return body


def _has_nan_words(text: bytes) -> bool:
    return b'"NaN"' in text or b'Infinity"' in text


def _unquote_list(elements: bytes) -> bytes:
    """The elements of one list of numbers without quotes: around all elements, else only around NaN and infinities."""
    punctuation = elements.translate(None, _IN_NUMBERS)
    if punctuation == b'"",' * punctuation.count(b",") + b'""':
        return elements.translate(None, b'"')
    return _unquote_nan_words(elements)


def _unquote_nan_words(text: bytes) -> bytes:
    if not _has_nan_words(text):
        return text
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        text = text.replace(b'"%b"' % word, word)
    return text
