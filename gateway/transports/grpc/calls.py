"""From a received call to its end, for the methods of protocols."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import lru_cache
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc

from gateway.core.errors import Status
from gateway.core.exchange import as_gateway_error
from gateway.core.protocol import Protocol
from gateway.core.transport import Exchanges
from gateway.core.types import Message
from gateway.transports.grpc.bodies import joined
from gateway.transports.grpc.draining import Draining
from gateway.transports.grpc.metadata import ReceivedHeaders, metadata

CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_MAX_METHOD = 200


def unary(method: str, protocol: Protocol, exchanges: Exchanges, draining: Draining) -> Any:
    """Serves a method of one request and one reply."""

    async def call(data: bytes, context: Any) -> bytes:
        message = _received(data, context, method)
        with draining.call():
            try:
                reply = exchanges.exchange(message, protocol)
                if not isinstance(reply, Message):
                    reply = await reply
            except Exception as error:
                reply = exchanges.refuse(as_gateway_error(error), protocol, message)
            await _tell(reply, context)
            return joined(reply)

    return grpc.unary_unary_rpc_method_handler(call)


def streaming(method: str, protocol: Protocol, exchanges: Exchanges, draining: Draining) -> Any:
    """Serves a method of any number of requests and replies. One reply is pulled, written, and the next one pulled when
    the client has room for it; one whose status is not 0 ends the call."""

    async def call(_requests: object, context: Any) -> None:
        stream = _Requests(context, method, draining)
        with draining.call():
            await answer(stream, context)
        if stream.is_cut_off:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the gateway is stopping")

    async def answer(stream: _Requests, context: Any) -> None:
        async with (
            aclosing(stream.messages()) as messages,
            aclosing(exchanges.stream(messages, protocol)) as answers,
            aclosing(_refusing(answers, method, protocol, exchanges)) as replies,
        ):
            async for reply in replies:
                await _tell(reply, context)
                await context.write(joined(reply))

    return grpc.stream_stream_rpc_method_handler(call)


async def _refusing(
    replies: AsyncGenerator[Message, None], method: str, protocol: Protocol, exchanges: Exchanges
) -> AsyncGenerator[Message, None]:
    """The replies; where they break off, what refuses the rest."""
    try:
        async for reply in replies:
            yield reply
    except Exception as error:
        yield exchanges.refuse(as_gateway_error(error), protocol, Message(method, method, pattern=method))


class _Requests:
    """What a client sends on its stream."""

    def __init__(self, context: Any, method: str, draining: Draining) -> None:
        self.is_cut_off = False
        self._context = context
        self._method = method
        self._draining = draining

    async def messages(self) -> AsyncGenerator[Message, None]:
        while (data := await self._draining.read(self._context)) is not None:
            yield _received(data, self._context, self._method)
        self.is_cut_off = self._draining.begun.is_set()


def unknown(method: str) -> Any:
    """Refuses a method that nobody serves, before its message is read."""

    async def call(_requests: object, context: Any) -> NoReturn:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no method {method[:_MAX_METHOD]} here")
        raise AssertionError

    return grpc.stream_stream_rpc_method_handler(call)


def _received(data: bytes, context: Any, method: str) -> Message:
    now = asyncio.get_running_loop().time()
    remaining = context.time_remaining()
    deadline = None if remaining is None else now + remaining
    peer = _address(context.peer())
    # By position: the names of its fields would cost as much again.
    return Message(method, method, ReceivedHeaders(context), (data,), 0, "", method, {}, peer, now, deadline)


async def _tell(reply: Message, context: Any) -> None:
    """The reply's headers, as trailing metadata; and its status, which ends the call here if it is not 0."""
    if reply.status:
        # A status that gRPC does not have is UNKNOWN to it.
        code = CODES.get(reply.status, CODES[Status.UNKNOWN])
        text = joined(reply).decode("utf-8", "replace")
        await context.abort(code, text, metadata(reply.headers))
    elif reply.headers.raw:
        context.set_trailing_metadata(metadata(reply.headers))


@lru_cache(1024)
def _address(peer: str) -> str:
    """`host:port` of gRPC's `ipv4:127.0.0.1:1234` or `ipv6:%5B::1%5D:1234`."""
    return unquote(peer.partition(":")[2])
