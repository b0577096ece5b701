"""MIP's six errors, to and from Status and Reason."""

from gateway.core.errors import REASONS, GatewayError, Reason, Status
from gateway.core.types import Buffer, Message, Request
from gateway.protocols.mip.packets import HEADER, packet
from gateway.protocols.mip.schema import VERSION, Fault, Kind, Subtype

_FAULTS: dict[Status, Fault] = {
    Status.INVALID_ARGUMENT: Fault.SHAPE,
    Status.OUT_OF_RANGE: Fault.SHAPE,
    Status.NOT_FOUND: Fault.METHOD,
    Status.UNIMPLEMENTED: Fault.METHOD,
    Status.RESOURCE_EXHAUSTED: Fault.MEMORY,
}

# A real server says INTERNAL for most bad requests, and SHAPE only for a fault of its own: the text tells the code.
_REASONS: dict[int, Reason] = {
    Fault.PROTOCOL: Reason.INVALID_OUTPUT,
    Fault.SUBTYPE: Reason.INVALID_OUTPUT,
    Fault.METHOD: Reason.UNSUPPORTED,
    Fault.MEMORY: Reason.OVERLOADED,
    Fault.SHAPE: Reason.INVALID_INPUT,
    Fault.INTERNAL: Reason.MODEL_ERROR,
}


class ToldFault(GatewayError):  # noqa: N818 (MIP's word)
    """What a server's error packet told, with the number, which other MIP clients get."""

    def __init__(self, reason: Reason, message: str, code: int) -> None:
        super().__init__(reason.status, reason, message)
        self.code = code


_OF_THE_HEADER = (Fault.PROTOCOL, Fault.SUBTYPE)


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The error packet. Its payload is `REASON: TEXT`: the specification has none, real clients read it and throw it
    away, others can show it, and another gateway loses nothing."""
    told = f"{error.reason.value}: {error.message}"
    return packet(Kind.ERROR, _fault(error, request, message), [told.encode(errors="replace")])


def _fault(error: GatewayError, request: Request | None, message: Message) -> int:
    if isinstance(error, ToldFault):
        return error.code
    header = message.parts[0] if message.parts else b""
    if request is None and len(header) == HEADER.size:
        version, _, subtype, _, _ = HEADER.unpack(header)
        if version != VERSION:
            return Fault.PROTOCOL
        if subtype != Subtype.REQUEST:
            return Fault.SUBTYPE
    return _FAULTS.get(error.status, Fault.INTERNAL)


def decode_error(code: int, payload: Buffer) -> GatewayError:
    """What an error packet of a server tells."""
    text = bytes(payload).decode(errors="replace")
    word, _, rest = text.partition(": ")
    reason = REASONS.get(word)
    if reason is not None and rest and code in (_FAULTS.get(reason.status, Fault.INTERNAL), *_OF_THE_HEADER):
        return ToldFault(reason, rest, code)
    known = f"{code} ({Fault(code).name})" if code in _REASONS else str(code)
    told = f"the server answered with MIP error {known}"
    return ToldFault(_REASONS.get(code, Reason.MODEL_ERROR), f"{told}: {text}" if text else told, code)
