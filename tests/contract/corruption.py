"""Generates corrupted versions of a message."""

from collections.abc import Iterator

EXTREMES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"9999")
"""Values that replace four bytes of a length, a count, an offset or a number."""


def cut(whole: bytes) -> Iterator[bytes]:
    """Yield the message truncated to every length."""
    return (whole[:length] for length in range(len(whole)))


def flipped(whole: bytes) -> Iterator[bytes]:
    """Yield the message with each single bit flipped."""
    for at, byte in enumerate(whole):
        for bit in range(8):
            yield b"%b%c%b" % (whole[:at], byte ^ (1 << bit), whole[at + 1 :])


def overwritten(whole: bytes) -> Iterator[bytes]:
    """Yield the message with four bytes overwritten, at each position."""
    for at in range(len(whole) - 3):
        for extreme in EXTREMES:
            yield whole[:at] + extreme + whole[at + 4 :]


def respliced(whole: bytes) -> Iterator[bytes]:
    """Yield the message with a piece removed, and with a piece repeated."""
    for at in range(len(whole)):
        for size in (1, 8):
            yield whole[:at] + whole[at + size :]
            yield whole[: at + size] + whole[at:]


def corrupted(whole: bytes) -> Iterator[bytes]:
    """Yield all corruptions of the message, and the message followed by other bytes."""
    for corrupt in (cut, flipped, overwritten, respliced):
        yield from corrupt(whole)
    yield from (whole + b"\x00", whole + whole, whole + b"\xff" * 9, bytes(len(whole)))
