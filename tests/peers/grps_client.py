"""Clients of grps in the manner of upstream's samples: `requests` over HTTP, plain grpcio; independent of the gateway.

Content types are sent exactly as the servers want them, without parameters; streams are read by the nesting of JSON
and not by chunks, which is the only thing that ends a message.

    told = Rest("127.0.0.1:8080").predict({"str_data": "x"}, model="echo-1.0.0")
    assert told.document["status"]["status"] == "SUCCESS"
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlencode

import grpc

from tests.peers.grps_messages import decode, encode
from tests.peers.grps_rpc import OPTIONS, SERVICE
from tests.peers.protobuf import Document

TIMEOUT = 10.0
JSON, BYTES = "application/json", "application/octet-stream"
# What the package `requests` sends with everything.
HEADERS = {
    "User-Agent": "python-requests/2.32.3",
    "Accept-Encoding": "gzip, deflate",
    "Accept": "*/*",
    "Connection": "keep-alive",
}


@dataclass(frozen=True)
class Told:
    status: int
    kind: str | None
    body: bytes
    headers: Mapping[str, str]

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Rest:
    def __init__(self, address: str, root: str = "/grps/v1") -> None:
        self._address = address
        self._root = root

    def predict(self, message: Mapping[str, Any], **query: str) -> Told:
        return self.ask("POST", "/infer/predict", json.dumps(message).encode(), JSON, **query)

    def predict_bytes(self, body: bytes, **query: str) -> Told:
        return self.ask("POST", "/infer/predict", body, BYTES, **query)

    def health(self, what: str) -> Told:
        """`online`, `offline`, `live` or `ready`."""
        return self.ask("GET", f"/health/{what}")

    def server_metadata(self) -> Told:
        return self.ask("GET", "/metadata/server")

    def model_metadata(self, name: str) -> Told:
        return self.ask("POST", "/metadata/model", json.dumps({"str_data": name}).encode(), JSON)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str | None = None, **query: str) -> Told:
        with self._reply(method, path, body, kind, query) as reply:
            headers = {name.lower(): value for name, value in reply.getheaders()}
            return Told(reply.status, reply.getheader("Content-Type"), reply.read(), headers)

    def stream(self, message: Mapping[str, Any], **query: str) -> Generator[Document]:
        """The messages as they come. Raises ValueError for a status other than 200 and a broken end."""
        body = json.dumps(message).encode()
        with self._reply("POST", "/infer/predict", body, JSON, query | {"streaming": "true"}) as reply:
            if reply.status != 200:
                raise ValueError(f"{reply.status}: {reply.read()!r}")
            yield from concatenated(pieces(reply))

    def stream_bytes(self, message: bytes, **query: str) -> Iterator[bytes]:
        """What each read gives, chunk by chunk where they come apart."""
        with self._reply("POST", "/infer/predict", message, BYTES, query | {"streaming": "true"}) as reply:
            yield from pieces(reply)

    @contextmanager
    def _reply(
        self, method: str, path: str, body: bytes | None, kind: str | None, query: Mapping[str, str]
    ) -> Iterator[HTTPResponse]:
        connection = HTTPConnection(self._address, timeout=TIMEOUT)
        # `return_ndarray="true"` in Python is `return-ndarray=true` in the query.
        asked = urlencode({name.replace("_", "-"): value for name, value in query.items()})
        target = f"{self._root}{path}" + (f"?{asked}" if asked else "")
        try:
            connection.request(method, target, body, HEADERS | ({"Content-Type": kind} if kind else {}))
            with connection.getresponse() as reply:
                yield reply
        finally:
            connection.close()


def pieces(reply: HTTPResponse) -> Iterator[bytes]:
    while piece := reply.read1(1 << 16):
        yield piece


def concatenated(parts: Iterator[bytes]) -> Iterator[Document]:
    """JSON objects one behind the other, wherever they are cut. Raises ValueError if the last is incomplete."""
    reader, text, utf8 = json.JSONDecoder(), "", codecs.getincrementaldecoder("utf-8")()
    for part in parts:
        text += utf8.decode(part)
        while text := text.lstrip():
            try:
                document, end = reader.raw_decode(text)
            except ValueError:
                break
            yield document
            text = text[end:]
    if text.strip():
        raise ValueError(f"the stream ends with {text!r}")


class Grpc:
    def __init__(self, address: str, service: str = SERVICE) -> None:
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._service = service

    def __enter__(self) -> Grpc:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def call(self, method: str, message: Document | None = None, timeout: float = TIMEOUT) -> Document:
        """Raises grpc.RpcError; what grps calls an error is a message."""
        answer: Document = decode(self.call_bytes(method, encode(message or {}), timeout))
        return answer

    def call_bytes(self, method: str, message: bytes, timeout: float = TIMEOUT) -> bytes:
        answer: bytes = self._channel.unary_unary(f"/{self._service}/{method}")(message, timeout=timeout)
        return answer

    def stream(self, message: Document, timeout: float = TIMEOUT) -> Generator[Document]:
        """Closing the iterator cancels the call."""
        call = self._channel.unary_stream(f"/{self._service}/PredictStreaming")(encode(message), timeout=timeout)
        try:
            for each in call:
                yield decode(each)
        finally:
            call.cancel()
