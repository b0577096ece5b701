"""Handles model names that can include a version: `echo-1.0.0` means either version `1.0.0` of `echo`, or a model with
this entire name.

If a backend behind a glob could have either model, the backend decides: it first receives a request for the entire name
(`whole_or_version`).
"""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager

from gateway.core.errors import GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Destination

_READS = "the version in the model's name"
"""The reason for decoding requests with a version in the name: the server receives a different name."""
_JOINED = re.compile(r"(?s)(.+)-(v?[0-9]+(?:\.[0-9]+)*)")


def split_version(name: str) -> tuple[str, str] | None:
    """Split `echo-1.0.0` into (`echo`, `1.0.0`). Return None for a name that does not end in a version."""
    found = _JOINED.fullmatch(name)
    return (found[1], found[2]) if found else None


def renamed(destination: Destination, model: str, version: str) -> Destination:
    """Wrap `destination`. Requests get the names `model` and `version`, and responses get the client's names."""
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
    """Return a Destination that tries `whole` first, and `split` if the backend does not have that model.

    If the backend has neither model, the error is about the entire name, because the client used this name."""

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
    """Run the body as the second attempt, for the name with the version. If the backend does not have that model
    either, raise `unknown`, the first not-found error."""
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
