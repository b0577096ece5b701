"""HTTP/2 floods against a running gateway, on the gRPC port and on the shared port: the connection ends with the
reason, the gateway still serves another client, and nothing remains in memory."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from gateway.core.http2.frames import ErrorCode
from tests.attacks.attacked import MIB, Attacked
from tests.attacks.clients import INFER, message, tensor
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import CONTINUATION, DATA, HEADERS, PING, SETTINGS, frame
from tests.core.http2.conversation import fields
from tests.interop.processes import eventually
from tests.limits import GENEROUS

PIECES, PER_PIECE = 400, 100
HEAD = http2.block(*fields(INFER))
BODY = message("v2-grpc", "identity", tensor(bytes(1000)))


def asking(stream: int) -> bytes:
    return http2.head(*fields(INFER), stream=stream) + http2.data(BODY, end=True, stream=stream)


def same(octets: bytes) -> Callable[[int], bytes]:
    return lambda at: octets * PER_PIECE


def resets(at: int) -> bytes:
    numbers = range(1 + 2 * PER_PIECE * at, 1 + 2 * PER_PIECE * (at + 1), 2)
    return b"".join(asking(number) + http2.reset(8, number) for number in numbers)


def block_without_end(at: int) -> bytes:
    begins = b"" if at else frame(HEADERS, 0, 1, HEAD)
    return begins + frame(CONTINUATION, 0, 1, b"") * PER_PIECE


def windows_up_and_down(at: int) -> bytes:
    """Return SETTINGS frames that each change the windows of all waiting streams."""
    begins = (
        b"" if at else http2.settings(INITIAL_WINDOW_SIZE=0) + b"".join(asking(1 + 2 * each) for each in range(100))
    )
    return begins + (http2.settings(INITIAL_WINDOW_SIZE=1) + http2.settings(INITIAL_WINDOW_SIZE=0)) * (PER_PIECE // 2)


def windows_of_a_byte(at: int) -> bytes:
    begins = b"" if at else http2.settings(INITIAL_WINDOW_SIZE=0) + asking(1) + http2.head(*fields(INFER), stream=3)
    return begins + http2.window_update(3, 1) * PER_PIECE


FLOODS: dict[str, tuple[Callable[[int], bytes], ErrorCode]] = {
    "rapid resets": (resets, ErrorCode.ENHANCE_YOUR_CALM),
    "a header block without end": (block_without_end, ErrorCode.ENHANCE_YOUR_CALM),
    "pings": (same(frame(PING, 0, 0, bytes(8))), ErrorCode.ENHANCE_YOUR_CALM),
    "settings": (same(frame(SETTINGS, 0, 0, b"")), ErrorCode.ENHANCE_YOUR_CALM),
    "windows of all streams up and down": (windows_up_and_down, ErrorCode.ENHANCE_YOUR_CALM),
    "windows widened by a byte": (windows_of_a_byte, ErrorCode.ENHANCE_YOUR_CALM),
    "a window beyond 2^31": (same(http2.window_update(0, 2**31 - 1)), ErrorCode.FLOW_CONTROL_ERROR),
    "empty data": (
        lambda at: (b"" if at else http2.head(*fields(INFER))) + frame(DATA, 0, 1, b"") * PER_PIECE,
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("port", ["grpc", "shared"])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_its_connection_and_harms_nobody(shared: Attacked, name: str, port: str) -> None:
    flood, code = FLOODS[name]
    shared.beside()
    tasks, resident = shared.look().tasks, shared.resident
    with closing(socket.create_connection(shared.address(port), GENEROUS)) as attacker:
        received = b""
        with suppress(ConnectionError):
            attacker.sendall(http2.PREFACE + http2.settings())
            attacker.settimeout(0.001)
            for at in range(PIECES):
                received += sent(attacker, flood(at))
        attacker.settimeout(GENEROUS)
        with suppress(ConnectionError):
            while piece := attacker.recv(2**16):
                received += piece
    assert ended_with(received) == code
    assert eventually(lambda: shared.look().tasks <= tasks, GENEROUS)
    assert shared.resident < resident + 32 * MIB
    beside = shared.beside()
    assert (beside.good > 0, beside.failed) == (True, 0)


def sent(attacker: socket.socket, octets: bytes) -> bytes:
    """Send all bytes, and return the bytes received in the meantime. A client that reads nothing would not get the
    reason."""
    received, view = b"", memoryview(octets)
    while view:
        with suppress(TimeoutError):
            view = view[attacker.send(view) :]
        with suppress(TimeoutError):
            received += attacker.recv(2**16)
    return received


def ended_with(received: bytes) -> int | None:
    """Return the error code of the last GOAWAY."""
    code = None
    while len(received) >= 9:
        size, kind = int.from_bytes(received[:3]), received[3]
        if kind == http2.GOAWAY:
            code = int.from_bytes(received[13:17])
        received = received[9 + size :]
    return code
