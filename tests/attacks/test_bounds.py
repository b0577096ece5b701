"""The maximum memory that client connections, streams and waiting calls can use is as computed in docs/bounds.md."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks.attacked import BACKEND, MIB, TO_HOSTILE, Attacked, attacked
from tests.attacks.clients import WAYS, message, post, tensor
from tests.attacks.stalls import Figure
from tests.core.http2 import by_hand as http2
from tests.core.http2 import conversation
from tests.core.http2.conversation import fields
from tests.tls.certificates import Authority

LIMIT = 32 * MIB
"""`limits.memory` of the gateway under attack."""
CONNECTION = 128 * 2**10
"""The uncounted memory of a connection without TLS, from docs/bounds.md."""
TLS, HANDSHAKES = 192 * 2**10, 50
"""The same for a connection with TLS, mostly for the handshake; and `limits.handshakes`."""
SPARE = 24 * MIB
"""The one-time cost of the first requests: code, caches, and the allocator."""

KIB = 2**10


@pytest.fixture
def gateway(tmp_path: Path, works: str) -> Iterator[Attacked]:
    """A gateway with little memory, before a model server that accepts calls and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as mute:
        endpoint = f"127.0.0.1:{mute.getsockname()[1]}"
        backend = BACKEND.format(protocol="v2-rest", endpoint=endpoint, more="flavor: plain")
        backend = backend.replace("max_in_flight: 25", "max_in_flight: 100000")
        files = Authority().issue(tmp_path, "127.0.0.1")
        more = f'  - {{name: tls, bind: "127.0.0.1:0", protocols: [v2-rest], tls: {files.server}}}\n'
        more += f"limits: {{memory: {LIMIT}, handshakes: {HANDSHAKES}}}\n"
        with attacked(tmp_path, works, backends=backend, routes=TO_HOSTILE, listener=more) as gateway:
            yield gateway


def called(method: bytes, *more: tuple[bytes, bytes], stream: int, end: bool = False) -> bytes:
    """The head of a call."""
    octets = http2.block(*fields(b"/inference.GRPCInferenceService/" + method)) + b"".join(
        literal(*each) for each in more
    )
    pieces = [octets[at : at + 2**14] for at in range(0, len(octets), 2**14)]
    return b"".join(
        http2.frame(
            http2.CONTINUATION if at else http2.HEADERS, http2.END_HEADERS if at == len(pieces) - 1 else 0, stream, each
        )
        for at, each in enumerate(pieces)
    )


def literal(name: bytes, text: bytes) -> bytes:
    """A field of any length: RFC 7541 sections 5.1 and 6.2.2."""
    size = len(text)
    if size < 127:
        return b"\0" + bytes([len(name)]) + name + bytes([size]) + text
    size -= 127
    octets = bytearray([127])
    while size > 127:
        octets.append(size & 127 | 128)
        size >>= 7
    octets.append(size)
    return b"\0" + bytes([len(name)]) + name + bytes(octets) + text


OPENING = conversation.OPENING + http2.frame(http2.SETTINGS, http2.ACK, 0, b"")
STREAMS = range(1, 201, 2)


def grpc_heads(number: int) -> bytes:
    """Streams that say nothing, with 55 KiB of metadata each."""
    text = b"%08d" % number + b"m" * 55 * KIB
    heads = (called(b"ModelStreamInfer", (b"a", text + b"%d" % stream), stream=stream) for stream in STREAMS)
    return OPENING + b"".join(heads)


def grpc_short_fields(number: int) -> bytes:
    """Streams that say nothing, with as many short fields as fit."""
    short = [(b"k%d" % at, b"%d" % at) for at in range(1500)]
    return OPENING + b"".join(called(b"ModelStreamInfer", *short, stream=stream) for stream in STREAMS)


def grpc_calls(number: int) -> bytes:
    """Calls that wait for a model, with 15 KiB each."""
    body = message("v2-grpc", "hostile", tensor(bytes(15 * KIB)))
    return OPENING + b"".join(
        called(b"ModelInfer", stream=stream) + http2.data(body, stream=stream, end=True) for stream in STREAMS
    )


def grpc_parts(number: int) -> bytes:
    """Calls whose message of 15 KiB lacks its end."""
    body = message("v2-grpc", "hostile", tensor(bytes(15 * KIB)))
    return OPENING + b"".join(
        called(b"ModelInfer", stream=stream) + http2.data(body[:-9], size=len(body), stream=stream)
        for stream in STREAMS
    )


def grpc_queues(number: int) -> bytes:
    """Streams with a request that waits for a model, and empty messages behind it."""
    body = message("v2-grpc", "hostile", tensor(bytes(10)))

    def stream_of(stream: int) -> bytes:
        frame = http2.frame(http2.DATA, 0, stream, bytes(5 * 3000))
        return called(b"ModelStreamInfer", stream=stream) + http2.data(body, stream=stream) + frame * 5

    return OPENING + b"".join(map(stream_of, STREAMS))


