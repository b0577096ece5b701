"""Every protocol tells every error, and reads it as what it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.types import Request
from tests.contract.installed import PROTOCOLS
from tests.contract.wire import LISTENER, TARGET, arrived, returned

each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300).filter(lambda text: text == text.strip())
REQUEST = Request(Operation.INFER, "m")


def told(protocol: Protocol, error: GatewayError, *, decoded: bool) -> GatewayError:
    """`error` as the other side has it; `decoded`: the request was understood before it failed."""
    message = arrived(protocol.encode_request(REQUEST, TARGET), protocol)
    request = protocol.decode_request(message, LISTENER) if decoded else None
    with pytest.raises(GatewayError) as caught:
        protocol.decode_response(returned(protocol.encode_error(error, request, message)), REQUEST, TARGET)
    return caught.value


@each_protocol
@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("decoded", [True, False])
def test_an_error_keeps_its_status_reason_and_text(protocol: Protocol, reason: Reason, decoded: bool) -> None:
    found = told(protocol, refusal(reason, 'input "x" is É'), decoded=decoded)
    assert (found.status, found.reason, found.message) == (reason.status, reason, 'input "x" is É')


@each_protocol
@given(text=TEXTS)
def test_any_text_arrives(protocol: Protocol, text: str) -> None:
    assert told(protocol, refusal(Reason.INVALID_INPUT, text), decoded=True).message == text


@each_protocol
@pytest.mark.parametrize("text", ["", "\ud800", "x" * 100_000], ids=["empty", "no Unicode", "long"])
def test_an_error_is_told_whatever_its_text_is(protocol: Protocol, text: str) -> None:
    assert told(protocol, refusal(Reason.MODEL_ERROR, text), decoded=False).reason is Reason.MODEL_ERROR
