"""A Message's parts as gRPC takes them."""

from gateway.core.types import Message


def joined(message: Message) -> bytes:
    """The parts in one piece, copied unless they are: gRPC takes nothing but bytes."""
    body = message.body
    return body if type(body) is bytes else bytes(body)
