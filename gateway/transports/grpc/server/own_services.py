"""gRPC's own services, health and reflection, to which the listener itself responds."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from gateway.core.errors import Reason, Status, refusal
from gateway.core.messages import Message, bytes_of
from gateway.core.protobuf.schema import Protobuf, Schema, parse
from gateway.core.transport import Ready
from gateway.transports.grpc.server.calls import Method

DESCRIPTORS = (Path(__file__).parents[1] / "descriptors.binpb").read_bytes()

HEALTH = "grpc.health.v1.Health"
REFLECTIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")

_SCHEMA = Schema(DESCRIPTORS)

HealthCheckRequest = _SCHEMA.message("grpc.health.v1.HealthCheckRequest")
HealthCheckResponse = _SCHEMA.message("grpc.health.v1.HealthCheckResponse")
HealthListResponse = _SCHEMA.message("grpc.health.v1.HealthListResponse")

# v1alpha messages have the same wire format.
ServerReflectionRequest = _SCHEMA.message("grpc.reflection.v1.ServerReflectionRequest")
ServerReflectionResponse = _SCHEMA.message("grpc.reflection.v1.ServerReflectionResponse")


# --- Health ---

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN

_OVERALL = ""
"""The service name that stands for the entire server."""

WATCH_SECONDS = 5.0
"""Number of seconds between two readiness checks for a client that uses Watch.

Frequent checks would be expensive, because a check can query the backends. Clients that need a faster response can call
Check."""


class HealthService:
    """Reports SERVING for each of `services` while `ready` returns True and `ending` is not set.

    All services have the same status, because backends belong to routes rather than services."""

    def __init__(self, services: Iterable[str], ready: Ready, ending: asyncio.Event) -> None:
        self._services = frozenset((_OVERALL, *services))
        self._ready = ready
        self._ending = ending

    def methods(self) -> Iterator[Method]:
        """Yield the methods of the service."""
        yield Method(f"/{HEALTH}/Check", self._check)
        yield Method(f"/{HEALTH}/Watch", stream=self._watch)
        yield Method(f"/{HEALTH}/List", self._list)

    async def _check(self, message: Message) -> Message:
        request = parse(HealthCheckRequest, message.body)
        if request.service not in self._services:
            raise refusal(Reason.PATH_NOT_FOUND, f"no service {request.service[:200]!r} here")
        now = await self._now()
        return _reply(now, message, now.status)

    async def _watch(self, messages: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        """Yield the current status, and each new status after a change, until the listener stops. The request's record
        ends with the first status, because clients watch for hours."""
        async for message in messages:
            is_known = parse(HealthCheckRequest, message.body).service in self._services
            told = None
            while True:
                is_last = self._ending.is_set()
                now = await self._now() if is_known else _UNKNOWN
                if now != told:
                    yield (reply := _reply(now, message, now.status))
                    message.record.end(0, bytes_of(reply))
                if is_last:
                    return
                told = now
                await self._pause()

    async def _list(self, message: Message) -> Message:
        now = await self._now()
        return _reply(HealthListResponse(statuses=dict.fromkeys(self._services, now)), message, now.status)

    async def _now(self) -> Protobuf:
        if self._ending.is_set() or not await self._ready() or self._ending.is_set():
            return _NOT_SERVING
        return _SERVING

    async def _pause(self) -> None:
        """Wait for WATCH_SECONDS, or until the listener stops."""
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._ending.wait()
        except TimeoutError:
            pass


_SERVING = HealthCheckResponse(status=SERVING)
_NOT_SERVING = HealthCheckResponse(status=NOT_SERVING)
_UNKNOWN = HealthCheckResponse(status=SERVICE_UNKNOWN)


_REASONS = {NOT_SERVING: Reason.NOT_READY, SERVICE_UNKNOWN: Reason.PATH_NOT_FOUND}
"""The reasons to record for statuses other than SERVING. The calls themselves succeed."""


def _reply(response: Protobuf, request: Message, status: int) -> Message:
    """Return the reply to `request`. If `status` is not SERVING, add the reason to the record."""
    request.record.because(_REASONS.get(status))
    return Message(parts=(response.SerializeToString(),))


# --- Reflection ---


class Descriptors:
    """The files in several FileDescriptorSets. If two files have the same name or define the same symbol, the first
    file is used."""

    def __init__(self, sets: Iterable[bytes]) -> None:
        self._files: dict[str, Any] = {}
        self._symbols: dict[str, str] = {}
        for data in sets:
            for file in FileDescriptorSet.FromString(data).file:
                self._add(file)

    def by_name(self, name: str) -> tuple[bytes, ...]:
        """Return the serialized file, followed by all files that it imports.

        Return an empty result for an unknown file."""
        names = dict.fromkeys([name] if name in self._files else [])
        pending = list(names)
        while pending:
            new = [each for each in self._files[pending.pop()].dependency if each in self._files and each not in names]
            names |= dict.fromkeys(new)
            pending += new
        return tuple(self._files[each].SerializeToString() for each in names)

    def by_symbol(self, symbol: str) -> tuple[bytes, ...]:
        """Same as `by_name`. `symbol` is a service (`package.Service`), method, message or enum that the file
        defines."""
        return self.by_name(self._symbols.get(symbol, ""))

    def _add(self, file: FileDescriptorProto) -> None:
        if file.name not in self._files:
            self._files[file.name] = file
            for symbol in _symbols(file):
                self._symbols.setdefault(symbol, file.name)


def _symbols(file: FileDescriptorProto) -> Iterator[str]:
    prefix = f"{file.package}." if file.package else ""
    for service in file.service:
        yield prefix + service.name
        yield from (f"{prefix}{service.name}.{method.name}" for method in service.method)
    yield from (prefix + enum.name for enum in file.enum_type)
    for message in file.message_type:
        yield from _nested(prefix, message)


def _nested(prefix: str, message: Any) -> Iterator[str]:
    name = prefix + message.name
    yield name
    yield from (f"{name}.{enum.name}" for enum in message.enum_type)
    for inner in message.nested_type:
        yield from _nested(f"{name}.", inner)


class Reflection:
    """Responds to queries about `services`, which `descriptors` describe. The versions v1 and v1alpha differ only in
    their names."""

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
