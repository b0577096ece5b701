"""Bytes that were a message once."""

from collections.abc import Iterator

EXTREMES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"9999")
"""Written over four bytes of a length, a count, an offset or a number."""


def cut(whole: bytes) -> Iterator[bytes]:
    """At every length."""
    return (whole[:length] for length in range(len(whole)))


def flipped(whole: bytes) -> Iterator[bytes]:
    """Each bit by itself."""
    for at, byte in enumerate(whole):
        for bit in range(8):
            yield b"%b%c%b" % (whole[:at], byte ^ (1 << bit), whole[at + 1 :])


def overwritten(whole: bytes) -> Iterator[bytes]:
    """Four bytes at a time."""
    for at in range(len(whole) - 3):
        for extreme in EXTREMES:
            yield whole[:at] + extreme + whole[at + 4 :]


def respliced(whole: bytes) -> Iterator[bytes]:
    """A piece left out, and a piece twice."""
    for at in range(len(whole)):
        for size in (1, 8):
            yield whole[:at] + whole[at + size :]
            yield whole[: at + size] + whole[at:]


def corrupted(whole: bytes) -> Iterator[bytes]:
    """All of it, and bytes behind."""
    for corrupt in (cut, flipped, overwritten, respliced):
        yield from corrupt(whole)
    yield from (whole + b"\x00", whole + whole, whole + b"\xff" * 9, bytes(len(whole)))
