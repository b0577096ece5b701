"""The client for programs with an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from enum import Enum
from types import TracebackType
from typing import Self, TypeAlias

from gateway.bridge.settings import Cast
from gateway.client import requests
from gateway.client.errors import ConnectError, NotFound, ServerError, Timeout, as_client_error, timed_out
from gateway.client.model_server import ModelServer
from gateway.client.outputs import Array, Outputs, as_array, as_outputs
from gateway.client.requests import Wanted
from gateway.client.settings import MAX_MESSAGE, checked
from gateway.core.errors import DecodeError, GatewayError, invalid_output
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Answer, ModelEntry, Request, Response, ServerInfo, Signature

TIMEOUT = 60.0
"""Seconds that a call may take by default."""


class Unset(Enum):
    """The value of an argument that is not given, where None means something."""

    UNSET = "unset"


UNSET = Unset.UNSET
Seconds: TypeAlias = float | Unset | None
"""The time limit of one call: in seconds, None for no limit; UNSET takes the client's."""


class AsyncClient:
    """A client of one model server, for use in one event loop; arguments, methods and errors are those of `Client`.

        async with AsyncClient("v2-grpc://127.0.0.1:8001") as client:
            outputs = await client.infer("double", x=numpy.array([1.0, 2.0]))

    Raises:
        ValueError: an argument is wrong.
    """

    def __init__(
        self,
        address: str,
        *,
        protocol: str | None = None,
        timeout: float | None = TIMEOUT,
        headers: Mapping[str, str] | None = None,
        key: str | None = None,
        tls: bool = False,
        ca: str | None = None,
        certificate: str | None = None,
        certificate_key: str | None = None,
        server_name: str | None = None,
        verify: bool = True,
        max_message: int = MAX_MESSAGE,
        max_in_flight: int | None = None,
        flavor: str = "",
        batch: str = "",
        trust_metadata: bool = False,
    ) -> None:
        self._settings = checked(
            address,
            protocol,
            headers,
            key,
            tls=tls,
            ca=ca,
            certificate=certificate,
            certificate_key=certificate_key,
            verify=verify,
            server_name=server_name,
            max_message=max_message,
            max_in_flight=max_in_flight,
            flavor=flavor,
            batch=batch,
            trust_metadata=trust_metadata,
        )
        self.address = self._settings.place.address
        """As the transport reads it, without the protocol."""
        self.protocol = self._settings.place.protocol
        """The name of the wire form."""
        self.timeout = timeout
        self._server: ModelServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    async def infer(
        self,
        model: str,
        /,
        *arrays: object,
        inputs: Mapping[str, object] | None = None,
        outputs: Wanted = None,
        parameters: Mapping[str, object] | None = None,
        version: str = "",
        id: str | None = None,
        cast: Cast = "refuse",
        timeout: Seconds = UNSET,
        **named: object,
    ) -> Outputs:
        """As `Client.infer`."""
        with self._errors():
            request = requests.inference(
                Operation.INFER, model, arrays, named, inputs, outputs, parameters, version, id
            )
        response = await self.ask(request, cast=cast, timeout=timeout)
        assert isinstance(response, Response)
        return as_outputs(response)

    async def stream(
        self,
        model: str,
        /,
        *arrays: object,
        inputs: Mapping[str, object] | None = None,
        outputs: Wanted = None,
        parameters: Mapping[str, object] | None = None,
        version: str = "",
        id: str | None = None,
        cast: Cast = "refuse",
        timeout: Seconds = UNSET,
        **named: object,
    ) -> AsyncGenerator[Outputs, None]:
        """As `Client.stream`, with an asynchronous generator, to be closed by `contextlib.aclosing`."""
        with self._errors():
            request = requests.inference(
                Operation.STREAM, model, arrays, named, inputs, outputs, parameters, version, id
            )
        async with aclosing(self.ask_stream(request, cast=cast, timeout=timeout)) as responses:
            async for response in responses:
                yield as_outputs(response)

    async def gradient(
        self,
        model: str,
        /,
        *arrays: object,
        sens: object,
        out_wrt: int = 0,
        in_wrt: int = 0,
        inputs: Mapping[str, object] | None = None,
        parameters: Mapping[str, object] | None = None,
        version: str = "",
        cast: Cast = "refuse",
        timeout: Seconds = UNSET,
        **named: object,
    ) -> Array:
        """As `Client.gradient`."""
        tensors = {"sens": sens, "out_wrt": out_wrt, "in_wrt": in_wrt}
        with self._errors():
            request = requests.derivative(
                Operation.GRADIENT, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    async def apply_jacobian(
        self,
        model: str,
        /,
        *arrays: object,
        vec: object,
        out_wrt: int = 0,
        in_wrt: int = 0,
        inputs: Mapping[str, object] | None = None,
        parameters: Mapping[str, object] | None = None,
        version: str = "",
        cast: Cast = "refuse",
        timeout: Seconds = UNSET,
        **named: object,
    ) -> Array:
        """As `Client.apply_jacobian`."""
        tensors = {"vec": vec, "out_wrt": out_wrt, "in_wrt": in_wrt}
        with self._errors():
            request = requests.derivative(
                Operation.APPLY_JACOBIAN, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    async def apply_hessian(
        self,
        model: str,
        /,
        *arrays: object,
        sens: object,
        vec: object,
        out_wrt: int = 0,
        in_wrt1: int = 0,
        in_wrt2: int = 0,
        inputs: Mapping[str, object] | None = None,
        parameters: Mapping[str, object] | None = None,
        version: str = "",
        cast: Cast = "refuse",
        timeout: Seconds = UNSET,
        **named: object,
    ) -> Array:
        """As `Client.apply_hessian`."""
        tensors = {"sens": sens, "vec": vec, "out_wrt": out_wrt, "in_wrt1": in_wrt1, "in_wrt2": in_wrt2}
        with self._errors():
            request = requests.derivative(
                Operation.APPLY_HESSIAN, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    async def signature(self, model: str, /, *, version: str = "", timeout: Seconds = UNSET) -> Signature:
        """As `Client.signature`."""
        signature = await self.ask(Request(Operation.METADATA, model, version), timeout=timeout)
        assert isinstance(signature, Signature)
        return signature

    async def models(self, *, timeout: Seconds = UNSET) -> list[ModelEntry]:
        """As `Client.models`."""
        models = await self.ask(Request(Operation.MODELS), timeout=timeout)
        assert isinstance(models, tuple)
        return list(models)

    async def server(self, *, timeout: Seconds = UNSET) -> ServerInfo:
        """As `Client.server`."""
        info = await self.ask(Request(Operation.SERVER_METADATA), timeout=timeout)
        assert isinstance(info, ServerInfo)
        return info

    async def ready(self, model: str = "", /, *, version: str = "", timeout: Seconds = UNSET) -> bool:
        """As `Client.ready`."""
        server = self._connected()
        try:
            if not model:
                async with asyncio.timeout(self._seconds(timeout)):
                    return await server.is_ready()
            return bool(await self.ask(Request(Operation.MODEL_READY, model, version), timeout=timeout))
        except (TimeoutError, ConnectError, NotFound, ServerError, Timeout):
            return False

    async def ask(self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET) -> Answer:
        """As `Client.ask`."""
        server, seconds = self._connected(), self._seconds(timeout)
        with self._errors(seconds):
            if seconds is None:
                return await server.ask(request, cast)
            deadline = asyncio.get_running_loop().time() + seconds
            async with asyncio.timeout_at(deadline):
                return await server.ask(replace(request, deadline=deadline), cast)

    async def ask_stream(
        self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET
    ) -> AsyncGenerator[Response, None]:
        """As `Client.ask_stream`."""
        server, seconds = self._connected(), self._seconds(timeout)
        async with aclosing(server.stream(request, cast)) as responses:
            while True:
                with self._errors(seconds):
                    async with asyncio.timeout(seconds):
                        response = await anext(responses, None)
                if response is None:
                    return
                yield response

    async def close(self) -> None:
        """As `Client.close`."""
        self._is_closed = True
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"

    async def _derivative(self, request: Request, cast: Cast, timeout: Seconds) -> Array:
        response = await self.ask(request, cast=cast, timeout=timeout)
        assert isinstance(response, Response)
        with self._errors():
            if len(response.outputs) != 1:
                raise invalid_output(f"the derivative has {len(response.outputs)} outputs, expected one")
        return as_array(response.outputs[0])

    def _connected(self) -> ModelServer:
        if self._is_closed:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._server is None:
            self._server, self._loop = self._settings.connected(), loop
        elif loop is not self._loop:
            raise RuntimeError("the client belongs to another event loop: make one for each `asyncio.run`")
        return self._server

    def _seconds(self, timeout: Seconds) -> float | None:
        return self.timeout if isinstance(timeout, Unset) else timeout

    @contextmanager
    def _errors(self, seconds: float | None = None) -> Iterator[None]:
        """Raises what the parts of the gateway raise as a ClientError."""
        try:
            yield
        except TimeoutError as error:
            raise timed_out(seconds or 0.0, self.address) from error
        except (DecodeError, GatewayError, ValueError) as error:
            raise as_client_error(error, self.address) from error
