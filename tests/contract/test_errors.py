"""Every protocol writes every error, and reads the same error back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core import exchange
from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.operations import Operation
from gateway.core.protocol import StreamBinding
from gateway.core.requests import Request
from tests.contract.cases import each, each_dialect
from tests.contract.flavors import DIALECTS, Dialect
from tests.contract.wire import LISTENER, arrived, returned

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=300).filter(lambda text: text == text.strip())
REQUEST = Request(Operation.INFER, "m")


def told(dialect: Dialect, error: GatewayError, *, decoded: bool) -> GatewayError:
    """Return `error` in the form that the other side reads. `decoded`: the error occurred after decoding the
    request."""
    protocol, target = dialect.protocol, dialect.target
    message = arrived(protocol.encode_request(REQUEST, target), protocol)
    request = exchange.decoded(message, protocol, LISTENER) if decoded else None
    with pytest.raises(GatewayError) as caught:
        protocol.decode_response(returned(protocol.encode_error(error, request, message), protocol), REQUEST, target)
    return caught.value


def is_exact(dialect: Dialect) -> bool:
    """Return whether the protocol can send the Reason outside the message, in a header or in trailing metadata."""
    return not isinstance(dialect.protocol.binding, StreamBinding)


@each(
    label="{dialect}",
    together=("reason", "decoded"),
    dialect=DIALECTS,
    reason={each.value: each for each in Reason},
    decoded={"understood": True, "not understood": False},
)
def test_an_error_keeps_its_status_reason_and_text(dialect: Dialect, reason: Reason, decoded: bool) -> None:
    """On a byte stream only what its numbers tell apart; a number read is written again as the same."""
    found = told(dialect, refusal(reason, 'input "x" is É'), decoded=decoded)
    if is_exact(dialect):
        assert (found.status, found.reason, found.message) == (reason.status, reason, 'input "x" is É')
        return
    assert found.status is found.reason.status
    assert 'input "x" is É' in found.message
    assert told(dialect, found, decoded=decoded).reason is found.reason


@each_dialect
@pytest.mark.parametrize(("seconds", "expected"), [(None, ""), (0.0, "1"), (1.0, "1"), (1.2, "2"), (3600.0, "3600")])
def test_an_error_says_when_to_try_again(dialect: Dialect, seconds: float | None, expected: str) -> None:
    """Where there are headers, in whole seconds, rounded up."""
    protocol = dialect.protocol
    message = arrived(protocol.encode_request(REQUEST, dialect.target), protocol)
    error = GatewayError(Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED, "full", retry_after=seconds)
    for request in (exchange.decoded(message, protocol, LISTENER), None):
        reply = protocol.encode_error(error, request, message)
        assert reply.headers.get("retry-after") == (expected if is_exact(dialect) else "")


@each_dialect
@given(text=TEXTS)
def test_any_text_arrives(dialect: Dialect, text: str) -> None:
    assert told(dialect, refusal(Reason.INVALID_INPUT, text), decoded=True).message.endswith(text)


@each_dialect
@pytest.mark.parametrize("text", ["", "\ud800", "x" * 100_000], ids=["empty", "no Unicode", "long"])
def test_an_error_is_told_whatever_its_text_is(dialect: Dialect, text: str) -> None:
    assert told(dialect, refusal(Reason.MODEL_ERROR, text), decoded=False).reason is Reason.MODEL_ERROR
