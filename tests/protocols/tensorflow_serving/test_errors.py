"""Errors as clients of TensorFlow Serving know them."""

import pytest

from gateway.core.errors import GatewayError, invalid_input, not_found
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.protocols.tensorflow_serving.wire import TARGET, TFS


def written(error: GatewayError, request: Request | None) -> tuple[int, str]:
    reply = TFS.encode_error(error, request, Message())
    return reply.status, bytes(reply.body).decode()


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request(Operation.INFER, "m"), "Servable not found for request: Latest(m)"),
        (Request(Operation.METADATA, "m", "2"), "Servable not found for request: Specific(m, 2)"),
        (Request(Operation.MODEL_READY, "m"), "Could not find any versions of model m"),
        (Request(Operation.MODEL_READY, "m", "2"), "Could not find version 2 of model m"),
    ],
)
def test_an_unknown_model_is_told_in_a_real_servers_words(request_: Request, text: str) -> None:
    assert written(not_found("no route takes model 'm'"), request_) == (5, f"{text} (no route takes model 'm')")
    assert written(not_found(text), request_) == (5, text)


def test_the_words_are_not_repeated_from_gateway_to_gateway() -> None:
    request = Request(Operation.INFER, "m")
    error = not_found("no route takes model 'm'")
    for _ in range(3):
        reply = TFS.encode_error(error, request, Message())
        with pytest.raises(GatewayError) as caught:
            TFS.decode_response(reply, request, TARGET)
        error = caught.value
    assert error.message == "no route takes model 'm'"


def test_an_error_before_the_request_was_read_has_its_own_text() -> None:
    assert written(not_found("why"), None) == (5, "why")


def test_long_texts_are_cut_as_by_a_real_server() -> None:
    assert written(invalid_input("é" * 1024), None) == (3, "é" * 1024)
    assert written(invalid_input("é" * 1025), None) == (3, "é" * 1024 + "...TRUNCATED")


def test_a_text_that_is_no_unicode_can_be_sent() -> None:
    assert written(invalid_input("\ud800"), None) == (3, "?")
