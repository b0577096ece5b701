"""A hundred reloads under load over every transport: no call fails, no answer mixes two configurations, and nothing
remains in memory."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue

import grpc

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from tests.attacks.attacked import MIB, Attacked, Talker
from tests.attacks.clients import Brpc, Connection, Grpc, Http, Mip, message, post
from tests.interop.processes import free_port
from tests.limits import GENEROUS

RELOADS = 100
CALLS = 25
"""How many calls are answered between two reloads, at least."""
IDLE = 20
"""How many more idle connections to the two servers there may be: as many as there were calls at once. One descriptor
for each reload would be 80."""
KEPT = 16 * MIB
"""What the allocator and the garbage collector may keep after 80 further reloads."""

MANY = 200
"""Reloads of a file with many routes, each of which would leave half a MiB."""

CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}
  - {{name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: m}}
  - {{name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}}
  - {{name: extra{number}, bind: "127.0.0.1:{extra}", protocols: [v2-rest]}}
admin: {{bind: "127.0.0.1:0"}}
reload: {{watch: false}}
backends:
  lab: {{protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:{server}"], limits: {{message: {limit}}}}}
  both: {{protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:{first}"], limits: {{message: {limit}}}}}
routes:
  - match: {{model: m}}
    backend: lab
    rewrite: {{model: "{number}"}}
    signature: &signature
      inputs: [{{name: x, datatype: FP64, shape: [-1, 1]}}]
      outputs: [{{name: y, datatype: FP64, shape: [-1, 1]}}]
  - {{match: {{model: stays}}, backend: both, rewrite: {{model: "1"}}, signature: *signature}}
"""


