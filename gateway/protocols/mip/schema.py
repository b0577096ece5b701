"""Defines the numeric constants of MIP.

The specification does not define the version number and the error codes, so the gateway uses kubemo's numbers.
"""

from enum import IntEnum

NAME = "mip"
VERSION = 0
NAN = "literal"
"""NaN, Infinity and -Infinity, as written by Python's json module, which kubemo uses."""

MAX_TENSORS = 0xFF
MAX_BATCH = 0xFFFF
MAX_PAYLOAD = 0xFFFFFFFF


class PacketKind(IntEnum):
    """The `kind` of a packet."""

    ERROR = 0
    PING = 1
    INFERENCE = 2


class Subtype(IntEnum):
    """The `subtype` of a ping and of an inference. The subtype of an error is its ErrorCode."""

    REQUEST = 0
    RESPONSE = 1


class CallsAtOnce(IntEnum):
    """The reserved byte of a ping, by which gateways recognize each other. Other servers ignore the byte. In all other
    packets, the byte is 0."""

    UNSAID = 0
    ASKED = 0x3F
    """In a request, the byte asks whether the server accepts more than one call at a time."""
    MANY = 0x21
    """In the response to this request, including an error response, the byte means that the server accepts any number
    of concurrent calls. The server then also accepts any number of connections, with any number of requests each."""


class ErrorCode(IntEnum):
    """The `subtype` of an error."""

    PROTOCOL = 0
    SUBTYPE = 1
    METHOD = 2
    MEMORY = 3
    SHAPE = 4
    INTERNAL = 5


class TlvType(IntEnum):
    """The type of a TLV, which is the format of its tensor."""

    TEXT = 1
    JSON = 2
    IMAGE = 3
    NPY = 0x4E505900
    """`NPY` and a NUL, for a .npy file. kubemo does not define this type; peers add it with `kubemo.register()`."""


TLV_TYPES = frozenset(TlvType)

OWN_TYPE = "registered TLV type"
"""The parameter of a tensor with a TLV type that the model's author has registered (`kubemo.register()`).

The value is the type's number. The gateway forwards the data unchanged."""


class BatchMode:
    """The values of a backend's `batch`."""

    SPLIT = "split"
    """The request is one packet. The first dimension of every tensor is the number of examples."""
    WHOLE = "whole"
    """The request is one packet with one example, which contains the tensors unchanged."""
    EACH = "each"
    """The gateway sends each row as one packet with one example."""
