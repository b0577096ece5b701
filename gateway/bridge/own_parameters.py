"""Rejects parameters that represent a protocol-specific part of a message (`Wire.own_parameters`), such as a brpc
attachment, if the other protocol has no such part. Between equal protocols, nothing is checked."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

from gateway.bridge.backend import BackendSide
from gateway.core.errors import invalid_input, invalid_output
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.requests import ATTACHMENT, Answer, Request, Response
from gateway.core.tensors import Parameters, Tensor
from gateway.core.transport import Handler, StreamHandler


def refusing_own_parameters(backend: BackendSide, client: Protocol) -> BackendSide:
    """Wrap `backend` for clients of the protocol `client`.

    Requests and responses fail if they contain parameters that the other protocol cannot carry."""
    of_client, of_backend = client.traits.wire.own_parameters, backend.traits.wire.own_parameters
    if sent := of_client - of_backend:
        stream = backend.responses and _checked_stream(backend.responses, sent, backend)
        backend = replace(backend, handler=_checked_requests(backend.handler, sent, backend), responses=stream)
    if received := of_backend - of_client:
        backend = replace(backend, handler=_checked_answers(backend.handler, received, backend, client))
    return backend


def _checked_requests(handler: Handler, sent: frozenset[str], backend: BackendSide) -> Handler:
    async def checked(request: Request) -> Answer:
        _refuse_sent(request, sent, backend.protocol)
        return await handler(request)

    return checked


def _checked_stream(responses: StreamHandler, sent: frozenset[str], backend: BackendSide) -> StreamHandler:
    async def checked(request: Request) -> AsyncGenerator[Response, None]:
        _refuse_sent(request, sent, backend.protocol)
        async with aclosing(responses(request)) as found:
            async for each in found:
                yield each

    return checked


def _refuse_sent(request: Request, own: frozenset[str], protocol: str) -> None:
    """Raise GatewayError (INVALID_ARGUMENT) if the request contains one of the parameters `own`, which the other
    `protocol` does not have."""
    for found in _found(request.parameters, request.inputs, own, "the request", "input"):
        raise invalid_input(f"{found}, which {protocol} cannot carry")


def _checked_answers(handler: Handler, received: frozenset[str], backend: BackendSide, client: Protocol) -> Handler:
    """Wrap `handler` to check its requests and responses.

    A client's parameter that happens to have the same name does not represent a part of the message. Protocols with
    these parameters have no streams."""

    async def checked(request: Request) -> Answer:
        _refuse_sent(request, received, client.name)
        answer = await handler(request)
        if isinstance(answer, Response):
            for found in _found(answer.parameters, answer.outputs, received, "the reply", "output"):
                raise invalid_output(f"backend {backend.name!r}: {found}, which {client.name} cannot carry")
        return answer

    return checked


def _found(
    parameters: Parameters, tensors: Sequence[Tensor], own: frozenset[str], what: str, role: str
) -> Iterator[str]:
    """Yield a phrase for the error message for each parameter that is in `own`."""
    for name in own & parameters.keys() if parameters else ():
        size = f" of {len(str(parameters[name]))} bytes" if name == ATTACHMENT else ""
        yield f"{what} has a {name}{size}"
    for at, tensor in enumerate(tensors):
        for name in own & tensor.parameters.keys() if tensor.parameters else ():
            yield f"{role} {tensor.name or at!r} has a {name}, {tensor.parameters[name]}"