class Server(ThreadingHTTPServer):
    """A model server whose answer to model M is ten times its own number plus M."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, number: int) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.number = number
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        model = self.path.split("/")[3]
        output = {"name": "y", "datatype": "FP64", "shape": [1, 1], "data": [10.0 * self.server.number + int(model)]}
        body = json.dumps({"model_name": model, "outputs": [output]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


INPUT = Tensor("x", Datatype.FP64, (1, 1), struct.pack("<d", 1.0))
TENSOR = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.0]}]}'
WHOLE = (11.0, 22.0)
"""The answers that are of one configuration."""


def of_bytes(reply: bytes, answers: tuple[float, ...]) -> bool:
    return any(struct.pack("<d", each) in reply for each in answers)


def of_text(reply: bytes, answers: tuple[float, ...]) -> bool:
    return any(b"[%.1f]" % each in reply.replace(b"[[", b"[").replace(b"]]", b"]") for each in answers)


Check = Callable[[bytes, tuple[float, ...]], bool]
SORTS: list[tuple[str, Callable[[tuple[str, int]], Connection], bytes, Check, tuple[float, ...]]] = [
    ("http", Http, post("/v2/models/m/infer", TENSOR), of_text, WHOLE),
    ("http", Http, post("/v2/models/stays/infer", TENSOR), of_text, (11.0,)),
    ("grpc", Grpc, message("v2-grpc", "m", INPUT), of_bytes, WHOLE),
    ("mip", Mip, message("mip", "", INPUT), of_text, WHOLE),
    ("brpc", Brpc, message("grps-brpc", "m", INPUT), of_bytes, WHOLE),
]


class Load:
    """Clients with one connection each for the whole time; one of them has a stream."""

    def __init__(self, gateway: Attacked) -> None:
        self.faults: list[str] = []
        self._answered = threading.Semaphore(0)
        self._gateway = gateway
        self._resting, self._stopped = threading.Event(), threading.Event()
        works = [partial(self._connected, *sort) for sort in SORTS for _ in range(2)] + [self._stream]
        self._threads = [threading.Thread(target=self._work, args=(work,), daemon=True) for work in works]
        self._all_rest = threading.Barrier(len(works) + 1)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(GENEROUS)

    def wait(self, calls: int) -> None:
        """Wait until so many more calls are answered."""
        for _ in range(calls):
            assert self._answered.acquire(timeout=GENEROUS), self.faults

    @contextmanager
    def rest(self) -> Iterator[None]:
        """No client calls; all stay connected."""
        self._resting.set()
        self._all_rest.wait(GENEROUS)
        yield
        self._resting.clear()
        self._all_rest.wait(GENEROUS)

    def _goes_on(self, *, is_right: bool, reply: bytes) -> bool:
        if not is_right:
            self.faults.append(f"{reply[:300]!r}")
        self._answered.release()
        if self._resting.is_set():
            self._all_rest.wait(GENEROUS)
            self._all_rest.wait(GENEROUS)
        return not self._stopped.is_set()

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.faults.append(repr(error))
            self._all_rest.abort()

    def _connected(
        self,
        listener: str,
        connect: Callable[[tuple[str, int]], Connection],
        request: bytes,
        check: Check,
        answers: tuple[float, ...],
    ) -> None:
        with connect(self._gateway.address(listener)) as connection:
            while self._goes_on(is_right=check(reply := connection.call(request), answers), reply=reply):
                pass

    def _stream(self) -> None:
        """One stream of gRPC with a message for each call: each is a request of its own."""
        host, port = self._gateway.address("grpc")
        requests: Queue[bytes | None] = Queue()
        with grpc.insecure_channel(f"{host}:{port}") as channel:
            call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            asked = message("v2-grpc", "m", INPUT)
            requests.put(asked)
            for reply in call(iter(requests.get, None)):
                goes_on = self._goes_on(is_right=of_bytes(reply, WHOLE), reply=reply)
                requests.put(asked if goes_on else None)


def reload(gateway: Attacked) -> list[str]:
    host, port = gateway.address("admin")
    with Http((host, port)) as admin:
        reply = admin.call(b"POST /reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    assert b" 200 OK" in reply, reply
    changes: list[str] = json.loads(reply.partition(b"\r\n\r\n")[2])["changes"]
    return changes


def answered_at(port: int) -> bool:
    try:
        with Http(("127.0.0.1", port)) as client:
            return b" 200 OK" in client.call(post("/v2/models/m/infer", TENSOR))
    except ConnectionError:
        return False


def left(gateway: Attacked) -> tuple[int, int]:
    """The tasks and descriptors once they are as few as they get: what has ended is closed in the background."""
    fewest, since = (gateway.look().tasks, gateway.descriptors), time.monotonic()
    while time.monotonic() - since < 1:
        now = gateway.look().tasks, gateway.descriptors
        if now < fewest:
            fewest, since = now, time.monotonic()
    return fewest


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_hundred_reloads_lose_no_call_and_leave_nothing_behind(
    tmp_path: Path, show_at_the_end: Callable[[str, str], None]
) -> None:
    servers = [Server(1), Server(2)]
    extras = [free_port(), free_port()]
    texts = [
        CONFIG.format(
            number=number + 1, extra=extras[number], server=servers[number].port, first=servers[0].port,
            limit=2**20 + number,
        )
        for number in (0, 1)
    ]  # fmt: skip
    file = tmp_path / "gateway.yaml"
    file.write_text(texts[0])
    gateway = Attacked(Talker("tests.attacks.observed", str(file), log=tmp_path / "gateway.log"))
    seen = []
    try:
        with Load(gateway) as load:
            for number in range(1, RELOADS + 1):
                load.wait(CALLS)
                now = number % 2
                file.write_text(texts[now])
                changes = reload(gateway)
                assert f"listener 'extra{now + 1}' added" in changes
                assert f"listener 'extra{2 - now}' removed" in changes
                assert "route 'm': rewrite changed" in changes
                assert answered_at(extras[now])
                assert not is_open(extras[1 - now])
                if number in (20, RELOADS):
                    with load.rest():
                        seen.append((*left(gateway), gateway.resident))
            load.wait(CALLS)
        assert load.faults == []
        log = gateway.log
    finally:
        gateway.end()
        for server in servers:
            server.shutdown()
            server.server_close()
    (tasks, descriptors, memory), (tasks_after, descriptors_after, memory_after) = seen
    text = f"memory {memory / MIB:.1f} -> {memory_after / MIB:.1f} MiB, tasks {tasks} -> {tasks_after}, "
    text += f"descriptors {descriptors} -> {descriptors_after}"
    show_at_the_end(f"{RELOADS} reloads under load", text)
    assert tasks_after <= tasks + 1
    assert descriptors_after <= descriptors + IDLE
    assert memory_after <= memory + KEPT
    assert not re.search("ERROR|cancelled requests: [1-9]|Traceback", log)


def test_two_hundred_reloads_of_a_large_file_leave_no_memory(
    tmp_path: Path, show_at_the_end: Callable[[str, str], None]
) -> None:
    """Nobody calls: only a reload itself can have its garbage collected."""
    backend = "m{0}: {{protocol: v2-rest, endpoints: ['127.0.0.1:{0}'], safe: true}}"
    route = "{{match: {{model: m{0}}}, backend: m{0}, policies: [{{cache: {{seconds: {1}}}}}]}}"
    begin = "\n".join(CONFIG.splitlines()[1:3]) + '\nadmin: {bind: "127.0.0.1:0"}\nreload: {watch: false}\n'
    texts = []
    for seconds in (30, 31):
        backends, routes = (", ".join(each.format(at, seconds) for at in range(1, 61)) for each in (backend, route))
        texts.append(f"{begin.replace('{{', '{').replace('}}', '}')}backends: {{{backends}}}\nroutes: [{routes}]\n")
    file = tmp_path / "gateway.yaml"
    file.write_text(texts[0])
    gateway = Attacked(Talker("tests.attacks.observed", str(file), log=tmp_path / "gateway.log"))
    try:
        seen = []
        for number in range(1, MANY + 1):
            file.write_text(texts[number % 2])
            assert len(reload(gateway)) == 60
            if number in (10, MANY):
                left(gateway)
                seen.append(gateway.resident)
    finally:
        gateway.end()
    before, after = seen
    show_at_the_end(f"{MANY} reloads of 60 routes", f"memory {before / MIB:.1f} -> {after / MIB:.1f} MiB")
    assert after <= before + KEPT
