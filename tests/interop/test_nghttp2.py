"""nghttp2's clients, `nghttp` and `h2load`, call gRPC at a port of its own and at one that HTTP and others share, with
and without TLS: many streams at once, small windows, no header tables, and a gateway that stops."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGTERM

import pytest

from tests.attacks.attacked import MIB, Attacked, attacked, reference
from tests.attacks.clients import INFER, message, tensor
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import cut
from tests.interop.exchanges import gateway, metric
from tests.interop.processes import Gateway, Process, eventually, free_port
from tests.limits import GENEROUS
from tests.peers import system
from tests.relay import Tls, relaying
from tests.tls.certificates import Authority, Files

MISSING = system.missing({"h2load": "nghttp2-client", "nghttp": "nghttp2-client"})
pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"{', '.join(MISSING)} missing: `make peers` installs Debian's nghttp2-client"
)

PORTS = ("grpc", "shared", "tls", "shared_tls")
TLS = """
  - {{name: tls, bind: "127.0.0.1:0", protocols: [v2-grpc], tls: {tls}}}
  - {{name: shared_tls, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc], tls: {tls}}}
"""
DRAINED = """
log: {{access: {{when: always, path: {log}}}}}
listeners: [{{name: all, bind: "127.0.0.1:{port}", protocols: {protocols}{tls}}}]
backends: {{works: {{protocol: v2-grpc, endpoints: ["{works}"], policies: [{{timeout: {{seconds: 60}}}}]}}}}
routes: [{{match: {{model: "*"}}, backend: works}}]
"""
GRPC = ("-H", "content-type: application/grpc", "-H", "te: trailers")
NUMBERS = bytes(range(80))
LARGE = bytes(range(250)) * 1200

CONNECTIONS, STREAMS, REQUESTS = 10, 100, 3000
WAYS = {
    "as it comes": (),
    "windows of 1 KiB": ("-w", "10", "-W", "10"),
    "no header tables": ("--header-table-size=0", "--encoder-header-table-size=0"),
    "small header tables": ("--header-table-size=64", "--encoder-header-table-size=128"),
}


@dataclass(frozen=True)
class Loaded:
    """What `h2load` reports: requests, and bytes of DATA frames."""

    started: int
    done: int
    succeeded: int
    failed: int
    data: int

    @classmethod
    def read(cls, report: str) -> Loaded:
        counts = {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", _line(report, "requests: "))}
        size = re.search(r"\((\d+)\) data", _line(report, "traffic: "))
        assert size is not None, report
        return cls(counts["started"], counts["done"], counts["succeeded"], counts["failed"], int(size[1]))


def _line(report: str, beginning: str) -> str:
    return next((line for line in report.splitlines() if line.startswith(beginning)), "")


@dataclass(frozen=True)
class Rig:
    gateway: Attacked
    folder: Path

    def url(self, name: str) -> str:
        host, port = self.gateway.address(name)
        return f"{'https' if name.endswith('tls') else 'http'}://{host}:{port}{INFER.decode()}"

    def metrics(self, family: str, *labels: str) -> float:
        return metric("{}:{}".format(*self.gateway.address("health")), family, *labels)

    def answered(self, listener: str) -> float:
        return self.metrics("gateway_requests_total", f'listener="{listener}"', 'code="OK"')

    def has_answered(self, listener: str, calls: float) -> bool:
        return self.answered(listener) >= calls

    @property
    def is_idle(self) -> bool:
        return not self.metrics("gateway_connections_open") and not self.metrics("gateway_requests_in_flight")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("nghttp2")
    listeners = TLS.format(tls=Authority().issue(folder, "127.0.0.1").server)
    with reference(folder / "works") as works, attacked(folder / "gateway", works, listener=listeners) as gateway:
        yield Rig(gateway, folder)


def request(folder: Path, data: bytes, model: str = "identity") -> str:
    """A file with the body of a gRPC request."""
    file, asked = folder / f"{model}-{len(data)}", message("v2-grpc", model, tensor(data))
    file.write_bytes(b"\0" + len(asked).to_bytes(4) + asked)
    return str(file)


def run(*command: str) -> bytes:
    done = subprocess.run(command, capture_output=True, timeout=GENEROUS, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("port", PORTS)
def test_a_call_is_answered_with_its_trailers(rig: Rig, port: str) -> None:
    command = ("nghttp", "-d", request(rig.folder, NUMBERS), *GRPC)
    body = run(*command, rig.url(port))
    assert body[:1] == b"\0"
    assert int.from_bytes(body[1:5]) == len(body) - 5
    assert NUMBERS in body
    seen = run(*command, "-nv", rig.url(port)).decode("latin-1")
    received = re.findall(r"recv \(stream_id=\d+(?:, sensitive)?\) (.*)", seen)
    assert received[0] == ":status: 200"
    assert received[-1] == "grpc-status: 0"
    assert seen.rfind("grpc-status: 0") > seen.rfind("recv DATA")
    assert ("The negotiated protocol: h2" in seen) == port.endswith("tls")


def test_an_error_is_trailers_alone(rig: Rig) -> None:
    seen = run("nghttp", "-nv", "-d", request(rig.folder, NUMBERS, "nobody"), *GRPC, rig.url("grpc")).decode("latin-1")
    assert ") grpc-status: 5" in seen
    assert ") grpc-message: " in seen
    assert "recv DATA" not in seen


@pytest.mark.parametrize("way", WAYS)
def test_a_large_reply_is_whole(rig: Rig, way: str) -> None:
    options = {"no header tables": ("-c", "0"), "small header tables": ("-c", "64", "-c", "128")}.get(way, WAYS[way])
    body = run("nghttp", *options, "-d", request(rig.folder, LARGE), *GRPC, rig.url("grpc"))
    assert LARGE in body
    assert int.from_bytes(body[1:5]) == len(body) - 5


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("port", PORTS)
def test_thousands_of_calls_at_once_succeed_and_leave_nothing(rig: Rig, port: str, way: str) -> None:
    assert eventually(lambda: rig.is_idle, GENEROUS)
    tasks, descriptors, answered = rig.gateway.look().tasks, rig.gateway.descriptors, rig.answered(port)
    loaded = h2load(rig, port, NUMBERS, REQUESTS, CONNECTIONS, STREAMS, *WAYS[way])
    assert (loaded.started, loaded.done, loaded.succeeded, loaded.failed) == (REQUESTS, REQUESTS, REQUESTS, 0)
    # An error would have no data.
    assert loaded.data == REQUESTS * len(run("nghttp", "-d", request(rig.folder, NUMBERS), *GRPC, rig.url(port)))
    assert rig.answered(port) == answered + REQUESTS + 1
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert eventually(lambda: rig.gateway.look().tasks <= tasks, GENEROUS)
    assert rig.gateway.descriptors <= descriptors + 2  # to the backend


def test_large_calls_through_small_windows_give_their_memory_back(rig: Rig) -> None:
    resident: list[int] = []
    # On a busy machine, a later round can have more calls at the same time than the first; a leak grows in each.
    while len(resident) < 3 or (resident[-1] > resident[-3] + 8 * MIB and len(resident) < 10):
        loaded = h2load(rig, "grpc", LARGE, 100, 5, 10, "-w", "10", "-W", "12")
        assert (loaded.succeeded, loaded.failed) == (100, 0)
        assert eventually(lambda: rig.is_idle, GENEROUS)
        resident.append(rig.gateway.resident)
    assert resident[-1] <= resident[-3] + 8 * MIB, resident


def test_clients_that_leave_with_calls_in_flight_leave_nothing(rig: Rig) -> None:
    """`h2load` is ended while it calls."""
    for port in PORTS:
        before = rig.answered(port)
        many = ("-n", "1000000", "-c", str(CONNECTIONS), "-m", str(STREAMS))
        command = ("h2load", "--npn-list=h2", *many, "-d", request(rig.folder, NUMBERS), *GRPC, rig.url(port))
        load = Process(command, rig.folder / f"leaves-{port}")
        load.wait_until(partial(rig.has_answered, port, before + STREAMS), GENEROUS)
        load.stop()
    assert eventually(lambda: rig.is_idle, GENEROUS)
    assert eventually(lambda: rig.gateway.look().tasks < 20, GENEROUS)
    # Not any warning: on a busy machine the backend may be slow to answer a check of its health.
    assert not re.search(r"Traceback|ERROR|WARNING gateway\.(core|transports)\.", rig.gateway.log)


def h2load(rig: Rig, port: str, data: bytes, requests: int, connections: int, streams: int, *options: str) -> Loaded:
    numbers = ("-n", str(requests), "-c", str(connections), "-m", str(streams))
    # Among several protocols of TLS the shared port takes HTTP/1.1.
    command = ("h2load", "--npn-list=h2", *numbers, *options, "-d", request(rig.folder, data), *GRPC, rig.url(port))
    return Loaded.read(run(*command).decode())


@pytest.mark.parametrize("port", PORTS)
async def test_a_gateway_that_stops_answers_what_is_in_flight(tmp_path: Path, port: str) -> None:
    """Each request whose head came is answered, or is above the last stream of the final GOAWAY: then its client knows
    that nothing was done for it, and may send it again (RFC 9113 section 6.8)."""
    number, files = free_port(), Authority().issue(tmp_path, "127.0.0.1") if port.endswith("tls") else None
    with reference(tmp_path / "works") as works:
        with gateway(_drained(port, number, works, tmp_path, files), tmp_path / "gateway") as running:
            async with relaying(f"127.0.0.1:{number}", None if files is None else _relayed(files)) as relay:
                loaded = await asyncio.to_thread(_stop_under_load, running, relay.address, tmp_path, files)
        assert "cancelled requests: 0" in running.output()
    answered = 0
    for connection in relay.connections:
        sent = {
            stream
            for kind, _, stream, _ in cut(bytes(connection.requests)[len(http2.PREFACE) :])
            if kind == http2.HEADERS
        }
        replies = list(cut(bytes(connection.replies)))
        ended = {stream for _, flags, stream, _ in replies if stream and flags & http2.END_STREAM}
        last = min(int.from_bytes(payload[:4]) for kind, _, _, payload in replies if kind == http2.GOAWAY)
        assert http2.RST_STREAM not in {kind for kind, *_ in replies}
        assert all(stream > last for stream in sent - ended)  # the client is told that nothing was done for those
        answered += len(ended)
    # `h2load` counts requests as begun and done that it did not send any more when it was told that the gateway stops.
    assert 0 < answered == loaded.succeeded <= loaded.done
    assert loaded.data % answered == 0
    assert loaded.data // answered > len(NUMBERS)
    assert _logged(tmp_path) == answered


@pytest.mark.parametrize("port", PORTS)
def test_what_a_gateway_that_stops_has_answered_reaches_its_clients(tmp_path: Path, port: str) -> None:
    """Without anything in between, which could hold back a reset of TCP: `h2load` has as many replies as the gateway
    has answered requests."""
    number, files = free_port(), Authority().issue(tmp_path, "127.0.0.1") if port.endswith("tls") else None
    with reference(tmp_path / "works") as works:
        with gateway(_drained(port, number, works, tmp_path, files), tmp_path / "gateway") as running:
            loaded = _stop_under_load(running, f"127.0.0.1:{number}", tmp_path, files)
        assert "cancelled requests: 0" in running.output()
    assert 0 < loaded.succeeded == _logged(tmp_path)


def _drained(port: str, number: int, works: str, folder: Path, files: Files | None) -> str:
    """The configuration of a gateway that listens at `number`."""
    protocols = "[v2-rest, v2-grpc]" if port.startswith("shared") else "[v2-grpc]"
    tls = "" if files is None else f", tls: {files.server}"
    return DRAINED.format(port=number, works=works, protocols=protocols, tls=tls, log=folder / "access.log")


def _relayed(files: Files) -> Tls:
    """HTTP/2 over TLS on both sides of a relay."""
    accepting = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    accepting.load_cert_chain(files.certificate, files.key)
    accepting.set_alpn_protocols(["h2"])
    return Tls(accepting, files.trusting(alpn="h2"))


def _logged(folder: Path) -> int:
    """The number of requests that the gateway has answered, by its access log. Each has succeeded."""
    lines = (folder / "access.log").read_text().splitlines()
    assert all(" access OK " in line for line in lines)
    return len(lines)


def _stop_under_load(running: Gateway, address: str, folder: Path, files: Files | None) -> Loaded:
    """Stop the gateway while `h2load` calls it at this address."""
    many = ("-n", "1000000", "-c", str(CONNECTIONS), "-m", str(STREAMS))
    url = f"http{'' if files is None else 's'}://{address}{INFER.decode()}"
    command = ["h2load", "--npn-list=h2", *many, "-d", request(folder, NUMBERS), *GRPC, url]
    load = Process(command, folder / "h2load")
    # It is under load once the backend has answered.
    running.process.wait_until(lambda: "it answered a call" in running.output(), GENEROUS)
    running.process.signal(SIGTERM)
    running.process.wait(GENEROUS)
    load.wait(GENEROUS)
    return Loaded.read(load.stdout())
