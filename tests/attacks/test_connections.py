"""Many connections and streams, clients that send almost nothing, and requests that loop back to the gateway."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tests.attacks.attacked import BACKEND, MIB, Attacked, attacked
from tests.attacks.clients import INFER, Grpc, Http, infer, message, tensor
from tests.attacks.probe import REQUEST
from tests.attacks.stalls import Figure
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields
from tests.interop.processes import free_port

SMALL = message("v2-grpc", "identity", tensor(b"1"))


def health(gateway: Attacked) -> bytes:
    """The status line of the liveness probe, which has a second."""
    with closing(socket.create_connection(gateway.address("health"), 1)) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return connection.recv(12)


def grpc_calls(gateway: Attacked, count: int) -> int:
    """How many of so many small calls over gRPC, on a connection of their own, are answered well."""
    good = 0
    for _ in range(count):
        with suppress(OSError), Grpc(gateway.address("grpc")) as connection:
            connection.socket.settimeout(2)
            good += b"grpc-status" not in (reply := connection.call(SMALL))[:40] and b"identity" in reply
    return good


def request_head(path: bytes, stream: int, end: bool = False) -> bytes:
    return http2.head(*fields(path), stream=stream, end=end)


def test_paths_that_are_no_text_harm_nobody(gateway: Attacked, figure: Figure) -> None:
    good = failed = 0
    with ExitStack() as stack:
        for at in range(40):
            attacker = stack.enter_context(socket.create_connection(gateway.address("grpc")))
            attacker.sendall(OPENING + request_head(b"/\xff\xfe/%d" % at, 1, end=True))
            answered = grpc_calls(gateway, 5)
            good, failed = good + answered, failed + 5 - answered
    figure(f"beside 40 of them {good} calls over gRPC were answered, {failed} failed; {len(gateway.log)} bytes of log")
    assert not failed
    assert len(gateway.log) < 4000


def test_streams_without_end_harm_nobody(gateway: Attacked, figure: Figure) -> None:
    before = gateway.resident
    with closing(socket.create_connection(gateway.address("grpc"))) as attacker, suppress(OSError):
        attacker.settimeout(5)
        attacker.sendall(OPENING)
        head = request_head(INFER, 1)
        opened = b"".join(
            head[:5] + stream.to_bytes(4, "big") + head[9:] + http2.data(b"", size=MIB, stream=stream)
            for stream in range(1, 20_001, 2)
        )
        with suppress(OSError):
            attacker.sendall(opened)
        good = grpc_calls(gateway, 20)
    beside = gateway.beside()
    figure(f"10,000 open streams: {good} of 20 calls answered, {(gateway.resident - before) / MIB:.0f} MiB more")
    assert good == 20
    assert not beside.failed
    assert gateway.resident - before < 150 * MIB


def test_rapid_resets_harm_nobody(gateway: Attacked, figure: Figure) -> None:
    before, good = gateway.resident, 0
    for _ in range(3):
        with closing(socket.create_connection(gateway.address("grpc"))) as attacker, suppress(OSError):
            attacker.settimeout(5)
            attacker.sendall(OPENING)
            for start in range(1, 40_001, 2000):
                attacker.sendall(
                    b"".join(
                        request_head(INFER, stream) + http2.data(SMALL, stream=stream) + http2.reset(8, stream)
                        for stream in range(start, start + 2000, 2)
                    )
                )
        good += grpc_calls(gateway, 10)
    seen, beside = gateway.look(), gateway.beside()
    more = (gateway.resident - before) / MIB
    figure(f"60,000 resets: {good} of 30 calls answered, {more:.0f} MiB more, stall {1e3 * seen.stall:.0f} ms")
    assert good == 30
    assert not beside.failed
    assert more < 150


def test_connections_beyond_the_descriptors_leave_health_and_known_clients(
    tmp_path: Path, works: str, figure: Figure
) -> None:
    with attacked(tmp_path, works, descriptors=256) as gateway, ExitStack() as stack:
        gateway.beside()
        for _ in range(600):
            idle = stack.enter_context(socket.socket())
            idle.setblocking(False)
            idle.connect_ex(gateway.address("http"))
        probes = 0
        for _ in range(5):
            with suppress(OSError):
                probes += health(gateway) == b"HTTP/1.1 200"
        spent = gateway.cpu
        time.sleep(0.5)
        spent = gateway.cpu - spent
        beside = gateway.beside()
        figure(
            f"{probes} of 5 health probes, {beside.good} inferences answered and {beside.failed} failed; "
            f"{gateway.descriptors} descriptors, {spent:.1f} s of CPU in 0.5 s"
        )
        assert probes == 5
        assert not beside.failed
        assert beside.good
        stack.close()
        with Http(gateway.address("http")) as connection:
            assert b" 200 " in connection.call(REQUEST)[:20]
        assert "connections" in gateway.log


def test_clients_that_send_next_to_nothing_are_closed(gateway: Attacked, figure: Figure) -> None:
    """A byte every two seconds: the head of a message has 20 s."""
    begun = {
        "http": b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nX: ",
        "mip": b"\0",
        "brpc": b"P",
        "shared": b"P",
        "health": b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ",
        "admin": b"GET /status HTTP/1.1\r\nHost: a\r\nX: ",
    }
    rest = {"mip": b"\2", "brpc": b"RPC\0", "shared": http2.PREFACE[1:]}
    with ExitStack() as stack:
        open_since = {}
        for name, octets in begun.items():
            connection = stack.enter_context(socket.create_connection(gateway.address(name)))
            connection.sendall(octets)
            connection.settimeout(0.01)
            open_since[name] = connection
        start, closed = time.monotonic(), dict[str, float]()
        sent = 0
        while len(closed) < len(begun) and time.monotonic() - start < 40:
            time.sleep(2)
            for name, connection in open_since.items():
                if name not in closed and is_closed(connection, rest.get(name, b"x" * 99)[sent : sent + 1]):
                    closed[name] = time.monotonic() - start
            sent += 1
    figure(", ".join(f"{name} closed after {seconds:.0f} s" for name, seconds in closed.items()))
    assert closed.keys() == begun.keys()
    assert not gateway.beside().failed


def is_closed(connection: socket.socket, octets: bytes) -> bool:
    try:
        connection.sendall(octets)
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_a_route_to_the_gateway_itself_ends(tmp_path: Path, works: str, figure: Figure) -> None:
    port = free_port()
    top = f'  - {{name: loop, bind: "127.0.0.1:{port}", protocols: [v2-rest]}}\n'
    backend = BACKEND.format(protocol="v2-rest", endpoint=f"127.0.0.1:{port}", more="flavor: plain")
    backend = backend.replace("max_in_flight: 25", "max_in_flight: 100000")
    routes = "  - {match: {model: hostile}, backend: hostile}\n"
    with attacked(tmp_path, works, backends=backend, routes=routes, listener=top) as gateway:
        gateway.beside()
        begun = time.monotonic()
        with Http(gateway.address("http")) as connection:
            connection.socket.settimeout(20)
            reply = connection.call(infer("hostile", b"1"))
        descriptors, beside = gateway.descriptors, gateway.beside()
        figure(f"{reply[:40]!r} after {time.monotonic() - begun:.1f} s, {descriptors} descriptors")
        assert b" 200 " not in reply[:20]
        assert descriptors < 200
        assert not beside.failed


def test_the_status_is_not_for_other_hosts_names(gateway: Attacked) -> None:
    def status(host: str) -> bytes:
        with closing(socket.create_connection(gateway.address("admin"), 5)) as connection:
            connection.sendall(f"GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(12)

    _, port = gateway.address("admin")
    assert status(f"127.0.0.1:{port}") == b"HTTP/1.1 200"
    assert status("attacker.example")[9:10] == b"4"
