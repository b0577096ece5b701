"""A grps server with the habits of upstream's C++ one, which no package index has.

Written from observations of the original's wire, and independent of the gateway. Its habits:

- HTTP: 200 for every grps error; any method; connections are kept; an unknown path is a text with `x-bd-error-code`
- JSON with one space of indent and a line break behind it; 3.0 is printed as `3`
- of several data members the last in the order of their numbers wins; ragged and empty ndarrays are refused
- streams write bin_data as raw bytes, and lose nothing
- one flag of readiness for HTTP, gRPC and BRPC, off at the start; not ready is 503 everywhere, in the body
- metadata: of the models only the first is known, by its bare name; server metadata over RPC has no status

    with serve() as server:
        call(server.http.url, server.grpc.address, server.brpc.address)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.in_thread import in_thread
from tests.peers import brpc_peer as brpc
from tests.peers import grps_http as http
from tests.peers import grps_python
from tests.peers import grps_rpc as rpc
from tests.peers.grps_http import Call, Reply
from tests.peers.grps_json import cpp_float, load, nested, pretty, read, tensor_of, tree
from tests.peers.grps_messages import DATA, SUCCESS, failure
from tests.peers.grps_models import MODELS, Model, Repository, dump, server_yml
from tests.peers.launch import main
from tests.peers.protobuf import Document

JSON = "application/json"
BYTES = "application/octet-stream"
BODY_LIMIT = 64 << 20
OK: Document = {"status": SUCCESS}


class Refused(Exception):  # noqa: N818 - what the original calls an error is a reply
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.reply = failure(400, f"Bad Request, err: {text}")


class ExecutorException(Exception):  # noqa: N818 - the original's name
    """Its text is what the client reads."""


class Service:
    def __init__(self, models: Sequence[Model], path: str | None, body: bool, stream_type: str) -> None:
        self._models = Repository(
            models, str, lambda name: ExecutorException(f"[ExecutorException] Not found model: {name}")
        )
        self._customized_body = body
        self._stream_type = stream_type
        self.online = False
        self.stream = self._models.stream
        self.paths: dict[str, Callable[[Call], Reply]] = {
            "/grps/v1/infer/predict": self.predict,
            "/grps/v1/health/online": lambda call: answer(self.switch(True)),
            "/grps/v1/health/offline": lambda call: answer(self.switch(False)),
            "/grps/v1/health/live": lambda call: answer(OK),
            "/grps/v1/health/ready": lambda call: answer(self.ready()),
            "/grps/v1/metadata/server": lambda call: answer(OK | self.server_metadata()),
            "/grps/v1/metadata/model": self.model_metadata_http,
        }
        if path is not None:
            self.paths[path] = self.predict

    def answer(self, call: Call) -> Reply:
        drawn = http.monitor(call)
        if drawn is not None:
            return drawn
        if call.path not in self.paths:
            text = f"[E1002]Fail to find method on `{call.path}'".encode()
            return Reply(404, text, "text/plain", (("x-bd-error-code", "1002"),))
        try:
            return self.paths[call.path](call)
        except Refused as refused:
            return answer(refused.reply, call.kind)

    def predict(self, call: Call) -> Reply:
        if self._customized_body:
            return http.customized(call)
        message = request_of(call)
        if call.asks("streaming"):
            return Reply(200, map(streamed, self.stream(message)), self._stream_type)
        result = self._models.predict(message)
        if result["status"]["code"] != 200:
            return answer(result, call.kind)
        return as_ndarray(result, call) if call.asks("return-ndarray") else answer(result)

    def switch(self, online: bool) -> Document:
        self.online = online
        return OK

    def ready(self) -> Document:
        return OK if self.online else failure(503, "Service Unavailable")

    def server_metadata(self) -> Document:
        """Without a status: HTTP alone adds it."""
        return {"str_data": f"{server_yml('http+brpc')}\n{self._models.inference_yml()}"}

    def model_metadata_http(self, call: Call) -> Reply:
        told = self.model_metadata(parsed(call.body))
        if told["status"]["code"] == 200:
            return answer(told)
        return answer({"status": told["status"]}, call.kind)

    def model_metadata(self, message: Document) -> Document:
        """The original's loop ends after the first model, whether it is the one or not."""
        first = self._models.models[0]
        if message.get("str_data", "") == first.name:
            return OK | {"str_data": dump(first.description())}
        return failure(404, "Not Found") | {"str_data": ""}

    def rpc_methods(self) -> dict[str, rpc.Unary]:
        """Of gRPC and of BRPC."""
        return {
            "Predict": self._models.predict,
            "Online": lambda message: self.switch(True),
            "Offline": lambda message: self.switch(False),
            "CheckLiveness": lambda message: OK,
            "CheckReadiness": lambda message: self.ready(),
            "ServerMetadata": lambda message: self.server_metadata(),
            "ModelMetadata": self.model_metadata,
        }


