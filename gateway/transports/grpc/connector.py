"""Exchanges messages with one gRPC endpoint, or with all the addresses that its name stands for."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import cache
from typing import Any

import grpc.aio

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Message
from gateway.transports.grpc import failures
from gateway.transports.grpc.address import parse_address
from gateway.transports.grpc.bodies import joined
from gateway.transports.grpc.metadata import headers, metadata
from gateway.transports.grpc.options import connector_options


class GrpcConnector:
    """`address` as `parse_address` takes it. Connections are kept, and made again where they break; nothing is sent
    twice unless the endpoint said that it did not look at it.

    A Message's `path` is the method, its `headers` are metadata. A reply's `status` is gRPC's code; where that is not
    0, its body is the status's text.

    Raises:
        ValueError: the address is none.
    """

    def __init__(self, address: str, *, connection_per_call: bool, limits: Limits) -> None:
        del connection_per_call  # HTTP/2 carries any number of calls on one connection
        self._limits = limits
        channel = grpc.aio.insecure_channel(parse_address(address).target, options=connector_options(limits))
        self._channel = channel
        self._unary: Callable[[str], Any] = cache(channel.unary_unary)
        # The same on the wire as a stream of one request, which grpc.aio (1.85) would write apart from the head; and if
        # the server has ended the call by then, that is INTERNAL to it, whatever the status is.
        self._streaming: Callable[[str], Any] = cache(channel.unary_stream)
        self._is_closed = False

    async def exchange(self, message: Message) -> Message:
        """Send `message` and wait for its reply. Cancelling cancels the call, of which the endpoint is told.

        Raises:
            TransportError: UNAVAILABLE, the endpoint could not be reached or broke off; INTERNAL, what came is not a
                good reply; DEADLINE_EXCEEDED, there was none in time.
        """
        timeout = self._remaining(message)
        call = self._unary(message.path)(joined(message), timeout=timeout, metadata=metadata(message.headers))
        try:
            body = await call
        except grpc.aio.AioRpcError as error:
            return self._ended(error)
        except asyncio.CancelledError as error:
            self._tell_closing(error)
            raise
        if body is None:
            raise failures.no_message()
        return Message(headers=headers(await call.trailing_metadata()), parts=(body,))

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message`, end the sending side, and yield each reply as it is pulled. An error that the endpoint tells
        is the last reply, with its status, so that codecs read it as after `exchange`.

        Raises:
            TransportError: as `exchange`, also after some replies.
        """
        timeout = self._remaining(message)
        call = self._streaming(message.path)(joined(message), timeout=timeout, metadata=metadata(message.headers))
        try:
            async for body in call:
                yield Message(parts=(body,))
        except grpc.aio.AioRpcError as error:
            yield self._ended(error)
        except asyncio.CancelledError as error:
            self._tell_closing(error)
            raise
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close every connection. Exchanges still running fail."""
        self._is_closed = True
        await self._channel.close()

    def _remaining(self, message: Message) -> float | None:
        """Seconds until the deadline."""
        if self._is_closed:
            raise _closed(sent=False)
        if message.deadline is None:
            return None
        seconds = message.deadline - asyncio.get_running_loop().time()
        if seconds <= 0:
            text = "the deadline passed before the request was sent"
            raise TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=False)
        return seconds

    def _ended(self, error: Any) -> Message:
        try:
            return failures.reply_of(error, self._limits)
        except TransportError as failure:
            raise failure from error

    def _tell_closing(self, error: BaseException) -> None:
        """Closing the channel cancels its calls, which looks to those who wait as if they were cancelled themselves."""
        task = asyncio.current_task()
        if self._is_closed and task is not None and not task.cancelling():
            raise _closed(sent=True) from error


def _closed(*, sent: bool) -> TransportError:
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "the connector is closed", sent=sent)
