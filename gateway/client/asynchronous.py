"""The client for programs that run an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Self

from gateway.bridge.settings import Cast
from gateway.client import requests
from gateway.client.batches import Batched
from gateway.client.decorators import brief_async_generator, brief_coroutine, forget_frames, taking
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
from gateway.core.errors import DecodeError, GatewayError, invalid_output
from gateway.core.frozen import replace
from gateway.core.html_tables import html_table
from gateway.core.models import ModelEntry, ServerInfo, Signature
from gateway.core.operations import CALLS, Operation
from gateway.core.requests import Answer, Request, Response


class AsyncClient:
    """A client of one model server, for use in one event loop.

        async with AsyncClient("v2-grpc://127.0.0.1:8001") as client:
            outputs = await client.infer("double", x=numpy.array([1.0, 2.0]))

    `address` is PROTOCOL://HOST:PORT, PROTOCOL+tls://HOST:PORT for TLS, or PROTOCOL:///PATH for a unix socket.
    Alternatively, `address` is any address that a gateway backend accepts, such as https://HOST/PREFIX; the argument
    `protocol` is then required. PROTOCOL is one of umbridge, v2-rest, v2-grpc, v1-rest, tfs-grpc, grps-rest, grps-grpc,
    grps-brpc, graphpipe and mip, or a JSON form (`json:FORM`): a built-in form such as `json:mlflow`, or a form that
    `kind` describes.

    - `timeout`: Maximum duration of a call in seconds, including the wait for a connection but not the wait for the
      call's turn. For a stream, the maximum wait for each response. None: no limit. If the client sends this limit to
      the server, the client waits up to half a second longer, to give the server time to explain a timeout.
    - `headers`: Headers to send with every request (gRPC: metadata). `key`: An API key, which the client sends as
      `Authorization: Bearer KEY`, or in brpc's credentials field. MIP supports neither `headers` nor `key`.
    - `tls`: The CA, certificates and names for TLS. Setting `tls` enables TLS. `+tls` in the address enables TLS with
      the default settings.
    - `limits`: Maximum size of a response, maximum number of parallel calls, and maximum number of calls that wait for
      their turn. By default, the number of waiting calls and their waiting time are unlimited.
    - `kind`: Facts about the server in addition to its protocol.

    The client connects on the first call. A call that fails raises a ClientError.

    Raises:
        ValueError: an argument is invalid.
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
        """The constructor's arguments, by name."""
        self.address = self._settings.place.address
        """The address in the format of the transport, without the protocol."""
        self.protocol = self._settings.place.protocol
        """The name of the protocol."""
        models = self._settings.protocol.traits.models
        self.names_models = models.named
        """True if every request of the protocol names a model."""
        self.fits_to_metadata = models.trusted_metadata or self._settings.kind.trust_metadata
        """True if, by default, numbers without a datatype get the datatype from the model's metadata."""
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
        """Run one inference and return the outputs by name.

        Pass inputs as keywords, by position in the order of the signature, or in the mapping `inputs`. The mapping also
        accepts names that are not valid keywords or that equal an argument's name. Each input is an array, a number,
        text, or a list of these. If an input lacks the signature's batch dimension (a leading -1), the client sends the
        input as one row, and also removes the batch dimension from the outputs.

        If an array's datatype differs from the model's, the client converts the array if the model's datatype can
        represent every value of the array's datatype. Otherwise, `cast` selects the behavior: "refuse", "round" (half
        to even; out-of-range values are an error), or "saturate" (round and clip). Python numbers and lists have no
        datatype, so the client checks each number.

        `outputs` contains the names of the requested outputs. By default, the client requests all outputs. The client
        sends `parameters` unchanged, except that it encodes mappings and lists as JSON text. For example,
        `parameters={"config": {...}}` is UM-Bridge's config.

        Raises:
            ClientError: InvalidInput, also for inputs that do not match the model; NotFound; Unsupported if the model
                only streams; ServerError; Refused; ConnectError; Timeout.
        """
        with self._errors():
            request = requests.inference(
                operation=Operation.INFER,
                model=model,
                arrays=arrays,
                named=named,
                inputs=inputs,
                outputs=outputs,
                parameters=parameters,
                version=version,
                id=id,
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
        """Yield the outputs of each response to one request. The arguments are the same as in `infer`. A model that
        does not stream returns one response. `timeout` limits the wait for each response. Closing the generator
        (`contextlib.aclosing`) ends the stream.

        Raises:
            ClientError: in the same cases as `infer`, possibly after some responses.
        """
        with self._errors():
            request = requests.inference(
                operation=Operation.STREAM,
                model=model,
                arrays=arrays,
                named=named,
                inputs=inputs,
                outputs=outputs,
                parameters=parameters,
                version=version,
                id=id,
            )
        async with aclosing(self.ask_stream(request, cast=cast, timeout=timeout)) as responses:
            async for response in responses:
                yield as_outputs(response)

    @taking(MapArguments)
    @brief_coroutine
    async def map(self, arguments: MapArguments) -> Results:
        """Evaluate a model at many points and return the results in the order of the points.

        - `points`: An array with one point per row, or any iterable, including a generator. The client takes a point
          from a generator only when it sends that point. A point is the value of the model's first input, as in
          `infer`, or a mapping from input names to values. Alternatively, `points` is a mapping from input names to
          arrays with one row per point.
        - `most`: Maximum number of parallel requests, at most the client's own `max_in_flight`.
        - `batch`: Maximum number of points in one request. A number above 1 declares that each output row depends only
          on the corresponding input row; all shapes in the model's metadata must then have a leading -1. The map
          measures how many points take about 0.1 s, and uses that number if it is below the maximum. 1 means a separate
          request for each point. None means up to 4096 if the server declares a `max_batch_size`, otherwise 1. For a
          generator, None always means 1.
        - `retries`: Maximum number of times that the client retries a point when the server requests a later attempt.
          Before each attempt, the client waits for the time that the server specifies. If the connection fails, the
          client retries the point up to five times. If a point might have run, the client retries it only if it was in
          a failed batch.
        - `errors`: "raise" starts no more points after the first final error, waits for the points in flight, and then
          raises the error. "return" stores all errors in the `errors` of the results.
        - `progress`: Show a progress bar with evaluations per second, failures, and repeated attempts. True selects a
          tqdm bar, in terminals and notebooks. Alternatively, pass a function that takes tqdm's arguments and returns a
          bar.
        - `resume`: A file with the results of earlier runs of this map, created if it does not exist. The client skips
          points that have a result in the file (their `tries` is 0), and writes each new result to the file.

        The other arguments are the same as in `infer`. An exception that ends the map early, including an interrupt
        (Ctrl-C), has an attribute `results` with the results so far.

        Raises:
            ClientError: in the same cases as `infer`.
            ValueError: an argument is invalid, or the `resume` file belongs to another model or to other points.
            OSError: the client cannot read or write the file.
            ModuleNotFoundError: a progress bar was requested and tqdm is not installed.
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
        """Like `map`, but yield each evaluation as it completes.

        An evaluation's attributes are `index`, `point`, `outputs`, `error` and `tries`. The client starts evaluating
        new points only while the caller waits for the next evaluation, and does not keep evaluations in memory after
        yielding them. Closing the generator cancels the points in flight.

        Raises:
            ClientError: in the same cases as `map`, after the points in flight have ended.
            ValueError: in the same cases as `map`.
            OSError: in the same cases as `map`.
            ModuleNotFoundError: in the same cases as `map`.
        """
        with Window(arguments, self._seconds(arguments.timeout)) as window:
            async with aclosing(evaluations(self._calls(arguments.timeout), window)) as ended:
                async for each in ended:
                    if window.shows(each):
                        yield each
        window.check()

    @taking(FunctionArguments)
    def model(self, arguments: FunctionArguments) -> AsyncModelFunction:
        """Return the model as a function that takes arrays and returns an array.

        The function has the methods `gradient`, `jacobian` and `hessian`. The client sends nothing to the server before
        the first call.

        `output` is the name of the output; required if the model has several outputs. `parameters`, `version`, `cast`
        and `timeout` apply to every call, as in `infer`."""
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
        """Return the gradient of the output at position `out_wrt` with respect to the input at position `in_wrt`,
        computed as `sens` times the Jacobian. `sens` is as long as the output, and the gradient is as long as the
        input.

        In UM-Bridge, the gradient is an operation of the protocol. For other protocols, the client calls the model
        `MODEL.gradient`. The inputs and the other arguments are the same as in `infer`.

        Raises:
            ClientError: in the same cases as `infer`; Unsupported if the model has no gradient.
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
        """Return the Jacobian of the output at `out_wrt` with respect to the input at `in_wrt`, times `vec`. `vec` is
        as long as the input, and the result is as long as the output. The other arguments are the same as in
        `gradient`. For protocols other than UM-Bridge, the client sends the request to the model
        `MODEL.apply_jacobian`.

        Raises:
            ClientError: in the same cases as `gradient`.
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
        """Return the Hessian of `sens` times the output at `out_wrt`, with respect to the inputs at `in_wrt1` and
        `in_wrt2`, times `vec`. `vec` is as long as the input at `in_wrt2`, and the result is as long as the input at
        `in_wrt1`. The other arguments are the same as in `gradient`. For protocols other than UM-Bridge, the client
        sends the request to the model `MODEL.apply_hessian`.

        Raises:
            ClientError: in the same cases as `gradient`.
        """
        tensors = {"sens": sens, "vec": vec, "out_wrt": out_wrt, "in_wrt1": in_wrt1, "in_wrt2": in_wrt2}
        with self._errors():
            request = requests.derivative(
                Operation.APPLY_HESSIAN, model, arrays, named, inputs, tensors, parameters, version
            )
        return await self._derivative(request, cast, timeout)

    @brief_coroutine
    async def signature(self, model: str, /, *, version: str = "", timeout: Seconds = UNSET) -> Signature:
        """Return the model's `inputs` and `outputs` (name, datatype and shape of each tensor, where -1 means any size),
        its `versions`, and its `operations`. Fields that the server does not report are empty.

        The tensors that grps and GraphPipe servers report are often wrong. This method returns those tensors, but the
        client adapts inputs to them only if `trust_metadata` is set.

        Raises:
            ClientError: in the same cases as `infer`; Unsupported if the protocol has no metadata (MIP).
        """
        signature = await self.ask(Request(Operation.METADATA, model, version), timeout=timeout)
        assert isinstance(signature, Signature)
        return signature

    @brief_coroutine
    async def models(self, *, timeout: Seconds = UNSET) -> list[ModelEntry]:
        """Return the server's models. Each entry contains the model's name and, if the protocol reports them, its
        version, its state and the reason for the state.

        Raises:
            ClientError: in the same cases as `infer`; Unsupported if the protocol or the server cannot list models.
        """
        models = await self.ask(Request(Operation.MODELS), timeout=timeout)
        assert isinstance(models, tuple)
        return list(models)

    @brief_coroutine
    async def server(self, *, timeout: Seconds = UNSET) -> ServerInfo:
        """Return the server's name, version and extensions.

        Raises:
            ClientError: in the same cases as `infer`; Unsupported if the protocol does not report them.
        """
        info = await self.ask(Request(Operation.SERVER_METADATA), timeout=timeout)
        assert isinstance(info, ServerInfo)
        return info

    @brief_coroutine
    async def ready(self, model: str = "", /, *, version: str = "", timeout: Seconds = UNSET) -> bool:
        """Return True if the server is ready.

        If `model` is set, return True only if the server is ready for calls to this model. The result is False if the
        server is unreachable or does not respond in time. To wait for a server, call `ready` repeatedly.

        Raises:
            ClientError: Refused for a missing or invalid key; Unsupported if the protocol does not report whether a
                model is ready.
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
        """Send a canonical request and return the response, for programs that use the types in `core.requests`.

        Raises:
            ClientError: in the same cases as `infer`.
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
        """Yield the responses to a canonical request.

        Raises:
            ClientError: in the same cases as `stream`.
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
        """Close every connection. Calls in flight fail; later calls raise RuntimeError."""
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
        """Return the pickled form: a client with the same arguments and its own connections."""
        return partial(type(self), **self.arguments), ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show. Sends nothing to the server."""
        seconds = "any time" if self.timeout is None else f"{self.timeout:g} s"
        rows = [["protocol", self.protocol], ["address", self.address], ["time limit of a call", seconds]]
        if self._server is not None:
            rows.append(["calls at once", str(self._server.turns.most or "any number")])
        return html_table(["", "closed" if self._is_closed else "open"], rows, "model client")

    def _calls(self, timeout: Seconds) -> ClientCalls:
        """Return the functions that `map` calls; `timeout` limits their metadata requests."""
        return ClientCalls(self.infer, self.ask, partial(self._batched, timeout))

    async def _batched(self, timeout: Seconds, model: str, version: str, are_independent: bool) -> Batched | None:
        """Return how a model takes batches, like `ModelServer.batched`, but return None if the server does not
        respond."""
        seconds = self._seconds(timeout)
        try:
            server = await self._connected(seconds)
            async with asyncio.timeout(seconds):
                return await server.batched(model, version, are_independent=are_independent)
        except (ClientError, GatewayError, TimeoutError):
            return None  # the request for the first point reports the error

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
            raise RuntimeError("the client has been closed; create a new one")
        return self._server

    def _seconds(self, timeout: Seconds) -> float | None:
        return self.timeout if isinstance(timeout, Unset) else timeout

    @contextmanager
    def _errors(self, seconds: float | None = None) -> Iterator[None]:
        """Raise errors from gateway modules as ClientError."""
        try:
            yield
        except TimeoutError as error:
            raise timed_out(seconds or 0.0, self.address) from error
        except (DecodeError, GatewayError, ValueError) as error:
            raise as_client_error(error, self.address) from error


LONGEST_GRACE = 0.5
"""Maximum result of `_grace`, in seconds."""


def _grace(seconds: float) -> float:
    """Return how many seconds the client waits beyond the time limit that it sends to the server.

    During these seconds, a gateway can send its timeout error, which states how long the call waited for a free slot.
    If the gateway never sent the call to a model server, the error also states when to retry."""
    return min(0.25 * seconds, LONGEST_GRACE)
