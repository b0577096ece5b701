"""The form of a message's data: that of the message which it belongs to, where the tensors fit into it."""

from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.types import Message, Tensor
from gateway.core.values import extended, replace, value
from gateway.protocols.grps import gmap
from gateway.protocols.grps.texts import is_text
from gateway.protocols.grps.words import Kind

Data: TypeAlias = tuple[Kind, tuple[Tensor, ...]]


@value
class AskedMessage(Message):
    """A client's message, and in which form it wants the data of the reply: the `kind` that it sent itself;
    `returns_ndarray`, if it asked for one."""

    kind: Kind = Kind.GTENSORS
    returns_ndarray: bool = False


def asked(message: Message, kind: Kind | None, returns_ndarray: bool) -> Message:
    """`message` with what it says of the form; itself where that is the usual one."""
    if kind is None or (kind is Kind.GTENSORS and not returns_ndarray):
        return message
    return extended(AskedMessage, message, kind, returns_ndarray)


def like(origin: Message | None, tensors: tuple[Tensor, ...]) -> Data | None:
    """`tensors` in the form that a client of grps sent, if it did and they fit; an ndarray is none to be kept, since
    servers make a tensor of it."""
    if not isinstance(origin, AskedMessage):
        return None
    if origin.kind is Kind.GMAP:
        return _entries(tensors)
    if origin.kind not in (Kind.STR_DATA, Kind.BIN_DATA) or not is_one_element(tensors):
        return None
    # bytes fit no string, but every string fits bytes
    is_string = origin.kind is Kind.STR_DATA and is_text(tensors[0])
    return (Kind.STR_DATA if is_string else Kind.BIN_DATA), element(tensors)


def _entries(tensors: tuple[Tensor, ...]) -> Data | None:
    entries = [entry for each in tensors if (entry := gmap.fit(each)) is not None]
    names = {each.name for each in entries}
    return (Kind.GMAP, tuple(entries)) if len(tensors) == len(entries) == len(names) else None


def is_one_element(tensors: tuple[Tensor, ...]) -> bool:
    """Whether they are one element of BYTES."""
    return len(tensors) == 1 and tensors[0].datatype is Datatype.BYTES and tensors[0].elements == 1


def element(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """That element, as it stands in str_data and bin_data."""
    [tensor] = tensors
    return (tensor if tensor.shape == (1,) else replace(tensor, shape=(1,)),)
