"""A server of a fleet over V2 REST and V2 gRPC with the repository extension, whose models do what a test tells them.

It calls itself a Triton, and its habits are those of one with explicit model control (see fleet_models.py). It reads
tensors over REST as JSON and as binary data, and writes them as JSON; over gRPC both are raw contents. It can
stop and come back, empty, at the addresses that it had.

    with serve(FleetModels(["a", "b"], most=1)) as server:
        call(server.http, server.grpc)
        assert server.models.loads == {"a": 1}
"""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from typing import Any

import grpc

from tests.in_thread import QuietHandler
from tests.peers.fleet_models import FleetModels, Refused
from tests.peers.protobuf import Document, decode, encode
from tests.peers.v2_messages import METHODS, SERVICE

JSON = "application/json"
SERVER = {"name": "triton", "version": "2.51.0", "extensions": ["model_repository", "binary_tensor_data"]}
HEADER_LENGTH = "Inference-Header-Content-Length"
FORMATS = {"FP64": "d", "FP32": "f"}
THREADS = 64
"""A call that hangs keeps one."""
MODEL = re.compile(r"/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[^/]+))?(?:/(?P<part>ready|infer))?")
CONTROL = re.compile(r"/v2/repository/models/(?P<model>[^/]+)/(?P<part>load|unload)")


class FleetServer:
    """`http` and `grpc` are addresses, `host:port`, which stay the same over `stop` and `start`."""

    def __init__(self, models: FleetModels) -> None:
        self.models = models
        self._http: _Http | None = None
        self._grpc: Any = None
        self._ports = 0, 0
        self.start()

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self._ports[1]}"

    def start(self) -> None:
        http, own = self._ports
        self._http = _Http(http, self.models)
        self._grpc = grpc.server(ThreadPoolExecutor(THREADS), options=(("grpc.so_reuseport", 0),))
        self._grpc.add_generic_rpc_handlers((_service(self.models),))
        own = int(self._grpc.add_insecure_port(f"127.0.0.1:{own}"))
        self._grpc.start()
        self._ports = self._http.server_port, own

    def stop(self) -> None:
        """Cut every connection and lose every model."""
        if self._http is None:
            return
        self._http.stop()
        ended = self._grpc.stop(None)
        self.models.empty()
        ended.wait()
        self._http = None

    def restart(self) -> None:
        self.stop()
        self.start()


@contextmanager
def serve(models: FleetModels) -> Iterator[FleetServer]:
    """The server on loopback, until the end of the context."""
    server = FleetServer(models)
    try:
        yield server
    finally:
        models.release()
        server.stop()


# --- REST ---


class _Http(ThreadingHTTPServer):
    def __init__(self, port: int, models: FleetModels) -> None:
        self.models = models
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Its connection was cut."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in tuple(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            if HEADER_LENGTH in self.headers:
                body = _without_binary(body, int(self.headers[HEADER_LENGTH]))
            status, document = _rest(self.server.models, self.command, self.path, body)
        except Refused as refused:
            status, document = refused.http, {"error": refused.text}
        written = b"" if document is None else json.dumps(document, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(written)))
        self.end_headers()
        self.wfile.write(written)

    do_GET = do_POST = _answer


def _without_binary(body: bytes, length: int) -> bytes:
    """The request with its only input, which is binary data after JSON of that length, in the JSON."""
    document = json.loads(body[:length])
    (given,) = document["inputs"]
    letter = FORMATS[given["datatype"]]
    given["data"] = struct.unpack(f"<{(len(body) - length) // struct.calcsize(letter)}{letter}", body[length:])
    return json.dumps(document).encode()


def _rest(models: FleetModels, method: str, path: str, body: bytes) -> tuple[int, Any]:
    """Status and document of the reply; None is no body."""
    if method == "GET" and path == "/v2/health/live":
        return 200, None
    if method == "GET" and path == "/v2/health/ready":
        return (200 if models.server_ready() else 400), None
    if method == "GET" and path == "/v2":
        return 200, SERVER
    if method == "POST" and path == "/v2/repository/index":
        return 200, models.index(bool(json.loads(body or b"{}").get("ready")))
    if method == "POST" and (found := CONTROL.fullmatch(path)):
        (models.load if found["part"] == "load" else models.unload)(found["model"])
        return 200, None
    found = MODEL.fullmatch(path)
    if found is None or (found["part"] == "infer") != (method == "POST"):
        raise Refused(404, "UNIMPLEMENTED", "Not Found")
    model, version = found["model"], found["version"] or ""
    if found["part"] == "ready":
        return (200 if models.is_ready(model, version) else 400), None
    if found["part"] is None:
        return 200, models.metadata(model, version)
    document = json.loads(body)
    answered = models.infer(model, version, document["inputs"][0]["data"])
    outputs = [
        {"name": "model", "datatype": "BYTES", "shape": [1], "data": [answered.model]},
        {"name": "y", "datatype": models.datatype, "shape": [len(answered.numbers)], "data": answered.numbers},
    ]
    reply = {"model_name": answered.model, "model_version": answered.version, "outputs": outputs}
    return 200, reply | ({"id": document["id"]} if "id" in document else {})


# --- gRPC ---


def _service(models: FleetModels) -> Any:
    def index(asked: Document) -> Document:
        return {"models": models.index(asked.get("ready", False))}

    def load(asked: Document) -> Document:
        models.load(asked["model_name"])
        return {}

    def unload(asked: Document) -> Document:
        models.unload(asked["model_name"])
        return {}

    methods: dict[str, Callable[[Document], Document]] = {
        "ServerLive": lambda asked: {"live": True},
        "ServerReady": lambda asked: {"ready": models.server_ready()},
        "ServerMetadata": lambda asked: SERVER,
        "ModelReady": lambda asked: {"ready": models.is_ready(asked.get("name", ""), asked.get("version", ""))},
        "ModelMetadata": lambda asked: models.metadata(asked.get("name", ""), asked.get("version", "")),
        "ModelInfer": lambda asked: _inferred(models, asked),
        "RepositoryIndex": index,
        "RepositoryModelLoad": load,
        "RepositoryModelUnload": unload,
    }
    handlers = {name: _unary(name, method) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _unary(name: str, method: Callable[[Document], Document]) -> Any:
    taken, told = METHODS[name]

    def answer(asked: Document, context: Any) -> Document:
        try:
            return method(asked)
        except Refused as refused:
            context.abort(grpc.StatusCode[refused.grpc], refused.text)
            raise

    return grpc.unary_unary_rpc_method_handler(
        answer, lambda raw: decode(raw, taken), lambda document: encode(document, told)
    )


def _inferred(models: FleetModels, asked: Document) -> Document:
    letter = FORMATS[models.datatype]
    if "raw_input_contents" in asked:
        (raw,) = asked["raw_input_contents"]
        numbers = list(struct.unpack(f"<{len(raw) // struct.calcsize(letter)}{letter}", raw))
    else:
        numbers = asked["inputs"][0].get("contents", {}).get("fp64_contents", [])
    answered = models.infer(asked["model_name"], asked.get("model_version", ""), numbers)
    name = answered.model.encode()
    reply: Document = {
        "model_name": answered.model,
        "model_version": answered.version,
        "outputs": [
            {"name": "model", "datatype": "BYTES", "shape": [1]},
            {"name": "y", "datatype": models.datatype, "shape": [len(numbers)]},
        ],
        "raw_output_contents": [
            struct.pack("<I", len(name)) + name,
            struct.pack(f"<{len(numbers)}{letter}", *answered.numbers),
        ],
    }
    return reply | ({"id": asked["id"]} if "id" in asked else {})
