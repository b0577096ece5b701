"""Numbers that are missing: `null` among numbers, which pandas, FastAPI and KServe write for NaN.

`translate: {nan: null}` on a route writes NaN so, and reads it. No reader knows the route of what it reads. So a text
that cannot be read is read again with NaN in place of null (`as_nan`), and a request that can be read then has a flaw
(MissingNumbers) that only such a route takes.
"""

import re

from gateway.core.errors import DecodeError
from gateway.core.types import Buffer, MissingNumbers

_NULL = b"null"
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
# possessive: no input makes the matching backtrack
_ELEMENT = re.compile(rb"([\[,][ \t\r\n]*+)null(?=[ \t\r\n]*+[,\]])")
_VALUE = re.compile(rb"([\[,:][ \t\r\n]*+)null(?=[ \t\r\n]*+[,\]}])")


def as_nan(text: Buffer, *, members: bool) -> bytes | None:
    """`text`, which is JSON, of the same length with NaN in place of each null in a list, with `members` also of each
    that is a member of an object. None if there is none, or if a string has the word, in which it could stand so."""
    text = bytes(text)
    count = text.count(_NULL)
    if not count or _STRING.sub(b'""', text).count(_NULL) != count:
        return None
    found, replaced = (_VALUE if members else _ELEMENT).subn(rb"\1NaN ", text)
    return found if replaced else None


def flaw(error: DecodeError) -> MissingNumbers:
    """The flaw of a request that could not be read because of `error`, and can be with `as_nan`."""
    return MissingNumbers(f"{error}; `translate: {{nan: null}}` on the route reads null among numbers as NaN")


def clearer(error: DecodeError, other: Exception) -> DecodeError:
    """Return the clearer of two errors: `error` of a text, or `other` of the same text with NaN instead of null. The
    second is clearer if it is about a missing integer."""
    if ", nan, " not in str(other):
        return error
    return DecodeError(f"{other}; null is read as NaN, which no integer can be")
