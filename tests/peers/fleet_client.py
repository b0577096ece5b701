"""Clients of a fleet's models, over V2 REST and V2 gRPC; independent of the gateway.

A model of the fleet answers its own name and the numbers that it got: `infer` gives both back.
"""

from __future__ import annotations

import json
import struct
from http.client import HTTPConnection, HTTPException
from typing import Any, Protocol

import grpc

from tests.limits import GENEROUS
from tests.peers.protobuf import Document, decode, encode
from tests.peers.v2_messages import METHODS, SERVICE


class CallFailed(Exception):  # noqa: N818 - what a server answered
    """An error that was answered: its status, as a number over HTTP and a name over gRPC, and its text.

    `status` is empty if there was no answer.
    """

    def __init__(self, status: str, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


class Client(Protocol):
    def infer(self, model: str, numbers: list[float], version: str = "") -> tuple[str, list[float]]: ...
    def server_ready(self) -> bool: ...
    def index(self, ready: bool = False) -> list[Document]: ...
    def ready(self, model: str) -> bool: ...
    def load(self, model: str) -> None: ...
    def unload(self, model: str) -> None: ...
    def close(self) -> None: ...


class Rest:
    """One connection, which is made anew after it broke."""

    def __init__(self, address: str, seconds: float = GENEROUS) -> None:
        host, _, port = address.rpartition(":")
        self._connection = HTTPConnection(host, int(port), timeout=seconds)

    def infer(self, model: str, numbers: list[float], version: str = "") -> tuple[str, list[float]]:
        given = {"name": "x", "datatype": "FP64", "shape": [len(numbers)], "data": numbers}
        part = f"/versions/{version}" if version else ""
        document = self._done("POST", f"/v2/models/{model}{part}/infer", {"inputs": [given]})
        outputs = {each["name"]: each["data"] for each in document["outputs"]}
        return outputs["model"][0], outputs["y"]

    def server_ready(self) -> bool:
        return self._asked("GET", "/v2/health/ready")[0] == 200

    def index(self, ready: bool = False) -> list[Document]:
        found: list[Document] = self._done("POST", "/v2/repository/index", {"ready": ready})
        return found

    def ready(self, model: str) -> bool:
        return self._asked("GET", f"/v2/models/{model}/ready")[0] == 200

    def metadata(self, model: str) -> Document:
        found: Document = self._done("GET", f"/v2/models/{model}")
        return found

    def load(self, model: str) -> None:
        self._done("POST", f"/v2/repository/models/{model}/load", {})

    def unload(self, model: str) -> None:
        self._done("POST", f"/v2/repository/models/{model}/unload", {})

    def close(self) -> None:
        self._connection.close()

    def _done(self, method: str, path: str, document: object = None) -> Any:
        status, body = self._asked(method, path, document)
        if status != 200:
            raise CallFailed(str(status), body.decode(errors="replace"))
        return json.loads(body) if body else None

    def _asked(self, method: str, path: str, document: object = None) -> tuple[int, bytes]:
        body = None if document is None else json.dumps(document).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            self._connection.request(method, path, body, headers)
            reply = self._connection.getresponse()
            return reply.status, reply.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise CallFailed("", repr(error)) from error


class Grpc:
    def __init__(self, address: str, seconds: float = GENEROUS) -> None:
        # A channel of its own: gRPC shares connections between channels with equal options.
        self._channel: Any = grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))
        self._seconds = seconds
        self._methods: dict[str, Any] = {}
        for name, (asked, told) in METHODS.items():
            self._methods[name] = self._channel.unary_unary(
                f"/{SERVICE}/{name}",
                lambda document, schema=asked: encode(document, schema),
                lambda raw, schema=told: decode(raw, schema),
            )

    def infer(self, model: str, numbers: list[float], version: str = "") -> tuple[str, list[float]]:
        given = {"name": "x", "datatype": "FP64", "shape": [len(numbers)]}
        raw = struct.pack(f"<{len(numbers)}d", *numbers)
        asked = {"model_name": model, "model_version": version, "inputs": [given], "raw_input_contents": [raw]}
        told = self._call("ModelInfer", asked)
        outputs = dict(zip((each["name"] for each in told["outputs"]), told["raw_output_contents"], strict=True))
        copied = outputs["y"]
        return outputs["model"][4:].decode(), list(struct.unpack(f"<{len(copied) // 8}d", copied))

    def server_ready(self) -> bool:
        return bool(self._call("ServerReady", {}).get("ready"))

    def index(self, ready: bool = False) -> list[Document]:
        found: list[Document] = self._call("RepositoryIndex", {"ready": ready}).get("models", [])
        return found

    def ready(self, model: str) -> bool:
        return bool(self._call("ModelReady", {"name": model}).get("ready"))

    def metadata(self, model: str) -> Document:
        return self._call("ModelMetadata", {"name": model})

    def load(self, model: str) -> None:
        self._call("RepositoryModelLoad", {"model_name": model})

    def unload(self, model: str) -> None:
        self._call("RepositoryModelUnload", {"model_name": model})

    def close(self) -> None:
        self._channel.close()

    def _call(self, name: str, asked: Document) -> Document:
        try:
            told: Document = self._methods[name](asked, timeout=self._seconds)
        except grpc.RpcError as error:
            raise CallFailed(error.code().name, error.details() or "") from error
        return told


CLIENTS: dict[str, type[Rest] | type[Grpc]] = {"http": Rest, "grpc": Grpc}
