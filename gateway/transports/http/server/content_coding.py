"""The content codings of requests and replies.

The functions decompress a request's body before the exchange, and compress a reply's body after it. They use a thread
if the work takes a long time.
"""

import asyncio
from collections.abc import AsyncGenerator

from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import EventualReply, Exchange, awaited
from gateway.transports.http.compression import MIN_DEFLATED, deflate
from gateway.transports.http.server.reply_bytes import body_size
from gateway.transports.inflate import IN_THREAD, inflate_anywhere, inflate_in_thread, inflate_small
from gateway.transports.memory import Memory

_BODY = "the body"


def exchange_inflated(
    message: Message, coding: str, limits: Limits, memory: Memory, exchange: Exchange, protocol: Protocol
) -> EventualReply:
    """Return the reply to `message`, whose body has the given `coding`, or an awaitable of the reply if the reply takes
    time.

    Raises:
        DecodeError: the body does not have its declared coding.
        GatewayError: the body's decompressed size exceeds the limits.
    """
    body = inflate_small(message.body, coding, limits, _BODY, memory)
    if body is None:
        return _exchange_inflated_in_thread(message, coding, limits, memory, exchange, protocol)
    return exchange(replace(message, parts=(body,)), protocol)


async def _exchange_inflated_in_thread(
    message: Message, coding: str, limits: Limits, memory: Memory, exchange: Exchange, protocol: Protocol
) -> Message:
    body = await inflate_in_thread(message.body, coding, limits, _BODY, memory)
    reply = exchange(replace(message, parts=(body,)), protocol)
    return await awaited(reply)


async def request_stream(
    message: Message, coding: str, limits: Limits, memory: Memory
) -> AsyncGenerator[Message, None]:
    """Yield the client's messages in a stream. In HTTP, this is the single `message`, whose body is decompressed.

    `coding` is the coding of the body, or empty for an uncompressed body.

    Raises:
        DecodeError, GatewayError: same as `exchange_inflated`.
    """
    if coding:
        message = replace(message, parts=(await inflate_anywhere(message.body, coding, limits, _BODY, memory),))
    yield message


def deflated_reply(reply: EventualReply, coding: str) -> EventualReply:
    """Return the reply compressed with `coding`, or unchanged if compression is not worthwhile.

    If the reply or its compression takes time, the result is an awaitable of the reply."""
    if isinstance(reply, Message) and body_size(reply.parts) < MIN_DEFLATED:
        return reply
    return _deflated_later(reply, coding)


async def _deflated_later(eventual: EventualReply, coding: str) -> Message:
    reply = await awaited(eventual)
    size = body_size(reply.parts)
    if size > IN_THREAD:
        return await asyncio.to_thread(_deflated, reply, coding)
    return reply if size < MIN_DEFLATED else _deflated(reply, coding)


def _deflated(reply: Message, coding: str) -> Message:
    header = (b"Content-Encoding", coding.encode())
    return replace(reply, headers=Headers((*reply.headers.raw, header)), parts=(deflate(reply.parts, coding),))
