"""Connectors know what the protocol needs of its transport."""

import pytest

from gateway.assembly.connecting import connect
from gateway.assembly.registry import protocols
from gateway.core.errors import Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import DEFAULT_LIMITS, HttpBinding, StreamFraming
from tests.transports.http.line_framing import LINES


@pytest.mark.parametrize(
    ("framing", "status"), [(LINES, Status.UNAVAILABLE), (None, Status.UNIMPLEMENTED)], ids=["streams", "none"]
)
async def test_connectors_know_how_a_protocol_frames_its_streams(framing: StreamFraming | None, status: Status) -> None:
    protocol = replace(protocols()["umbridge"], binding=HttpBinding(stream_framing=framing))
    connector = connect("127.0.0.1:1", protocol, DEFAULT_LIMITS)
    with pytest.raises(TransportError) as failed:  # nobody listens there
        await anext(connector.stream(Message("GET", "/")))
    assert failed.value.status is status
