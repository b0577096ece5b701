"""A grps server with the habits of upstream's Python one, which no package index has.

Written from observations of the original's wire, and independent of the gateway. Its habits:

- HTTP: `Connection: close` on every reply; the HTTP code is the body's; HTML for unknown paths, methods, types
- content types are matched exactly; `msg` of an exception is the whole traceback
- JSON with one space of indent and no line break behind it, with two spaces in streams
- streams write bin_data as the text `b'...'`; `loses` makes them stop after the first message, as the original does
  when its model streams without pause
- HTTP and gRPC have a flag of readiness each, off at the start; not ready is 503 over HTTP and 403 over gRPC
- return-ndarray takes the first tensor, and prints `"model": ""`

    with serve() as server:
        call(server.http.url, server.grpc.address)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice

from tests.in_thread import in_thread
from tests.peers import grps_http as http
from tests.peers import grps_rpc as rpc
from tests.peers.grps_http import Call, Reply
from tests.peers.grps_json import load, nested, pretty, python_float, read, tensor_of, tree
from tests.peers.grps_messages import DATA, SUCCESS, failure
from tests.peers.grps_models import MODELS, Model, Repository, dump, server_yml
from tests.peers.launch import main
from tests.peers.protobuf import Document

JSON = "application/json"
BYTES = "application/octet-stream"
READ, WRITE = ("GET", "HEAD", "OPTIONS"), ("POST", "OPTIONS")
ANY = (*READ, "POST")


class Refused(Exception):  # noqa: N818 - what the original calls an error is a reply
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.reply = failure(code, text)


@dataclass
class Flag:
    online: bool = False

    def switch(self, online: bool) -> Document:
        self.online = online
        return {"status": SUCCESS}

    def ready(self, code: int) -> Document:
        return {"status": SUCCESS} if self.online else failure(code, "Service Unavailable")


class Service:
    def __init__(self, models: Sequence[Model], loses: bool, path: str | None, body: bool) -> None:
        self._models = Repository(models, tell, lambda name: RuntimeError(f"Model {name} not found."))
        self._loses = loses
        self._customized_body = body
        self.http, self.grpc = Flag(), Flag()
        self.paths: dict[str, tuple[tuple[str, ...], Callable[[Call], Reply]]] = {
            "/grps/v1/infer/predict": (WRITE, self.predict),
            "/grps/v1/health/online": (ANY, lambda call: answer(self.http.switch(True))),
            "/grps/v1/health/offline": (ANY, lambda call: answer(self.http.switch(False))),
            "/grps/v1/health/live": (ANY, lambda call: answer({"status": SUCCESS})),
            "/grps/v1/health/ready": (ANY, lambda call: answer(self.http.ready(503))),
            "/grps/v1/metadata/server": (ANY, lambda call: answer(self.server_metadata())),
            "/grps/v1/metadata/model": (WRITE, self.model_metadata_http),
        }
        if path is not None:
            self.paths[path] = (ANY, self.predict)

    def answer(self, call: Call) -> Reply:
        drawn = http.monitor(call)
        if drawn is not None:
            return drawn
        if call.path not in self.paths:
            return page(404, "Not Found")
        methods, handler = self.paths[call.path]
        if call.method not in methods:
            return page(405, "Method Not Allowed", ("Allow", ", ".join(methods)))
        return handler(call)

    def predict(self, call: Call) -> Reply:
        if self._customized_body:
            return http.customized(call)
        try:
            message = request_of(call)
        except Refused as refused:
            return answer(refused.reply)
        except Exception as error:
            return answer(failure(500, tell(error)))
        if call.asks("streaming"):
            return Reply(200, map(streamed, self.stream(message)), BYTES)
        result = self._models.predict(message)
        return as_ndarray(result) if call.asks("return-ndarray") else answer(result)

    def stream(self, message: Document) -> Iterator[Document]:
        stream = self._models.stream(message)
        return islice(stream, 1) if self._loses else stream

    def server_metadata(self) -> Document:
        text = f"# Models and dag.\n{self._models.inference_yml()}\n# Interfaces.\n{server_yml('http+grpc')}"
        return {"status": SUCCESS, "str_data": text}

    def model_metadata_http(self, call: Call) -> Reply:
        if call.kind != JSON:
            return page(415, "Unsupported Media Type")
        try:
            name = load(call.body).get("str_data")
        except ValueError:
            return page(400, "Bad Request")
        return answer(self.model_metadata(name, "No model name."))

    def model_metadata(self, name: str | None, absent: str) -> Document:
        """By the bare name, without a version."""
        if not name:
            return failure(400, absent)
        for model in self._models.models:
            if model.name == name:
                return {"status": SUCCESS, "str_data": dump(model.description(), sort_keys=True)}
        return failure(404, "Model not found.")

    def rpc_methods(self) -> dict[str, rpc.Unary]:
        empty = "The model name is empty."
        return {
            "Predict": self._models.predict,
            "Online": lambda message: self.grpc.switch(True),
            "Offline": lambda message: self.grpc.switch(False),
            "CheckLiveness": lambda message: {"status": SUCCESS},
            "CheckReadiness": lambda message: self.grpc.ready(403),
            "ServerMetadata": lambda message: self.server_metadata(),
            "ModelMetadata": lambda message: self.model_metadata(message.get("str_data"), empty),
        }


def tell(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def request_of(call: Call) -> Document:
    """Raises Refused, and for the rest what the original lets become a traceback."""
    if call.kind is None:
        raise Refused(400, "No content type in headers.")
    if call.kind not in (JSON, BYTES):
        raise Refused(400, "Unsupported content type.")
    if call.asks("streaming") and call.asks("return-ndarray"):
        raise Refused(400, "Bad Request, err: Streaming and ret ndarray are not supported at the same time.")
    if not call.body:
        raise Refused(400, "The http body is empty.")
    model = {"model": call.query["model"]} if "model" in call.query else {}
    return model | ({"bin_data": call.body} if call.kind == BYTES else message_of(load(call.body)))


def message_of(document: Document) -> Document:
    """A truth test, so that an empty text and an empty map count as absent."""
    if any(document.get(name) for name in ("str_data", "gtensors", "gmap")):
        message = read({name: value for name, value in document.items() if name != "ndarray"}, camel=True)
        if sum(name in message for name in DATA) > 1:
            raise ValueError('Message type "grps.protos.v1.GrpsMessage" should not have multiple "data_oneof" fields.')
        return message
    if document.get("ndarray") is not None:
        named = {"model": document["model"]} if document.get("model") else {}
        return {**named, "gtensors": tensor_of(document["ndarray"])}
    if document.get("bin_data"):
        raise ValueError("bin_data should use application/octet-stream format.")
    raise ValueError("No legal field in json.")


def answer(message: Document) -> Reply:
    """The choice between JSON and bytes is by the result; empty bytes become JSON."""
    code = message["status"]["code"]
    if message.get("bin_data"):
        return Reply(code, message["bin_data"], BYTES)
    return Reply(code, pretty(tree(message, python_float), 1).encode(), "application/json;charset=utf-8")


def as_ndarray(message: Document) -> Reply:
    if message["status"]["code"] != 200:
        return answer(message)
    tensor, *_ = message.get("gtensors", {}).get("tensors", []) or [{}]
    if "flat_float32" not in tensor:
        return answer(failure(500, "No float32 tensors in output. Cannot convert to ndarray."))
    document = {"status": SUCCESS, "model": message.get("model", ""), "ndarray": nested(tensor, python_float)}
    return Reply(200, pretty(document, 1).encode(), "application/json;charset=utf-8")


def streamed(message: Document) -> bytes:
    """Python's own text of bytes objects for bin_data: a fault of the original, which destroys them."""
    if "bin_data" in message:
        return str(message["bin_data"]).encode()
    return pretty(tree(message, python_float), 2).encode()


def page(status: int, title: str, *headers: tuple[str, str]) -> Reply:
    body = f"<!doctype html>\n<html lang=en>\n<title>{status} {title}</title>\n<h1>{title}</h1>\n"
    return Reply(status, body.encode(), "text/html; charset=utf-8", headers)


@dataclass
class Server:
    http: http.Server
    _grpc: rpc.Server | None

    @property
    def grpc(self) -> rpc.Server:
        assert self._grpc is not None
        return self._grpc


@contextmanager
def serve(
    models: Sequence[Model] = MODELS,
    *,
    http_port: int = 0,
    grpc_port: int | None = 0,
    loses: bool = False,
    customized_path: str | None = None,
    customized_body: bool = False,
) -> Iterator[Server]:
    """Serve on loopback, at free ports unless they are given; None is no gRPC."""
    service = Service(models, loses, customized_path, customized_body)
    with ExitStack() as running:
        web = http.Server(service.answer, http_port, close_each=True)
        running.enter_context(in_thread(web))
        remote = None
        if grpc_port is not None:
            remote = rpc.Server(service.rpc_methods(), service.stream, grpc_port)
            running.callback(remote.stop)
        yield Server(web, remote)


if __name__ == "__main__":
    main(serve, http_port=0, grpc_port=None)
