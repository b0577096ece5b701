"""A StreamHandler that answers requests with sample models."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.transport import StreamHandler
from gateway.reference.arguments import arrange
from gateway.reference.failures import model_error
from gateway.reference.handler import by_name, config_of, find, handler, response
from gateway.reference.model import Model, Stream


def stream_handler(models: Sequence[Model], *, points: bool = False) -> StreamHandler:
    """Return a StreamHandler that answers `stream` for `models`.

    A streaming model yields each of its responses, and any other model yields its one response.

    The StreamHandler raises the same errors as the Handler, also after some responses."""
    served = by_name(models, points=points)
    unary = handler(models, points=points)

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        model = find(served, request)
        if model.stream is not None:
            async with aclosing(_responses(model.stream, model, request)) as responses:
                async for item in responses:
                    yield item
            return
        answer = await unary(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


async def _responses(stream: Stream, model: Model, request: Request) -> AsyncGenerator[Response, None]:
    arguments = arrange(request, model.signature)
    config = config_of(request, model)
    try:
        async with aclosing(stream(arguments, config)) as results:
            async for outputs in results:
                yield response(outputs, request, model)
    except GatewayError:
        raise
    except (Exception, SystemExit) as error:
        raise model_error(model.name, error) from error
