"""Bytes beside the tensors (`core.types.ATTACHMENT`) are refused between protocols of which only one has them.
Where both have them, or neither, nothing is looked at."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.bridge.backend import BackendSide
from gateway.core.errors import GatewayError, invalid_input, invalid_output
from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.transport import Handler, StreamHandler
from gateway.core.types import ATTACHMENT, Answer, Parameters, Request, Response


def without_attachments(backend: BackendSide, client: Protocol) -> BackendSide:
    """`backend` as clients of the protocol `client` call it: a request or a response with an attachment fails if it
    cannot be carried."""
    of_clients, of_backends = client.traits.wire.attachments, backend.traits.wire.attachments
    if of_clients and not of_backends:
        responses = backend.responses and _checked_stream(backend.responses, backend)
        return replace(backend, handler=_checked_requests(backend.handler, backend), responses=responses)
    if of_backends and not of_clients:
        return replace(backend, handler=_checked_answers(backend, client))
    return backend


def _checked_requests(handler: Handler, backend: BackendSide) -> Handler:
    async def checked(request: Request) -> Answer:
        _refuse_sent(request, backend)
        return await handler(request)

    return checked


def _checked_stream(responses: StreamHandler, backend: BackendSide) -> StreamHandler:
    async def checked(request: Request) -> AsyncGenerator[Response, None]:
        _refuse_sent(request, backend)
        async with aclosing(responses(request)) as found:
            async for each in found:
                yield each

    return checked


def _refuse_sent(request: Request, backend: BackendSide) -> None:
    if request.parameters and ATTACHMENT in request.parameters:
        text = (
            f"the request has an attachment of {_size(request.parameters)} bytes, which {backend.protocol} cannot carry"
        )
        raise invalid_input(text)


def _checked_answers(backend: BackendSide, client: Protocol) -> Handler:
    """No protocol with attachments has streams."""

    async def checked(request: Request) -> Answer:
        answer = await backend.handler(request)
        if isinstance(answer, Response) and answer.parameters and ATTACHMENT in answer.parameters:
            raise _not_carried(backend, client, answer)
        return answer

    return checked


def _not_carried(backend: BackendSide, client: Protocol, answer: Response) -> GatewayError:
    size = _size(answer.parameters)
    text = f"backend {backend.name!r}: the reply has an attachment of {size} bytes, which {client.name} cannot carry"
    return invalid_output(text)


def _size(parameters: Parameters) -> int:
    return len(str(parameters[ATTACHMENT]))
