"""gRPC of the grps peers on raw grpcio: `/grps.protos.v1.GrpsService/*` and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tests.peers.grps_messages import decode, encode
from tests.peers.protobuf import Document

SERVICE = "grps.protos.v1.GrpsService"
MIB = 1 << 20
# "Server limits 1 GiB each way"; without so_reuseport off, a taken port binds silently.
OPTIONS = (
    ("grpc.max_receive_message_length", 1024 * MIB),
    ("grpc.max_send_message_length", 1024 * MIB),
    ("grpc.so_reuseport", 0),
)

Unary = Callable[[Document], Document]
Stream = Callable[[Document], Iterator[Document]]


class Server:
    """`address`, and what came: `requests`, as (method, message)."""

    def __init__(self, methods: Mapping[str, Unary], stream: Stream, port: int = 0) -> None:
        self.requests: list[tuple[str, Document]] = []
        self._server: Any = grpc.server(ThreadPoolExecutor(16), options=OPTIONS)
        handlers = {name: self._unary(name, method) for name, method in methods.items()}
        handlers["PredictStreaming"] = self._stream("PredictStreaming", stream)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = int(self._server.add_insecure_port(f"127.0.0.1:{port}"))
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def _unary(self, name: str, method: Unary) -> Any:
        def answer(message: Document, context: Any) -> Document:
            self.requests.append((name, message))
            return method(message)

        return grpc.unary_unary_rpc_method_handler(answer, decode, encode)

    def _stream(self, name: str, method: Stream) -> Any:
        def answer(message: Document, context: Any) -> Iterator[Document]:
            self.requests.append((name, message))
            yield from method(message)

        return grpc.unary_stream_rpc_method_handler(answer, decode, encode)

    def stop(self) -> None:
        self._server.stop(None).wait()
