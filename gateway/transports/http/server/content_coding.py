"""From a received request to its reply, or to what a stream of replies starts from; codings undone and done on the
way."""

import asyncio
from collections.abc import AsyncGenerator

from gateway.core.frozen import replace
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import EventualReply, Exchange, awaited
from gateway.core.types import Message
from gateway.transports.http import compression
from gateway.transports.http.server import reply_bytes
from gateway.transports.inflate import IN_THREAD, inflate_anywhere, inflate_in_thread, inflate_small

_BODY = "the body"


def answer(message: Message, coding: str, limits: Limits, exchange: Exchange, protocol: Protocol) -> EventualReply:
    """The reply to `message`, whose body is in `coding` (empty for none) and inflates within the `limits`; an
    awaitable of it where something must be waited for.

    Raises:
        DecodeError: the body is not in its coding.
        GatewayError: it inflates beyond the limits.
    """
    if not coding:
        return exchange(message, protocol)
    body = inflate_small(message.body, coding, limits, _BODY)
    if body is None:
        return _answer_inflated(message, coding, limits, exchange, protocol)
    return exchange(replace(message, parts=(body,)), protocol)


async def alone(message: Message, coding: str, limits: Limits) -> AsyncGenerator[Message, None]:
    """What a client's stream of one request consists of: `message`, its body inflated.

    Raises:
        DecodeError, GatewayError: as `answer`.
    """
    if coding:
        message = replace(message, parts=(await inflate_anywhere(message.body, coding, limits, _BODY),))
    yield message


async def _answer_inflated(
    message: Message, coding: str, limits: Limits, exchange: Exchange, protocol: Protocol
) -> Message:
    body = await inflate_in_thread(message.body, coding, limits, _BODY)
    reply = exchange(replace(message, parts=(body,)), protocol)
    return await awaited(reply)


async def finish(reply: EventualReply, coding: str) -> Message:
    """The reply, in `coding` if it is long enough."""
    reply = await awaited(reply)
    length = reply_bytes.size(reply.parts)
    if not coding or length < compression.MIN_DEFLATED:
        return reply
    if length > IN_THREAD:
        return await asyncio.to_thread(reply_bytes.deflated, reply, coding)
    return reply_bytes.deflated(reply, coding)
