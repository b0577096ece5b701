"""Implements `translate: {stream: ...}`, which combines a model's stream into one response for clients that expect
one."""

from collections.abc import AsyncIterator

from gateway.bridge.shapes import concatenate
from gateway.core.errors import DecodeError, Reason, invalid_output, refusal
from gateway.core.frozen import replace
from gateway.core.requests import Response
from gateway.core.tensors import Tensor


async def last(responses: AsyncIterator[Response], backend: str) -> Response:
    """Return the last response of a stream.

    Raises:
        GatewayError: INTERNAL (invalid-output) if the stream contains no response.
    """
    found: Response | None = None
    async for response in responses:
        found = response
    if found is None:
        raise invalid_output(f"backend {backend!r}: the stream ended without a response")
    return found


async def collect(responses: AsyncIterator[Response], backend: str, limit: int) -> Response:
    """Return one response that contains the outputs of all responses, concatenated on axis 0.

    Raises:
        GatewayError: INTERNAL (invalid-output) if the stream contains no response, or if its outputs differ in more
            than axis 0; RESOURCE_EXHAUSTED if the outputs have more than `limit` bytes in total.
    """
    found: list[Response] = []
    size = 0
    async for response in responses:
        found.append(response)
        size += sum(len(tensor.data) for tensor in response.outputs)
        if size > limit:
            text = (
                f"backend {backend!r}: the stream's responses exceed {limit} bytes; raise limits.message of the backend"
            )
            raise refusal(Reason.TOO_LARGE, text)
    if not found:
        raise invalid_output(f"backend {backend!r}: the stream ended without a response")
    try:
        columns: zip[tuple[Tensor, ...]] = zip(*(response.outputs for response in found), strict=True)
        return replace(found[-1], outputs=tuple(map(concatenate, columns)), parameters={})
    except (DecodeError, ValueError) as error:
        raise invalid_output(f"backend {backend!r}: cannot concatenate the responses: {error}") from error
