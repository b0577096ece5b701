"""A grps message read as a small one, by protobuf's library, and as a large one, by hand: both must agree."""

from collections.abc import Callable

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.types import Buffer
from gateway.protocols.grps.protobuf import message as proto_message
from gateway.protocols.grps.schema import GrpsMessage


def read_message(body: Buffer, limit: int) -> GrpsMessage:
    """What the gateway reads, or its error; checks first that it would be the same if the message were large."""
    assert _outcome(proto_message.read_message, body, limit) == _outcome(proto_message.read_large, body, limit)
    return proto_message.read_message(body, limit)


def _outcome(read: Callable[[Buffer, int], GrpsMessage], body: Buffer, limit: int) -> tuple[object, ...]:
    try:
        return comparable(read(body, limit))
    except (DecodeError, GatewayError) as error:
        return type(error), str(error)


def comparable(message: GrpsMessage) -> tuple[object, ...]:
    """All of `message` as values that compare."""
    tensors = [(each.name, each.datatype, each.shape, bytes(each.data), each.content_type) for each in message.tensors]
    return message.model, message.status, message.payload, tensors