def http_body(size: int) -> bytes:
    given = {"name": "x", "datatype": "UINT8", "shape": [1, size], "parameters": {"binary_data_size": size}}
    return json.dumps({"inputs": [given]}).encode()


def http_calls(number: int) -> bytes:
    """A call that waits for a model, with 15 KiB."""
    return WAYS["http"].request("hostile", bytes(15 * KIB))


def http_short_fields(number: int) -> bytes:
    """A call that waits for a model, with as many short headers as a head has room for."""
    head = http_body(10)
    more = [f"Inference-Header-Content-Length: {len(head)}", *(f"h{at}:{at % 7}" for at in range(2000))]
    return post("/v2/models/hostile/infer", head + bytes(10), *more)


def http_part_of_a_head(number: int) -> bytes:
    """A head of short headers that lacks its end."""
    return http_short_fields(number).partition(b"\r\n\r\n")[0]


def http_ahead(number: int) -> bytes:
    """A call that waits for a model, and more behind it."""
    return http_calls(number) * 10


def brpc_calls(number: int) -> bytes:
    """Calls that wait for a model, with 15 KiB each."""
    return message("grps-brpc", "hostile", tensor(bytes(15 * KIB))) * 100


KINDS: dict[str, tuple[str, Callable[[int], bytes], int]] = {
    "grpc heads": ("grpc", grpc_heads, 20),
    "grpc short fields": ("grpc", grpc_short_fields, 10),
    "grpc calls": ("grpc", grpc_calls, 20),
    "grpc parts of calls": ("grpc", grpc_parts, 40),
    "grpc queues": ("grpc", grpc_queues, 1),
    "http calls": ("http", http_calls, 1500),
    "http short fields": ("http", http_short_fields, 300),
    "http parts of heads": ("http", http_part_of_a_head, 300),
    "http ahead": ("http", http_ahead, 800),
    "brpc calls": ("brpc", brpc_calls, 40),
}


def settle(gateway: Attacked) -> None:
    """Return when the gateway has read what others have sent before: it answers calls of its own."""
    with WAYS["http"].connect(gateway.address("http")) as other:
        for _ in range(20):
            assert b" 404 " in other.call(WAYS["http"].request("unknown", b""))


@pytest.mark.parametrize("kind", KINDS)
def test_connections_hold_no_more_than_the_documents_say(gateway: Attacked, kind: str, figure: Figure) -> None:
    listener, octets, count = KINDS[kind]
    with ExitStack() as stack:
        settle(gateway)
        before = gateway.resident
        gateway.forget_peak()
        for number in range(count):
            connection = stack.enter_context(socket.create_connection(gateway.address(listener), 60))
            try:
                connection.sendall(octets(number))
            except (ConnectionError, TimeoutError):
                continue  # refused
        settle(gateway)
        more = gateway.peak - before
    most = 2 * LIMIT + count * CONNECTION + SPARE
    figure(f"{count} connections hold {more / MIB:.0f} MiB, at most {most / MIB:.0f} MiB")
    assert more < most


def hello() -> bytes:
    """What a TLS client sends first."""
    sent = ssl.MemoryBIO()
    side = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return sent.read()


def test_handshakes_that_stall_take_no_more_than_the_documents_say(gateway: Attacked, figure: Figure) -> None:
    count, octets = 1000, hello()
    with ExitStack() as stack:
        settle(gateway)
        before = gateway.resident
        gateway.forget_peak()
        for _ in range(count):
            stack.enter_context(socket.create_connection(gateway.address("tls"), 60)).sendall(octets)
        settle(gateway)
        more = gateway.peak - before
    most = HANDSHAKES * TLS + count * CONNECTION // 8 + SPARE
    figure(f"{count} handshakes that stall take {more / MIB:.0f} MiB, at most {most / MIB:.0f} MiB")
    assert more < most


def test_connections_with_tls_take_no_more_than_the_documents_say_and_give_it_back(
    gateway: Attacked, figure: Figure
) -> None:
    count, context = 1000, ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    settle(gateway)
    before = gateway.resident
    with ExitStack() as stack:
        for _ in range(count):
            connection = socket.create_connection(gateway.address("tls"), 60)
            stack.enter_context(context.wrap_socket(connection)).sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        settle(gateway)
        more = gateway.resident - before
    settle(gateway)
    figure(f"{count} connections with TLS take {more / MIB:.0f} MiB")
    assert more < count * TLS + SPARE
    for _ in range(200):
        if gateway.resident - before < more / 2:
            break
        threading.Event().wait(0.1)
    figure(f"and leave {(gateway.resident - before) / MIB:.0f} MiB")
    assert gateway.resident - before < more / 2
