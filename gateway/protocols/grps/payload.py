"""The form of a message's data: a reply's is the one that the model gave it or that the client sent, a request's the
client's, where the tensors fit into it."""

from dataclasses import field
from typing import TypeAlias

from gateway.core.datatypes import Datatype
from gateway.core.frozen import extended, frozen, replace
from gateway.core.types import Message, Tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps.schema import Kind
from gateway.protocols.grps.strings import is_text

Data: TypeAlias = tuple[Kind | None, tuple[Tensor, ...]]


@frozen
class AskedMessage(Message):
    """A client's message, and in which form it wants the data of the reply: the `kind` that it sent itself;
    `returns_ndarray`, if it asked for one; the `keys` of its gmap that are not its tensors' names."""

    kind: Kind = Kind.GTENSORS
    returns_ndarray: bool = False
    keys: gmap.Keys = field(default_factory=dict)


def asked(message: Message, kind: Kind | None, returns_ndarray: bool, keys: gmap.Keys) -> Message:
    """`message` with what it says of the form; itself where that is the usual one."""
    if kind is None or (kind is Kind.GTENSORS and not returns_ndarray):
        return message
    return extended(AskedMessage, message, kind, returns_ndarray, keys)


@frozen
class ToldMessage(Message):
    """What is kept of a backend's reply: the `kind` of its data, None where it had none; whether it `names_model`; and
    `keys` as an AskedMessage has them."""

    kind: Kind | None = None
    names_model: bool = False
    keys: gmap.Keys = field(default_factory=dict)


_TOLD = {(kind, named): ToldMessage(kind=kind, names_model=named) for kind in (None, *Kind) for named in (False, True)}


def told(kind: Kind | None, names_model: bool, keys: gmap.Keys) -> ToldMessage:
    """What is kept of a reply."""
    return ToldMessage(kind=kind, names_model=names_model, keys=keys) if keys else _TOLD[kind, names_model]


def keys_of(*origins: Message | None) -> gmap.Keys:
    """The keys of tensors that came in these messages, where they are not their names."""
    found = [each.keys for each in origins if isinstance(each, AskedMessage | ToldMessage) and each.keys]
    return {name: key for keys in found for name, key in keys.items()} if found else gmap.NO_KEYS


def of_client(origin: Message | None) -> Kind:
    """The form that the client sent; the usual one if it was none of grps."""
    return origin.kind if isinstance(origin, AskedMessage) else Kind.GTENSORS


def of_reply(origin: Message | None, client: Kind) -> tuple[Kind | None, ...]:
    """The forms that a reply may have, the best first: that of the model, if its server speaks grps, and the `client`'s
    own."""
    return (origin.kind, client) if isinstance(origin, ToldMessage) else (client,)


def fit(kind: Kind | None, tensors: tuple[Tensor, ...], keys: gmap.Keys, *, told_apart: bool) -> Data | None:
    """`tensors` in a form, if they fit; gtensors and ndarray are none to be kept, since everything fits the former and
    servers make it of the latter. `keys` are `keys_of` where they came from; `told_apart`: as `gmap.fit` has it."""
    if kind is None:
        return None if tensors else (None, ())
    if kind is Kind.GMAP:
        return _entries(tensors, keys, told_apart)
    if kind not in (Kind.STR_DATA, Kind.BIN_DATA) or not is_one_element(tensors):
        return None
    # bytes fit no string, but every string fits bytes
    is_string = kind is Kind.STR_DATA and is_text(tensors[0])
    return (Kind.STR_DATA if is_string else Kind.BIN_DATA), element(tensors)


def _entries(tensors: tuple[Tensor, ...], keys: gmap.Keys, told_apart: bool) -> Data | None:
    entries = [entry for each in tensors if (entry := gmap.fit(each, keys, told_apart=told_apart)) is not None]
    places = {(gmap.map_of(each), each.name) for each in entries}
    return (Kind.GMAP, tuple(entries)) if len(tensors) == len(entries) == len(places) else None


def is_one_element(tensors: tuple[Tensor, ...]) -> bool:
    """Whether they are one element of BYTES."""
    return len(tensors) == 1 and tensors[0].datatype is Datatype.BYTES and tensors[0].elements == 1


def element(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """That element, as it stands in str_data and bin_data."""
    [tensor] = tensors
    return (tensor if tensor.shape == (1,) else replace(tensor, shape=(1,)),)