def request_of(call: Call) -> Document:
    """Raises Refused."""
    if call.kind not in (JSON, BYTES):
        raise Refused("Content type is not supported.")
    if call.asks("streaming") and call.asks("return-ndarray"):
        raise Refused("Streaming and ret ndarray are not supported at the same time.")
    model = {"model": call.query["model"]} if "model" in call.query else {}
    return model | ({"bin_data": call.body} if call.kind == BYTES else message_of(call.body))


def parsed(body: bytes) -> Document:
    try:
        return load(body)
    except ValueError as error:
        raise Refused("Parse json failed.") from error


def message_of(body: bytes) -> Document:
    document = parsed(body)
    named = {"model": document["model"]} if document.get("model") else {}
    try:
        if any(name in document for name in ("str_data", "gtensors", "gmap")):
            message = read({name: value for name, value in document.items() if name in DATA}, camel=False)
            return named | {name: message[name] for name in [name for name in DATA if name in message][-1:]}
        if "ndarray" in document:
            return named | {"gtensors": tensor_of_filled(document["ndarray"])}
    except (ValueError, TypeError) as error:
        raise Refused("Parse json failed.") from error
    only_bytes = "bin_data should use application/octet-stream format."
    raise Refused(only_bytes if "bin_data" in document else "Have no legal member in json body.")


def tensor_of_filled(array: Any) -> Document:
    tensors = tensor_of(array)
    if not tensors["tensors"][0]["flat_float32"]:
        raise ValueError("the ndarray is empty")
    return tensors


def answer(message: Document, kind: str | None = JSON) -> Reply:
    """Always 200. Errors have the content type of the request, if it had one."""
    if "bin_data" in message:
        return Reply(200, message["bin_data"], BYTES)
    return Reply(200, printed(tree(message, cpp_float)), kind)


def printed(document: Document) -> bytes:
    return pretty(document, 1, ascii_only=False).encode() + b"\n"


def as_ndarray(message: Document, call: Call) -> Reply:
    tensors = message.get("gtensors", {}).get("tensors", [])
    if not tensors:
        return answer(failure(500, "No tensors in output. Cannot convert to ndarray."), call.kind)
    if len(tensors) > 1:
        return answer(failure(500, "NDArray only support one tensor"), call.kind)
    if tensors[0].get("dtype") != "DT_FLOAT32":
        return answer(failure(500, "NDArray only support float32"), call.kind)
    return Reply(200, printed({"status": SUCCESS, "ndarray": nested(tensors[0], cpp_float)}), JSON)


def streamed(message: Document) -> bytes:
    return message["bin_data"] if "bin_data" in message else printed(tree(message, cpp_float))


@dataclass
class Server(grps_python.Server):
    _brpc: brpc.Server | None

    @property
    def brpc(self) -> brpc.Server:
        assert self._brpc is not None
        return self._brpc


@contextmanager
def serve(
    models: Sequence[Model] = MODELS,
    *,
    http_port: int = 0,
    grpc_port: int | None = 0,
    brpc_port: int | None = 0,
    customized_path: str | None = None,
    customized_body: bool = False,
    stream_type: str = BYTES,
    **habits: Any,
) -> Iterator[Server]:
    """Serve on loopback, at free ports unless they are given; None is not served. `stream_type` is server.yml's
    `res_content_type`. `habits` are brpc_peer's."""
    service = Service(models, customized_path, customized_body, stream_type)
    with ExitStack() as running:
        web = http.Server(service.answer, http_port, close_each=False, body_limit=BODY_LIMIT)
        running.enter_context(in_thread(web))
        remote = framed = None
        if grpc_port is not None:
            remote = rpc.Server(service.rpc_methods(), service.stream, grpc_port)
            running.callback(remote.stop)
        if brpc_port is not None:
            framed = running.enter_context(brpc.serve(service.rpc_methods(), port=brpc_port, **habits))
        yield Server(web, remote, framed)


if __name__ == "__main__":
    main(serve, http_port=0, grpc_port=None, brpc_port=None)
