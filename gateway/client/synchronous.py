"""The client for programs without an event loop, and for notebooks, where one runs already."""

import weakref
from collections.abc import AsyncGenerator, Generator, Mapping
from types import TracebackType
from typing import Self, TypeVar

from gateway.bridge.settings import Cast
from gateway.client.asynchronous import TIMEOUT, UNSET, AsyncClient, Seconds
from gateway.client.loop_thread import LoopThread
from gateway.client.outputs import Array, Outputs
from gateway.client.requests import Wanted
from gateway.client.settings import MAX_MESSAGE
from gateway.core.types import Answer, ModelEntry, Request, Response, ServerInfo, Signature

T = TypeVar("T")


class Client:
    """A client of one model server, for any number of threads, inside and outside of running event loops.

        with Client("v2-grpc://127.0.0.1:8001") as client:
            outputs = client.infer("double", x=numpy.array([1.0, 2.0]))

    `address` is PROTOCOL://HOST:PORT, over TLS PROTOCOL+tls://HOST:PORT, at a unix socket PROTOCOL:///PATH; or any
    address that a backend of the gateway may have, such as https://HOST/PREFIX, with `protocol` beside it. PROTOCOL is
    a wire form: umbridge, v2-rest, v2-grpc, v1-rest, grps-rest, grps-grpc, grps-brpc, graphpipe or mip.

    - `timeout`: seconds that a call may take, waiting for a connection included; of a stream, the wait for each
      response. None: any time.
    - `headers`: sent with every request (gRPC: as metadata). `key`: an API key, sent as `Authorization: Bearer KEY`;
      over brpc in the place for credentials. MIP has a place for neither.
    - `ca`, `certificate`, `certificate_key`: PEM files: the CA that signed the server's certificate (without it those
      of the system), and the client's own certificate. `server_name`: the name in the server's certificate if it is
      not the address's host; `verify=False` accepts any certificate. Each of these, and `tls=True`, means TLS.
    - `max_message`: the longest reply in bytes. `max_in_flight`: calls at once, further ones wait; by default 1 for
      UM-Bridge and MIP, whose servers take no more, and any number (0) for others.
    - `flavor`, `batch`, `trust_metadata`: as the keys of a backend in the gateway's configuration.

    Nothing is connected before the first call. All calls raise ClientError. `close` ends the connections and the thread
    that they live in; so does the end of a `with` block, and of the client's life.

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
        self._client = AsyncClient(
            address,
            protocol=protocol,
            timeout=timeout,
            headers=headers,
            key=key,
            tls=tls,
            ca=ca,
            certificate=certificate,
            certificate_key=certificate_key,
            server_name=server_name,
            verify=verify,
            max_message=max_message,
            max_in_flight=max_in_flight,
            flavor=flavor,
            batch=batch,
            trust_metadata=trust_metadata,
        )
        self.address = self._client.address
        """As the transport reads it, without the protocol."""
        self.protocol = self._client.protocol
        """The name of the wire form."""
        self._thread = LoopThread(f"client of {self.address}", self._client.close)
        weakref.finalize(self, self._thread.stop, wait=False)

    def infer(
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
        return self._thread.run(
            self._client.infer(
                model,
                *arrays,
                inputs=inputs,
                outputs=outputs,
                parameters=parameters,
                version=version,
                id=id,
                cast=cast,
                timeout=timeout,
                **named,
            )
        )

    def stream(
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
    ) -> Generator[Outputs, None, None]:
        """The outputs of each response to one request; arguments as those of `infer`. A model that does not stream
        gives one response. `timeout` limits the wait for each response. Closing the generator (`contextlib.aclosing`)
        ends the stream.

        Raises:
            ClientError: as `infer`, also after some responses.
        """
        return self._pulled(
            self._client.stream(
                model,
                *arrays,
                inputs=inputs,
                outputs=outputs,
                parameters=parameters,
                version=version,
                id=id,
                cast=cast,
                timeout=timeout,
                **named,
            )
        )

    def gradient(
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
        return self._thread.run(
            self._client.gradient(
                model,
                *arrays,
                sens=sens,
                out_wrt=out_wrt,
                in_wrt=in_wrt,
                inputs=inputs,
                parameters=parameters,
                version=version,
                cast=cast,
                timeout=timeout,
                **named,
            )
        )

    def apply_jacobian(
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
        return self._thread.run(
            self._client.apply_jacobian(
                model,
                *arrays,
                vec=vec,
                out_wrt=out_wrt,
                in_wrt=in_wrt,
                inputs=inputs,
                parameters=parameters,
                version=version,
                cast=cast,
                timeout=timeout,
                **named,
            )
        )

    def apply_hessian(
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
        return self._thread.run(
            self._client.apply_hessian(
                model,
                *arrays,
                sens=sens,
                vec=vec,
                out_wrt=out_wrt,
                in_wrt1=in_wrt1,
                in_wrt2=in_wrt2,
                inputs=inputs,
                parameters=parameters,
                version=version,
                cast=cast,
                timeout=timeout,
                **named,
            )
        )

    def signature(self, model: str, /, *, version: str = "", timeout: Seconds = UNSET) -> Signature:
        """The model's `inputs` and `outputs`, each with name, datatype and shape (-1: any size), its `versions`, and
        the `operations` that it has. Fields that the server does not tell are empty.

        The tensors that grps and GraphPipe servers report are often wrong. They are shown here, but inputs are fitted
        to them only with `trust_metadata`.

        Raises:
            ClientError: NotFound; Unsupported, the protocol has no metadata (MIP); as `infer`.
        """
        return self._thread.run(self._client.signature(model, version=version, timeout=timeout))

    def models(self, *, timeout: Seconds = UNSET) -> list[ModelEntry]:
        """The server's models, each with its name and, where the protocol has them, version, state and the reason for
        the state.

        Raises:
            ClientError: Unsupported, the protocol or the server has no list of models; as `infer`.
        """
        return self._thread.run(self._client.models(timeout=timeout))

    def server(self, *, timeout: Seconds = UNSET) -> ServerInfo:
        """The server's name, version and extensions.

        Raises:
            ClientError: Unsupported, the protocol does not tell them; as `infer`.
        """
        return self._thread.run(self._client.server(timeout=timeout))

    def ready(self, model: str = "", /, *, version: str = "", timeout: Seconds = UNSET) -> bool:
        """Whether the server is ready, or a model of it if `model` is given. False also if it cannot be reached or does
        not answer in time: wait for a server by asking again.

        Raises:
            ClientError: Refused, a key is missing or wrong; Unsupported, the protocol cannot tell of a model.
        """
        return self._thread.run(self._client.ready(model, version=version, timeout=timeout))

    def ask(self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET) -> Answer:
        """The answer to a canonical request (`gateway.core.types`), for programs that have one already.

        Raises:
            ClientError: as `infer`.
        """
        return self._thread.run(self._client.ask(request, cast=cast, timeout=timeout))

    def ask_stream(
        self, request: Request, *, cast: Cast = "refuse", timeout: Seconds = UNSET
    ) -> Generator[Response, None, None]:
        """The responses to a canonical request.

        Raises:
            ClientError: as `stream`.
        """
        return self._pulled(self._client.ask_stream(request, cast=cast, timeout=timeout))

    def close(self) -> None:
        """Close every connection. Calls in flight fail; later ones raise RuntimeError."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.protocol} {self.address}>"

    def _pulled(self, responses: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Each of `responses` when it is asked for."""
        try:
            while (each := self._thread.run(_next(responses))) is not None:
                yield each
        finally:
            self._thread.finish(responses.aclose())


async def _next(responses: AsyncGenerator[T, None]) -> T | None:
    return await anext(responses, None)
