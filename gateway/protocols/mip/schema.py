"""MIP's numbers, as the code of kubemo has them: its text gives none for the version and the error codes."""

from enum import IntEnum

NAME = "mip"
VERSION = 0
NAN = "literal"
"""NaN, Infinity and -Infinity: what Python's json, which kubemo reads and writes with, has for them."""

MOST_TENSORS = 0xFF
MOST_ROWS = 0xFFFF
MOST_BYTES = 0xFFFFFFFF


class Kind(IntEnum):
    """What a packet is about."""

    ERROR = 0
    PING = 1
    INFERENCE = 2


class Subtype(IntEnum):
    """Of every kind but ERROR, whose subtype is the error's code."""

    REQUEST = 0
    RESPONSE = 1


class Fault(IntEnum):
    """Error codes."""

    PROTOCOL = 0
    SUBTYPE = 1
    METHOD = 2
    MEMORY = 3
    SHAPE = 4
    INTERNAL = 5


class Form(IntEnum):
    """Types of TLVs."""

    TEXT = 1
    JSON = 2
    IMAGE = 3
    NPY = 0x4E505900
    """`NPY` and a NUL. No type of kubemo's own: a .npy file, for peers that have registered it with
    `kubemo.register()`."""


FORMS = frozenset(Form)


class Batch:
    """The words of a backend's `batch`."""

    SPLIT = "split"
    """The first dimension of every tensor counts the examples of one packet."""
    WHOLE = "whole"
    """A packet has one example, which holds the tensors as they are."""
    EACH = "each"
    """A packet for each row, its one example."""
