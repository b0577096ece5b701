"""Converts MIP error codes to and from Status and Reason.

To add a code, add it to `schema.ErrorCode`, to `_REASONS`, to `_CODES` if it corresponds to a Status, and to the table
in docs/protocols/mip.md.
"""

from gateway.core.errors import REASONS, GatewayError, Reason, Status
from gateway.core.messages import Buffer, Message
from gateway.core.requests import Request
from gateway.protocols.mip.packets import HEADER, encode_packet, reserved_byte
from gateway.protocols.mip.schema import VERSION, ErrorCode, PacketKind, Subtype

_CODES: dict[Status, ErrorCode] = {
    Status.INVALID_ARGUMENT: ErrorCode.SHAPE,
    Status.OUT_OF_RANGE: ErrorCode.SHAPE,
    Status.NOT_FOUND: ErrorCode.METHOD,
    Status.UNIMPLEMENTED: ErrorCode.METHOD,
    Status.RESOURCE_EXHAUSTED: ErrorCode.MEMORY,
}
"""The codes that the gateway sends. Every other Status becomes INTERNAL. `_REASONS` lists the codes that the gateway
receives."""

# A kubemo server sends INTERNAL for most invalid requests, and SHAPE only for one of its own errors. The Reason can
# therefore be wrong, and `decode_error` includes the code in the message.
_REASONS: dict[int, Reason] = {
    ErrorCode.PROTOCOL: Reason.INVALID_OUTPUT,
    ErrorCode.SUBTYPE: Reason.INVALID_OUTPUT,
    ErrorCode.METHOD: Reason.UNSUPPORTED,
    ErrorCode.MEMORY: Reason.OVERLOADED,
    ErrorCode.SHAPE: Reason.INVALID_INPUT,
    ErrorCode.INTERNAL: Reason.MODEL_ERROR,
}

_HEADER_CODES = (ErrorCode.PROTOCOL, ErrorCode.SUBTYPE)
"""The codes that depend on the request's header and not on a Status."""


class MipError(GatewayError):
    """The error in a backend's error packet. MIP clients receive its code unchanged."""

    def __init__(self, reason: Reason, message: str, code: int) -> None:
        super().__init__(reason.status, reason, message)
        self.code = code


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """Return the error packet for `error`.

    The payload is `REASON: TEXT`. The specification defines no payload for errors. kubemo's client reads and discards
    the payload, other clients can show it, and other gateways read the Reason from it."""
    text = f"{error.reason.value}: {error.message}"
    payload = [text.encode(errors="replace")]
    return encode_packet(PacketKind.ERROR, _code(error, request, message), payload, reserved_byte(message))


def _code(error: GatewayError, request: Request | None, message: Message) -> int:
    if isinstance(error, MipError):
        return error.code
    header = message.parts[0] if message.parts else b""
    if request is None and len(header) == HEADER.size:
        version, _, subtype, _, _ = HEADER.unpack(header)
        if version != VERSION:
            return ErrorCode.PROTOCOL
        if subtype != Subtype.REQUEST:
            return ErrorCode.SUBTYPE
    return _CODES.get(error.status, ErrorCode.INTERNAL)


def decode_error(code: int, payload: Buffer) -> GatewayError:
    """Return the error in a backend's error packet. If the payload starts with a Reason that matches `code`, the error
    has this Reason."""
    text = bytes(payload).decode(errors="replace")
    prefix, _, rest = text.partition(": ")
    reason = REASONS.get(prefix)
    if reason is not None and rest and code in (_CODES.get(reason.status, ErrorCode.INTERNAL), *_HEADER_CODES):
        return MipError(reason, rest, code)
    shown = f"{code} ({ErrorCode(code).name})" if code in _REASONS else str(code)
    summary = f"the server answered with MIP error {shown}"
    return MipError(_REASONS.get(code, Reason.MODEL_ERROR), f"{summary}: {text}" if text else summary, code)
