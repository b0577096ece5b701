"""Model names that can include a version: `echo-1.0.0` is version `1.0.0` of `echo`, or a model of that whole name.

If a backend behind a glob could have either, it decides: it first gets a request for the whole name
(`whole_or_version`).
"""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.transport import Destination
from gateway.core.types import Answer, Request, Response, Signature

_READS = "the version in the model's name"
"""The reason for decoding requests with a version in the name: the server gets another name."""
_JOINED = re.compile(r"(?s)(.+)-(v?[0-9]+(?:\.[0-9]+)*)")


def split_version(name: str) -> tuple[str, str] | None:
    """Return `echo-1.0.0` as (`echo`, `1.0.0`); None for a name that does not end in a version."""
    found = _JOINED.fullmatch(name)
    return (found[1], found[2]) if found else None


def renamed(destination: Destination, model: str, version: str) -> Destination:
    """Return `destination`, with requests renamed to `model` and `version`, and responses renamed back to the client's
    names."""
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

    return replace(destination, handler=inner and handler, stream=responses and stream, relay=None, reads=_READS)


def whole_or_version(whole: Destination, split: Destination) -> Destination:
    """Return a Destination that uses `whole`, and then `split` if the backend does not have the model of `whole`.

    If the backend has neither, the error is about the whole name, which the client used."""

    async def handler(request: Request) -> Answer:
        assert whole.handler is not None
        assert split.handler is not None
        try:
            return await whole.handler(request)
        except GatewayError as error:
            if not _is_missing(error):
                raise
            unknown = error
        with _second_attempt(unknown):
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
        with _second_attempt(unknown):
            async with aclosing(split.stream(request)) as responses:
                async for response in responses:
                    yield response

    return replace(whole, handler=whole.handler and handler, stream=whole.stream and stream, relay=None, reads=_READS)


@contextmanager
def _second_attempt(unknown: GatewayError) -> Iterator[None]:
    """Run the second attempt.

    If the backend does not have its model either, raise `unknown`, the first not-found error."""
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
