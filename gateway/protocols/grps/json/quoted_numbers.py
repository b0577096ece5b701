"""Numbers that JSON has in quotes: servers print int64 so, as proto3 does, and NaN and infinities.

The quotes are taken off where the text lies, so that the numbers can go straight into arrays.
"""

import re

_LIST = re.compile(rb'"flat_(?!string)[a-z0-9]++"[ \t\r\n]*+:[ \t\r\n]*+\[')
_NDARRAY = re.compile(
    rb'("ndarray"[ \t\r\n]*+:[ \t\r\n]*+)(\[(?:[-+0-9.eE\[\], \t\r\n]++|"(?:NaN|-?Infinity)")*+)',
)
_IN_NUMBERS = b"0123456789+-.eE \t\r\n"


def without_quotes(body: bytes) -> bytes:
    """`body` without the quotes around the numbers in its `flat_...` lists and its `ndarray`.

    The text may be anything still. What stands in quotes and is no number stays as it is.
    """
    pieces, kept, at, is_ndarray = [], 0, 0, False
    while (key := body.find(b'"flat_', at)) >= 0:
        # not in the lists: in a million numbers it would take a quarter as long as reading them
        is_ndarray = is_ndarray or body.find(b'"ndarray"', at, key) >= 0
        # within a string the second quote would have a backslash
        match = _LIST.match(body, key)
        start = match.end() if match else key + 1
        end = body.find(b"]", start) if match else start
        if match and body.find(b'"', start, end) >= 0:
            pieces += [body[kept:start], _bare(body[start:end])]
            kept = end
        if end < 0:
            break
        at = end
    is_ndarray = is_ndarray or body.find(b'"ndarray"', at) >= 0
    body = b"".join([*pieces, body[kept:]]) if pieces else body
    if is_ndarray and _has_words(body):
        body = _NDARRAY.sub(lambda found: found[1] + _bare_words(found[2]), body)
    return body


def _has_words(text: bytes) -> bool:
    return b'"NaN"' in text or b'Infinity"' in text


def _bare(elements: bytes) -> bytes:
    """The elements of one list of numbers, if all are in quotes; the words that are, if not."""
    around = elements.translate(None, _IN_NUMBERS)
    if around == b'"",' * around.count(b",") + b'""':
        return elements.translate(None, b'"')
    return _bare_words(elements)


def _bare_words(text: bytes) -> bytes:
    if not _has_words(text):
        return text
    for word in (b"NaN", b"Infinity", b"-Infinity"):
        text = text.replace(b'"%b"' % word, word)
    return text
