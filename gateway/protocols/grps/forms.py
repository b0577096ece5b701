"""The form of a message's data: a reply's is the one that the model gave it or that the client sent, a request's the
client's, where the tensors fit into it."""

from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.types import Message, Tensor
from gateway.core.values import extended, replace, value
from gateway.protocols.grps import gmap
from gateway.protocols.grps.texts import is_text
from gateway.protocols.grps.words import Kind

Data: TypeAlias = tuple[Kind | None, tuple[Tensor, ...]]


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


@value
class ToldMessage(Message):
    """What is kept of a backend's reply: the `kind` of its data, None where it had none; whether it `names_model`."""

    kind: Kind | None = None
    names_model: bool = False


TOLD = {(kind, named): ToldMessage(kind=kind, names_model=named) for kind in (None, *Kind) for named in (False, True)}


def of_client(origin: Message | None) -> Kind:
    """The form that the client sent; the usual one if it was none of grps."""
    return origin.kind if isinstance(origin, AskedMessage) else Kind.GTENSORS


def of_reply(origin: Message | None, client: Kind) -> tuple[Kind | None, ...]:
    """The forms that a reply may have, the best first: that of the model, if its server speaks grps, and the `client`'s
    own."""
    return (origin.kind, client) if isinstance(origin, ToldMessage) else (client,)


def fit(kind: Kind | None, tensors: tuple[Tensor, ...], *, told_apart: bool) -> Data | None:
    """`tensors` in a form, if they fit; gtensors and ndarray are none to be kept, since everything fits the former and
    servers make it of the latter. `told_apart`: as `gmap.fit` has it."""
    if kind is None:
        return None if tensors else (None, ())
    if kind is Kind.GMAP:
        return _entries(tensors, told_apart)
    if kind not in (Kind.STR_DATA, Kind.BIN_DATA) or not is_one_element(tensors):
        return None
    # bytes fit no string, but every string fits bytes
    is_string = kind is Kind.STR_DATA and is_text(tensors[0])
    return (Kind.STR_DATA if is_string else Kind.BIN_DATA), element(tensors)


def _entries(tensors: tuple[Tensor, ...], told_apart: bool) -> Data | None:
    entries = [entry for each in tensors if (entry := gmap.fit(each, told_apart=told_apart)) is not None]
    names = {each.name for each in entries}
    return (Kind.GMAP, tuple(entries)) if len(tensors) == len(entries) == len(names) else None


def is_one_element(tensors: tuple[Tensor, ...]) -> bool:
    """Whether they are one element of BYTES."""
    return len(tensors) == 1 and tensors[0].datatype is Datatype.BYTES and tensors[0].elements == 1


def element(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """That element, as it stands in str_data and bin_data."""
    [tensor] = tensors
    return (tensor if tensor.shape == (1,) else replace(tensor, shape=(1,)),)
