"""gRPC's own reflection service: what is served, and its schemas, for clients that were not built with them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc

from gateway.core.protobuf import Protobuf
from gateway.transports.grpc.descriptors import Descriptors
from gateway.transports.grpc.draining import Draining
from gateway.transports.grpc.schema import REFLECTIONS, ServerReflectionRequest, ServerReflectionResponse

_NOT_FOUND, _ = grpc.StatusCode.NOT_FOUND.value
_INVALID_ARGUMENT, _ = grpc.StatusCode.INVALID_ARGUMENT.value


class Reflection:
    """Answers for `services`, which `descriptors` describe; both versions of it, which differ in name only."""

    def __init__(self, services: Iterable[str], descriptors: Descriptors, draining: Draining) -> None:
        self._services = tuple(services)
        self._descriptors = descriptors
        self._draining = draining
        self._answers: Mapping[str | None, Callable[[Protobuf], Protobuf]] = {
            "file_by_filename": self._file_by_filename,
            "file_containing_symbol": self._file_containing_symbol,
            # No schema here has extensions.
            "file_containing_extension": lambda asked: _error(
                _NOT_FOUND, f"no extension of {asked.file_containing_extension.containing_type}"
            ),
            "all_extension_numbers_of_type": lambda asked: _error(
                _NOT_FOUND, f"no extension of {asked.all_extension_numbers_of_type}"
            ),
            "list_services": self._list_services,
            None: lambda asked: _error(_INVALID_ARGUMENT, "the request asks nothing"),
        }

    def handlers(self) -> Mapping[str, Any]:
        """What serves each method."""
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        return {f"/{service}/ServerReflectionInfo": handler for service in REFLECTIONS}

    async def _serve(self, _requests: object, context: Any) -> None:
        while (data := await self._draining.read(context)) is not None:
            await context.write(self.answer(ServerReflectionRequest.FromString(data)).SerializeToString())

    def answer(self, asked: Protobuf) -> Protobuf:
        """The response to one request."""
        response = self._answers[asked.WhichOneof("message_request")](asked)
        response.valid_host = asked.host
        response.original_request.CopyFrom(asked)
        return response

    def _file_by_filename(self, asked: Protobuf) -> Protobuf:
        return _files(self._descriptors.by_name(asked.file_by_filename), f"no file {asked.file_by_filename}")

    def _file_containing_symbol(self, asked: Protobuf) -> Protobuf:
        symbol = asked.file_containing_symbol
        return _files(self._descriptors.by_symbol(symbol), f"no symbol {symbol}")

    def _list_services(self, asked: Protobuf) -> Protobuf:
        services = [{"name": name} for name in self._services]
        return ServerReflectionResponse(list_services_response={"service": services})


def _files(files: tuple[bytes, ...], otherwise: str) -> Protobuf:
    if not files:
        return _error(_NOT_FOUND, otherwise)
    return ServerReflectionResponse(file_descriptor_response={"file_descriptor_proto": files})


def _error(code: int, text: str) -> Protobuf:
    return ServerReflectionResponse(error_response={"error_code": code, "error_message": text})
