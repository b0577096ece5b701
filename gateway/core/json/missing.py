"""Functions that read missing numbers: `null` among numbers, which pandas, FastAPI and KServe write for NaN.

A route with `translate: {nan: null}` writes and reads NaN as null. However, the decoder runs before the gateway selects
the route. Therefore, if a text is invalid, the decoder reads the text again with NaN instead of null (`as_nan`). If
this succeeds, the request has a flaw (MissingNumbers), and only a route with this setting accepts it. The bridge does
the same with rows that are JSON texts.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import Buffer
from gateway.core.requests import MissingNumbers

T = TypeVar("T")

_NULL = b"null"
_NAN = np.frombuffer(b"NaN ", np.uint8)
_PIECE = 2**20
"""Number of bytes to search in one step. Other threads can run between two steps."""
_MOST_BLANKS = 64
"""Maximum number of blanks to skip next to a null. A null next to more blanks is not replaced."""


def as_nan(text: Buffer, *, members: bool) -> bytes | None:
    """Replace each null in a list of the JSON `text` with NaN and a blank.

    If `members` is True, also replace each null that is the value of an object's member. Returns None if nothing needs
    to be replaced, or if a string contains the word null. Also returns None if the text contains a backslash, because
    an escaped quote does not end a string. Clients choose the number of nulls and strings, so time and memory depend
    only on the size of the text, and are linear in it."""
    text = bytes(text)
    if _NULL not in text or b"\\" in text:
        return None
    before, behind = _octets(b"[,:" if members else b"[,"), _octets(b",]}" if members else b",]")
    found = np.frombuffer(text, np.uint8).copy()
    quotes, replaced = 0, False
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE + len(_NULL) - 1]
        places = _places(piece)
        if (np.cumsum(np.frombuffer(piece, np.uint8) == ord('"'))[places] + quotes & 1).any():
            return None  # in a string
        quotes += text.count(b'"', start, start + _PIECE)
        places += start
        places = places[_is_beside(found, places, before, -1) & _is_beside(found, places + len(_NULL) - 1, behind, 1)]
        found[places[:, None] + np.arange(len(_NULL))] = _NAN
        replaced = replaced or len(places) > 0
    return found.tobytes() if replaced else None


def _octets(octets: bytes) -> NDArray[np.bool_]:
    """Return a table that states, for each byte value, whether it is in `octets`."""
    table = np.zeros(256, np.bool_)
    table[list(octets)] = True
    return table


_BLANK = _octets(b" \t\r\n")


def _places(piece: bytes) -> NDArray[np.intp]:
    """Return the positions of the word null in `piece`."""
    octets = np.frombuffer(piece, np.uint8)
    most = max(len(piece) - len(_NULL) + 1, 0)
    is_null = np.ones(most, np.bool_)
    for at, octet in enumerate(_NULL):
        is_null &= octets[at : at + most] == octet
    return np.flatnonzero(is_null)


def _is_beside(
    octets: NDArray[np.uint8], places: NDArray[np.intp], wanted: NDArray[np.bool_], step: int
) -> NDArray[np.bool_]:
    """Return, for each position in `places`, whether the next non-blank byte in the direction `step` is `wanted`."""
    beside = places + step
    for _ in range(_MOST_BLANKS):
        inside = (beside >= 0) & (beside < len(octets))
        is_blank = inside & _BLANK[octets[np.where(inside, beside, 0)]]
        if not is_blank.any():
            return inside & wanted[octets[np.where(inside, beside, 0)]]
        beside = np.where(is_blank, beside + step, beside)
    return np.zeros(len(places), np.bool_)


def reread(error: DecodeError, text: Buffer, read: Callable[[bytes], T], *, members: bool) -> T:
    """Call `read` again for `text` with NaN instead of null (`as_nan`), after the first attempt failed with `error`.
    Return the result.

    Raises:
        DecodeError: `error`, or a clearer error, if the text with NaN is invalid too.
    """
    found = as_nan(text, members=members)
    if found is None:
        raise error
    try:
        return read(found)
    except (DecodeError, GatewayError) as other:
        raise clearer_error(error, other) from None


def read_reply(error: DecodeError, text: Buffer, read: Callable[[bytes], T], nan: str | None, *, members: bool) -> T:
    """Same as `reread`, for the text of a backend's reply. `nan` is the route's setting.

    Raises:
        DecodeError: `error`, or a clearer error, if the text with NaN is invalid too. If only the setting is missing,
            the message reports this.
    """
    found = reread(error, text, read, members=members)
    if nan != "null":
        raise DecodeError(flaw(error)) from error
    return found


def flaw(error: DecodeError) -> MissingNumbers:
    """Return the flaw of a request whose decoding fails with `error`, but succeeds with `as_nan`."""
    return MissingNumbers(f"{error}; `translate: {{nan: null}}` on the route reads null among numbers as NaN")


def clearer_error(error: DecodeError, other: Exception) -> DecodeError:
    """Return the clearer of two errors: `error` about a text, and `other` about the same text with NaN instead of null.
    The second is clearer if a missing number would have to be an integer."""
    if ", nan, " not in str(other):
        return error
    return DecodeError(f"{other}; null is read as NaN, which no integer can be")
