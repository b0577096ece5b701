"""Names that hold a version: `echo-1.0.0` is the model `echo` in its version `1.0.0`, unless it is a name as it is."""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.transport import Destination
from gateway.core.types import Answer, Request, Response, Signature

_JOINED = re.compile(r"(?s)(.+)-(v?[0-9]+(?:\.[0-9]+)*)")


def split_version(name: str) -> tuple[str, str] | None:
    """`echo-1.0.0` as (`echo`, `1.0.0`); None for a name without a version at its end."""
    found = _JOINED.fullmatch(name)
    return (found[1], found[2]) if found else None


def renamed(destination: Destination, model: str, version: str) -> Destination:
    """`destination` asked for `model` and `version`; what it answers has the names that the client used."""
    inner, responses = destination.handler, destination.stream

    def asked(request: Request) -> Request:
        return replace(request, model=model, version=version)

    async def handler(request: Request) -> Answer:
        assert inner is not None
        return _under(await inner(asked(request)), request)

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        assert responses is not None
        async with aclosing(responses(asked(request))) as found:
            async for response in found:
                yield replace(response, model=request.model, version=request.version)

    return replace(destination, handler=inner and handler, stream=responses and stream)


def whole_or_split(whole: Destination, split: Destination) -> Destination:
    """`whole`; and where its backend has no such model, `split`. If it has neither, the client is told of the name that
    it used."""

    async def handler(request: Request) -> Answer:
        assert whole.handler is not None
        assert split.handler is not None
        try:
            return await whole.handler(request)
        except GatewayError as error:
            if not _is_missing(error):
                raise
            unknown = error
        with _in_place_of(unknown):
            return await split.handler(request)

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        assert whole.stream is not None
        assert split.stream is not None
        begun = False
        try:
            async with aclosing(whole.stream(request)) as responses:
                async for response in responses:
                    begun = True
                    yield response
            return
        except GatewayError as error:
            if begun or not _is_missing(error):
                raise
            unknown = error
        with _in_place_of(unknown):
            async with aclosing(split.stream(request)) as responses:
                async for response in responses:
                    yield response

    return replace(whole, handler=whole.handler and handler, stream=whole.stream and stream)


@contextmanager
def _in_place_of(unknown: GatewayError) -> Iterator[None]:
    """What is tried because the whole name is `unknown`, and tells of that if its own is as well."""
    try:
        yield
    except GatewayError as error:
        if not _is_missing(error):
            raise
        raise unknown from error


def _is_missing(error: GatewayError) -> bool:
    return error.reason is Reason.MODEL_NOT_FOUND


def _under(answer: Answer, request: Request) -> Answer:
    if isinstance(answer, Response):
        return replace(answer, model=request.model, version=request.version)
    return replace(answer, name=request.model) if isinstance(answer, Signature) else answer
