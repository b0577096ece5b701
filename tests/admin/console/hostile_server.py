"""A model server of V2 over HTTP whose replies are as bad as a server can make them."""

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from tests.admin.console.gateways import HOSTILE
from tests.in_thread import QuietHandler, in_thread
from tests.limits import GENEROUS

SCRIPT = "<script>alert(1)</script>"
ELEMENTS = 1_000_000
MODELS = ("hangs", "busy", "markup", "rude", "million", "strange", "many")


class HostileServer(ThreadingHTTPServer):
    """`hanging` is set while a client waits for the model `hangs`, which answers once `released` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hanging = threading.Event()
        self.released = threading.Event()

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self.server_port}"


@contextmanager
def hostile_server() -> Iterator[HostileServer]:
    server = HostileServer()
    with in_thread(server):
        yield server
        server.released.set()


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: HostileServer

    def do_GET(self) -> None:
        """Metadata: every model takes one number."""
        x = {"name": "x", "datatype": "FP64", "shape": [1]}
        name = self.path.removeprefix("/v2/models/").removesuffix("/ready")
        if self.path == "/v2":
            self._answer(200, {"name": "hostile", "version": "1", "extensions": ["model_repository"]})
        else:
            self._answer(200, {"name": name, "platform": SCRIPT, "versions": [], "inputs": [x], "outputs": []})

    def do_POST(self) -> None:
        """The list of models, and calls of them."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/v2/repository/index":
            self._answer(200, [{"name": each, "state": "READY", "reason": SCRIPT} for each in MODELS])
            return
        model = self.path.removeprefix("/v2/models/").removesuffix("/infer")
        getattr(self, f"_{model}")()

    def _hangs(self) -> None:
        self.server.hanging.set()
        self.server.released.wait(GENEROUS)
        self._outputs(("y", "FP64", [1], [1.0]))

    def _busy(self) -> None:
        self._answer(429, {"error": f"try later {SCRIPT}"}, ("Retry-After", "7"))

    def _rude(self) -> None:
        self._answer(500, {"error": f"{SCRIPT}{HOSTILE}" * 50_000})

    def _markup(self) -> None:
        self._outputs(
            (HOSTILE, "BYTES", [2], [SCRIPT, "\u202e\x00"]), (SCRIPT * 1000, "FP64", [1], [1.0]),
        )  # fmt: skip

    def _million(self) -> None:
        self._outputs(("y", "FP64", [1, ELEMENTS], [0.5] * ELEMENTS))

    def _many(self) -> None:
        self._outputs(*((f"y{at}", "FP64", [1], [float(at)]) for at in range(1000)))

    def _strange(self) -> None:
        numbers = struct.pack("<4d", float("nan"), float("inf"), float("-inf"), 5e-324)
        texts = b"".join(struct.pack("<I", len(each)) + each for each in (b"\xff\xfe<b>", b"\x00"))
        outputs = [
            {"name": name, "datatype": kind, "shape": [size], "parameters": {"binary_data_size": len(data)}}
            for name, kind, size, data in (("numbers", "FP64", 4, numbers), ("texts", "BYTES", 2, texts))
        ]
        head = json.dumps({"model_name": "strange", "outputs": outputs}).encode()
        self._send(200, head + numbers + texts, ("Inference-Header-Content-Length", str(len(head))))

    def _outputs(self, *outputs: tuple[str, str, list[int], object]) -> None:
        keys = ("name", "datatype", "shape", "data")
        found = [dict(zip(keys, each, strict=True)) for each in outputs]
        self._answer(200, {"model_name": "m", "outputs": found})

    def _answer(self, status: int, body: object, *headers: tuple[str, str]) -> None:
        self._send(status, json.dumps(body).encode(), *headers)

    def _send(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        for name, text in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, text)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True
