"""The client for programs with an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self

from gateway.bridge.settings import Cast
from gateway.client import requests
from gateway.client.batches import Batched
from gateway.client.errors import ClientError, ConnectError, NotFound, ServerError, Timeout, as_client_error, timed_out
from gateway.client.map import Window, evaluations
from gateway.client.map_arguments import MapArguments
from gateway.client.model_function import AsyncModelFunction, FunctionArguments
from gateway.client.model_server import ModelServer, opened
from gateway.client.outputs import Array, Outputs, as_array, as_outputs
from gateway.client.requests import Wanted
from gateway.client.results import Evaluation, Results
from gateway.client.sending import ClientCalls
from gateway.client.settings import (
    DEFAULT_KIND,
    DEFAULT_LIMITS,
    TIMEOUT,
    UNSET,
    CallLimits,
    Seconds,
    ServerArguments,
    ServerKind,
    Tls,
    Unset,
)
from gateway.client.taking import taking
from gateway.client.tracebacks import brief_async_generator, brief_coroutine, forget_frames
from gateway.core.errors import DecodeError, GatewayError, invalid_output
from gateway.core.frozen import replace
from gateway.core.html_tables import html_table
from gateway.core.operations import CALLS, Operation
from gateway.core.types import Answer, ModelEntry, Request, Response, ServerInfo, Signature


class AsyncClient:
    """A client of one model server, for use in one event loop.

        async with AsyncClient("v2-grpc://127.0.0.1:8001") as client:
            outputs = await client.infer("double", x=numpy.array([1.0, 2.0]))

    `address` is PROTOCOL://HOST:PORT, over TLS PROTOCOL+tls://HOST:PORT, at a unix socket PROTOCOL:///PATH; or any
    address that a backend of the gateway may have, such as https://HOST/PREFIX, with `protocol` beside it. PROTOCOL is
    a wire form: umbridge, v2-rest, v2-grpc, v1-rest, tfs-grpc, grps-rest, grps-grpc, grps-brpc, graphpipe or mip; or a
    form of JSON, `json:FORM`: a ready one such as `json:mlflow`, or any that `kind` describes.

    - `timeout`: seconds that a call may take from its turn on, waiting for a connection included; of a stream, the wait
      for each response. None: any time. A server that is told it has up to half a second more to say why there is no
      answer.
    - `headers`: sent with every request (gRPC: as metadata). `key`: an API key, sent as `Authorization: Bearer KEY`;
      over brpc in the place for credentials. MIP has a place for neither.
    - `tls`: the CA, certificates and names of TLS; it means TLS, as `+tls` in the address does with all defaults.
    - `limits`: the longest reply, the most calls at once, and how many may wait for their turn: any number by default,
      for any time.
    - `kind`: what is known of the server beyond its protocol.

    Nothing is connected before the first call. All calls raise ClientError.

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
        tls: Tls | None = None,
        limits: CallLimits = DEFAULT_LIMITS,
        kind: ServerKind = DEFAULT_KIND,
    ) -> None:
        arguments = ServerArguments(address, protocol, headers, key, tls, limits, kind)
        try:
            self._settings = arguments.checked()
        except ValueError as error:
            forget_frames(error)
            raise
        self.arguments: dict[str, Any] = {**vars(arguments), "timeout": timeout}
        """Those that it was made with, by name."""
        self.address = self._settings.place.address
        """As the transport reads it, without the protocol."""
        self.protocol = self._settings.place.protocol
        """The name of the wire form."""
        models = self._settings.protocol.traits.models
        self.names_models = models.named
        """Whether every request over the wire form names a model."""
        self.fits_to_metadata = models.trusted_metadata or self._settings.kind.trust_metadata
        """Whether numbers without a datatype become those of the model's metadata by themselves."""
        self.timeout = timeout
        self._server: ModelServer | None = None
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @brief_coroutine
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
        """The outputs of one inference, by name.

        Inputs are given by keyword, in the mapping `inputs` (for names that are no keywords or are those of other
        arguments), or by position in the order of the signature. Each is an array, a number, text, or a list of these.
        An input without the batch dimension of the signature (a first -1) is one row, and so are the outputs then.

        An array keeps its datatype, or gets the model's if that holds every value of it; else `cast` says what happens:
        "refuse", "round" (half to even, an error beyond the range), or "saturate" (also clips). Numbers and lists of
        Python have no datatype: each number is checked.

        `outputs` are the names of the outputs wanted, all without it. `parameters` are sent as they are, mappings and
        lists as JSON text: `parameters={"config": {...}}` is the config of UM-Bridge.

        Raises:
            ClientError: InvalidInput, also for inputs that do not fit; NotFound; Unsupported, the model only streams;
                ServerError; Refused; ConnectError; Timeout.
        """
        with self._errors():
            request = requests.inference(
                Operation.INFER, model, arrays, named, inputs, outputs, parameters, version, id
            )
        response = await self.ask(request, cast=cast, timeout=timeout)
        assert isinstance(response, Response)
        return as_outputs(response)

    @brief_async_generator
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
        """The outputs of each response to one request; arguments as those of `infer`. A model that does not stream
        gives one response. `timeout` limits the wait for each response. Closing the generator (`contextlib.aclosing`)
        ends the stream.

        Raises:
            ClientError: as `infer`, also after some responses.
        """
        with self._errors():
            request = requests.inference(
                Operation.STREAM, model, arrays, named, inputs, outputs, parameters, version, id
            )
        async with aclosing(self.ask_stream(request, cast=cast, timeout=timeout)) as responses:
            async for response in responses:
                yield as_outputs(response)

    @taking(MapArguments)
    @brief_coroutine
    async def map(self, arguments: MapArguments) -> Results:
        """The results of a model at many points, in their order.

        - `points`: an array, whose rows are the points, or any iterable, also a generator, from which points are taken
          as they are begun. A point is the first input of a call, as in `infer`, or a mapping of inputs by name. Or a
          mapping of inputs by name, each with a row for each point.
        - `most`: the requests at once; no more than the client's own `max_in_flight`.
        - `batch`: the most points in one request, if the server's metadata say that the model takes batches. How many
          there are is found by time, so that a request takes about 0.1 s. 1: each point has its own request. None: up
          to 4096; 1 if the number of points is not known, as of a generator.
        - `retries`: how often a point is sent again if the server says that it takes it later, after the time that the
          server names; and up to five times if there was no connection. Never if the model may have run.
        - `errors`: "raise" the first that is final: no other point is begun, and those in flight end. Or "return" all:
          the results have them as `errors`.
        - `progress`: show a progress bar with evaluations per second, failures, and tries again. True is tqdm's, in
          terminals and notebooks; else what makes a bar as tqdm does.
        - `resume`: a file with the results of earlier runs of this map, made if there is none. Points whose results it
          has are not sent again (their `tries` is 0), and each new result is written to it.

        The others are as in `infer`. Whatever ends the map early has the `results` so far, also an interrupt (Ctrl-C).

        Raises:
            ClientError: as `infer`.
            ValueError: an argument is wrong, or the file of `resume` is that of another model or of other points.
            OSError: the file cannot be read or written.
            ModuleNotFoundError: a bar is wanted and tqdm is not installed.
        """
        results = Results()
        with results.kept_by_errors(arguments.total):
            with Window(arguments, self._seconds(arguments.timeout)) as window:
                async with aclosing(evaluations(self._calls(arguments.timeout), window)) as ended:
                    async for each in ended:
                        results.add(each)
            window.check()
        return results

    @taking(MapArguments)
    @brief_async_generator
    async def as_completed(self, arguments: MapArguments) -> AsyncGenerator[Evaluation, None]:
        """As `map`, but each evaluation as soon as it ends: `index`, `point`, `outputs`, `error` and `tries`. No point
        is begun while nobody asks for the next one, and none is kept. Closing the generator cancels those in flight.

        Raises:
            ClientError: as `map`, after those in flight have ended.
            ValueError: as `map`.
            ModuleNotFoundError: as `map`.
        """
        with Window(arguments, self._seconds(arguments.timeout)) as window:
            async with aclosing(evaluations(self._calls(arguments.timeout), window)) as ended:
                async for each in ended:
                    if window.shows(each):
                        yield each
        window.check()

    @taking(FunctionArguments)
    def model(self, arguments: FunctionArguments) -> AsyncModelFunction:
        """A model as a function: called with arrays it gives an array, and it has `gradient`, `jacobian` and `hessian`.
        Nothing is asked before it is called.

        `output` is the name of the output, if there are several. `parameters`, `version`, `cast` and `timeout` are
        those of each call, as in `infer`.
        """
        return AsyncModelFunction(self, arguments)

    @brief_coroutine
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
        """The gradient of the output at position `out_wrt` with respect to the input at `in_wrt`, in the direction of
        `sens`, which is as long as that output: `sens` times the Jacobian. It is as long as that input.

        Over UM-Bridge it is an operation; of servers of other protocols the model `MODEL.gradient` is asked. Inputs and
        the other arguments are as those of `infer`.

        Raises:
            ClientError: as `infer`; Unsupported, the model has no gradient.
        """
        tensors = {"sens": sens, "out_wrt": out_wrt, "in_wrt": in_wrt}
        with self._errors():
            request = requests.derivative(
                Operation.GRADIENT, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    @brief_coroutine
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
        """The Jacobian of the output at `out_wrt` with respect to the input at `in_wrt`, times `vec`, which is as long
        as that input. It is as long as that output. The rest is as in `gradient`; the model is `MODEL.apply_jacobian`.

        Raises:
            ClientError: as `gradient`.
        """
        tensors = {"vec": vec, "out_wrt": out_wrt, "in_wrt": in_wrt}
        with self._errors():
            request = requests.derivative(
                Operation.APPLY_JACOBIAN, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    @brief_coroutine
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
        """The Hessian of `sens` times the output at `out_wrt`, with respect to the inputs at `in_wrt1` and `in_wrt2`,
        times `vec`, which is as long as the input at `in_wrt2`. It is as long as the input at `in_wrt1`. The rest is as
        in `gradient`; the model is `MODEL.apply_hessian`.

        Raises:
            ClientError: as `gradient`.
        """
        tensors = {"sens": sens, "vec": vec, "out_wrt": out_wrt, "in_wrt1": in_wrt1, "in_wrt2": in_wrt2}
        with self._errors():
            request = requests.derivative(
                Operation.APPLY_HESSIAN, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    @brief_coroutine
    async def signature(self, model: str, /, *, version: str = "", timeout: Seconds = UNSET) -> Signature:
        """The model's `inputs` and `outputs`, each with name, datatype and shape (-1: any size), its `versions`, and
        the `operations` that it has. Fields that the server does not tell are empty.

        The tensors that grps and GraphPipe servers report are often wrong. They are shown here, but inputs are fitted
        to them only with `trust_metadata`.

        Raises:
            ClientError: NotFound; Unsupported, the protocol has no metadata (MIP); as `infer`.
        """
        signature = await self.ask(Request(Operation.METADATA, model, version), timeout=timeout)
        assert isinstance(signature, Signature)
        return signature

    @brief_coroutine
    async def models(self, *, timeout: Seconds = UNSET) -> list[ModelEntry]:
        """The server's models, each with its name and, where the protocol has them, version, state and the reason for
        the state.

        Raises:
            ClientError: Unsupported, the protocol or the server has no list of models; as `infer`.
        """
        models = await self.ask(Request(Operation.MODELS), timeout=timeout)
        assert isinstance(models, tuple)
        return list(models)

    @brief_coroutine
    async def server(self, *, timeout: Seconds = UNSET) -> ServerInfo:
        """The server's name, version and extensions.

        Raises:
            ClientError: Unsupported, the protocol does not tell them; as `infer`.
        """
        info = await self.ask(Request(Operation.SERVER_METADATA), timeout=timeout)
        assert isinstance(info, ServerInfo)
        return info

    @brief_coroutine
    async def ready(self, model: str = "", /, *, version: str = "", timeout: Seconds = UNSET) -> bool:
        """Whether the server is ready, or a model of it if `model` is given. False also if it cannot be reached or does
        not answer in time: wait for a server by asking again.

        Raises:
            ClientError: Refused, a key is missing or wrong; Unsupported, the protocol cannot tell of a model.
        """
        seconds = self._seconds(timeout)
        try:
            server = await self._connected(seconds)
            if not model:
                async with asyncio.timeout(seconds):
                    return await server.is_ready()
            return bool(await self.ask(Request(Operation.MODEL_READY, model, version), timeout=timeout))
        except (TimeoutError, ConnectError, NotFound, ServerError, Timeout):
            return False

    @brief_coroutine
    async def ask(self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET) -> Answer:
        """The answer to a canonical request (`gateway.core.types`), for programs that have one already.

        Raises:
            ClientError: as `infer`.
        """
        seconds = self._seconds(timeout)
        server = await self._connected(seconds)
        with self._errors(seconds):
            requests.check_model(request.model)
            async with server.turns if request.operation in CALLS else nullcontext():
                if seconds is None:
                    return await server.ask(request, cast)
                deadline = asyncio.get_running_loop().time() + seconds
                async with asyncio.timeout_at(deadline + _grace(seconds)):
                    return await server.ask(replace(request, deadline=deadline), cast)

    @brief_async_generator
    async def ask_stream(
        self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET
    ) -> AsyncGenerator[Response, None]:
        """The responses to a canonical request.

        Raises:
            ClientError: as `stream`.
        """
        seconds = self._seconds(timeout)
        with self._errors():
            requests.check_model(request.model)
        server = await self._connected(seconds)
        async with server.turns, aclosing(server.stream(request, cast)) as responses:
            while True:
                with self._errors(seconds):
                    async with asyncio.timeout(seconds):
                        response = await anext(responses, None)
                if response is None:
                    return
                yield response

    async def close(self) -> None:
        """Close every connection. ClientCalls in flight fail; later ones raise RuntimeError."""
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

    def __reduce__(self) -> tuple[object, ...]:
        """As pickled: a client with the same arguments, which has connections of its own."""
        return partial(type(self), **self.arguments), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"

    def _repr_html_(self) -> str:
        """As notebooks show it. The server is not asked."""
        seconds = "any time" if self.timeout is None else f"{self.timeout:g} s"
        rows = [["wire form", self.protocol], ["address", self.address], ["time limit of a call", seconds]]
        if self._server is not None:
            rows.append(["calls at once", str(self._server.turns.most or "any number")])
        return html_table(["", "closed" if self._is_closed else "open"], rows, "client of a model server")

    def _calls(self, timeout: Seconds) -> ClientCalls:
        """What `map` needs; `timeout` is that of its questions about the model."""
        return ClientCalls(self.infer, self.ask, partial(self._batched, timeout))

    async def _batched(self, timeout: Seconds, model: str, version: str) -> Batched | None:
        """What is known of a model that takes batches; None of others, and where the server does not tell."""
        seconds = self._seconds(timeout)
        try:
            server = await self._connected(seconds)
            async with asyncio.timeout(seconds):
                return await server.batched(model, version)
        except (ClientError, GatewayError, TimeoutError):
            return None  # the first point tells the error

    async def _derivative(self, request: Request, cast: Cast, timeout: Seconds) -> Array:
        response = await self.ask(request, cast=cast, timeout=timeout)
        assert isinstance(response, Response)
        with self._errors():
            if len(response.outputs) != 1:
                raise invalid_output(f"the derivative has {len(response.outputs)} outputs, expected one")
        return as_array(response.outputs[0])

    async def _connected(self, seconds: float | None) -> ModelServer:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError("the client belongs to another event loop: make one for each `asyncio.run`")
        self._loop = loop
        if self._server is None:
            with self._errors(seconds):
                async with asyncio.timeout(seconds), self._opening:
                    if self._server is None and not self._is_closed:
                        self._server = await opened(self._settings)
        if self._is_closed or self._server is None:
            await self.close()
            raise RuntimeError("the client is closed")
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


LONGEST_GRACE = 0.5
"""Seconds."""


def _grace(seconds: float) -> float:
    """The seconds by which the client waits longer than the limit that it tells the server: a gateway answers then, and
    says how long the call waited for a free slot and, if it was never sent, when to send it again."""
    return min(0.25 * seconds, LONGEST_GRACE)
