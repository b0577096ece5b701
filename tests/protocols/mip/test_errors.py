import pytest

from gateway.core.errors import Reason, refusal
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.protocols.mip.wire import MIP, of_hex, sent

PING, NINE, REPLY = of_hex("0001000000000000"), of_hex("0901000000000000"), of_hex("0001010000000000")

CODES = {
    Reason.INVALID_INPUT: 4,
    Reason.OUT_OF_RANGE: 4,
    Reason.MODEL_NOT_FOUND: 2,
    Reason.UNSUPPORTED: 2,
    Reason.TOO_LARGE: 3,
    Reason.OVERLOADED: 3,
    Reason.UNAUTHENTICATED: 5,
    Reason.PERMISSION_DENIED: 5,
    Reason.TIMEOUT: 5,
    Reason.UNREACHABLE: 5,
    Reason.CANCELLED: 5,
    Reason.FAILED_PRECONDITION: 5,
    Reason.INVALID_OUTPUT: 5,
    Reason.MODEL_ERROR: 5,
    Reason.INTERNAL: 5,
}


@pytest.mark.parametrize("reason", Reason)
def test_every_error_has_its_code_and_carries_its_text(reason: Reason) -> None:
    packet = sent(MIP.encode_error(refusal(reason, "why: é"), Request(Operation.INFER), PING))
    text = f"{reason.value}: why: é".encode()
    code = CODES.get(reason, packet[2])
    assert packet == bytes([0, 0, code, 0, 0, 0, 0, len(text)]) + text
    assert packet[2] <= 5


@pytest.mark.parametrize(
    ("message", "code"), [(NINE, 0), (REPLY, 1), (PING, 4), (Message(parts=(b"\0\2", b"")), 4), (Message(), 4)]
)
def test_header_errors_take_precedence(message: Message, code: int) -> None:
    assert sent(MIP.encode_error(refusal(Reason.INVALID_INPUT, ""), None, message))[2] == code
