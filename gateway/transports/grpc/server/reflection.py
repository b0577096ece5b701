"""The gRPC reflection service, which reports the services and their schemas to clients that do not have them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping

from gateway.core.errors import Status
from gateway.core.messages import Message, bytes_of
from gateway.core.protobuf.schema import Protobuf, parse
from gateway.transports.grpc.schema import REFLECTIONS, ServerReflectionRequest, ServerReflectionResponse
from gateway.transports.grpc.server.calls import Method
from gateway.transports.grpc.server.descriptors import Descriptors


class Reflection:
    """Responds to queries about `services`, which `descriptors` describe. v1 and v1alpha differ only in their names."""

    def __init__(self, services: Iterable[str], descriptors: Descriptors) -> None:
        self._services = tuple(services)
        self._descriptors = descriptors
        self._answers: Mapping[str | None, Callable[[Protobuf], Protobuf]] = {
            "file_by_filename": self._file_by_filename,
            "file_containing_symbol": self._file_containing_symbol,
            # The schemas contain no extensions.
            "file_containing_extension": lambda asked: _error(
                Status.NOT_FOUND, f"no extension of {asked.file_containing_extension.containing_type}"
            ),
            "all_extension_numbers_of_type": lambda asked: _error(
                Status.NOT_FOUND, f"no extension of {asked.all_extension_numbers_of_type}"
            ),
            "list_services": self._list_services,
            None: lambda asked: _error(Status.INVALID_ARGUMENT, "the request asks nothing"),
        }

    def methods(self) -> Iterator[Method]:
        """Yield the methods of both versions of the service."""
        for service in REFLECTIONS:
            yield Method(f"/{service}/ServerReflectionInfo", stream=self._serve)

    async def _serve(self, messages: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        async for message in messages:
            response = self.answer(parse(ServerReflectionRequest, message.body))
            reply = Message(parts=(response.SerializeToString(),))
            yield reply
            message.record.end(0, bytes_of(reply))

    def answer(self, asked: Protobuf) -> Protobuf:
        """Return the response to one query."""
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
        return _error(Status.NOT_FOUND, otherwise)
    return ServerReflectionResponse(file_descriptor_response={"file_descriptor_proto": files})


def _error(code: int, text: str) -> Protobuf:
    return ServerReflectionResponse(error_response={"error_code": code, "error_message": text})
