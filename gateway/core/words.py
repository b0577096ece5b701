"""Functions that search for words at memory speed, in message bodies that are otherwise not parsed. The protocols'
relays use this module.

`bytes.find` takes 0.5 us per KiB. For a single byte, it calls the C function `memchr`, which is 40 times faster. In
longer bodies, the module therefore searches for a letter of the word that does not occur in numbers. At each position
of this letter, it compares the word.
"""

from collections.abc import Iterator, Sequence

from gateway.core.messages import Buffer

_SHORT = 1024
"""Maximum size in bytes of a body for which `bytes.find` is faster."""
_PIECE = 2**16
"""Size of one search step in a large body, in bytes. A copy of this size stays in the processor's cache."""
_FIRST_PIECE = 4096
"""Size of the first search step in bytes, for callers that repeatedly search for the next position."""
_MOST_LETTERS = 32
"""Maximum number of occurrences of the letter outside the word. For more occurrences, `bytes.find` is faster."""


def has_word(body: Buffer, word: bytes, letter: int) -> bool:
    """Return whether `word` is in `body`. `letter` is the position, in the word, of a letter that is rare in bodies."""
    if type(body) is bytes:
        return word in body if len(body) < _SHORT else _has_word(body, word, letter)
    return any(_has_word(piece, word, letter) for piece in _pieces(body, len(word) - 1))


def has_any(body: Buffer, words: Sequence[tuple[bytes, int]]) -> bool:
    """Return True if `body` contains one of `words`.

    Each word is paired with the position of its letter (see `has_word`)."""
    if type(body) is not bytes:
        longest = max(len(word) for word, _ in words)
        return any(_has_word(piece, *each) for piece in _pieces(body, longest - 1) for each in words)
    is_short = len(body) < _SHORT
    for word, letter in words:  # noqa: SIM110 - a generator would be one more call for each word
        if word in body if is_short else _has_word(body, word, letter):
            return True
    return False


def has_byte(body: Buffer, octets: bytes, start: int = 0) -> bool:
    """Return whether one of these bytes is in `body`, from `start` on."""
    if type(body) is bytes:
        for each in octets:  # noqa: SIM110 - as in has_any
            if body.find(each, start) >= 0:
                return True
        return False
    return any(each in piece for piece in _pieces(body[start:], 0) for each in octets)


def find_byte(body: Buffer, byte: bytes, start: int) -> int:
    """Return the position of the first byte with this value in `body`, from `start` on; -1 if no byte has this
    value."""
    if not isinstance(body, memoryview):
        return body.find(byte, start)
    size = _FIRST_PIECE
    while start < len(body):
        found = bytes(body[start : start + size]).find(byte)
        if found >= 0:
            return start + found
        start += size
        size = _PIECE
    return -1


def _pieces(body: Buffer, overlap: int) -> Iterator[bytes | bytearray]:
    """Yield `body` in pieces that can be searched. Each piece begins with the last `overlap` bytes of the previous
    piece."""
    if isinstance(body, bytes | bytearray):
        yield body
        return
    for start in range(0, len(body), _PIECE):
        yield bytes(body[max(0, start - overlap) : start + _PIECE])


def _has_word(body: bytes | bytearray, word: bytes, letter: int) -> bool:
    rare = word[letter : letter + 1]
    at = body.find(rare)
    for _ in range(_MOST_LETTERS):
        if at < 0:
            return False
        if body.startswith(word, at - letter):  # a negative start is near the end: too short to match
            return True
        at = body.find(rare, at + 1)
    return body.find(word, max(0, at - len(word))) >= 0
