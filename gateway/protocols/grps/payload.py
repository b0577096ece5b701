"""Selects the payload of a GrpsMessage, and checks which tensors a payload can hold.

| payload    | tensors                                 |
|------------|-----------------------------------------|
| `gtensors` | any                                     |
| `str_data` | one BYTES element that is UTF-8         |
| `bin_data` | one BYTES element                       |
| `gmap`     | named tensors of one element each       |
| `ndarray`  | one tensor of numbers, in JSON only     |

A backend request uses the payload that its route sets (`translate.payload`). Without this setting, the request uses the
client's payload if this payload can still hold the tensors, or else gtensors.

A response to a client uses the first payload that can hold the outputs: the backend's payload (if the backend speaks
grps), then the client's payload, then gtensors. A client that requests an ndarray receives an ndarray or an error.

A decoded message keeps its payload for this selection. ClientMessage is the `origin` of a Request, and BackendMessage
is the `origin` of a Response.
"""

from typing import TypeAlias

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.frozen import extended, field, replace
from gateway.core.messages import Message
from gateway.core.tensors import Tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps.schema import GrpsMessage, GrpsStatus, Payload
from gateway.protocols.grps.strings import is_utf8

Data: TypeAlias = tuple[Payload | None, tuple[Tensor, ...]]
"""A message's payload and the tensors in it."""


def str_data(content: str) -> Tensor:
    """Return the tensor of a `str_data`. Raise GatewayError (INVALID_ARGUMENT) if the string has lone surrogates."""
    try:
        return Tensor("", Datatype.BYTES, (1,), bytes_elements.pack([content.encode()]), gmap.TEXT)
    except UnicodeEncodeError as error:
        raise invalid_input(f"{content[:40]!r} is not UTF-8") from error


def bin_data(element: bytes) -> Tensor:
    """Return the tensor of a `bin_data`."""
    return Tensor("", Datatype.BYTES, (1,), bytes_elements.pack([element]))


# --- Reading ---


def check_payload(grps: GrpsMessage, role: str) -> None:
    """Raise DecodeError if a message has two tensors of the same name, or an ndarray without numbers. `role` (input,
    output) is the word for its tensors in error messages."""
    if grps.payload is Payload.NDARRAY and not grps.tensors:
        raise DecodeError("ndarray holds its numbers in JSON only, expected gtensors")
    if grps.payload is not Payload.GMAP and len(grps.tensors) > 1:
        names = [tensor.name for tensor in grps.tensors if tensor.name]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise DecodeError(f"{role} {repeated!r} occurs twice")


def with_distinct_names(grps: GrpsMessage) -> tuple[tuple[Tensor, ...], gmap.GmapKeys]:
    """Return the message's tensors and their `gmap.GmapKeys`. The tensors of a gmap have distinct names."""
    return gmap.with_distinct_names(grps.tensors) if grps.payload is Payload.GMAP else (grps.tensors, gmap.NO_KEYS)


class ClientMessage(Message, frozen=True):
    """A client's message, with the fields that determine the payload of the response. They are its own `payload` (None
    if it contained no data), whether it requests an ndarray (`returns_ndarray`), and the `keys` of its gmap."""

    payload: Payload | None = Payload.GTENSORS
    returns_ndarray: bool = False
    keys: gmap.GmapKeys = field(default_factory=dict)


def client_message(message: Message, payload: Payload | None, returns_ndarray: bool, keys: gmap.GmapKeys) -> Message:
    """Return `message` as a ClientMessage, or unchanged if it contains gtensors and does not request an ndarray."""
    if payload is Payload.GTENSORS and not returns_ndarray:
        return message
    return extended(ClientMessage, message, payload, returns_ndarray, keys)


class BackendMessage(Message, frozen=True):
    """The parts of a backend's response that the gateway keeps for its response to the client.

    - `payload`: The payload of the response; None if it contained no data.
    - `names_model`: True if the response contains the model name.
    - `keys`: The keys of the response's gmap.
    - `outcome`: The status; None for the usual success status.
    - `content_type`: Over HTTP, the content type of a stream; empty for the usual type.
    """

    payload: Payload | None = None
    names_model: bool = False
    keys: gmap.GmapKeys = field(default_factory=dict)
    outcome: GrpsStatus | None = None
    content_type: str = ""


_WITHOUT_KEYS = {
    (payload, names_model): BackendMessage(payload=payload, names_model=names_model)
    for payload in (None, *Payload)
    for names_model in (False, True)
}


def backend_message(
    payload: Payload | None, names_model: bool, keys: gmap.GmapKeys, outcome: GrpsStatus | None = None
) -> BackendMessage:
    """Return the parts of a backend's response that the gateway keeps."""
    if not keys and outcome is None:
        return _WITHOUT_KEYS[payload, names_model]
    return BackendMessage(payload=payload, names_model=names_model, keys=keys, outcome=outcome)


# --- Choosing ---


def gmap_keys(*origins: Message | None) -> gmap.GmapKeys:
    """Return the merged gmap keys of all origins."""
    found = [each.keys for each in origins if isinstance(each, ClientMessage | BackendMessage) and each.keys]
    return {name: key for keys in found for name, key in keys.items()} if found else gmap.NO_KEYS


def client_payload(origin: Message | None) -> Payload | None:
    """Return the payload that the client sent. The result is None for a message without data, and gtensors for a client
    that speaks another protocol."""
    return origin.payload if isinstance(origin, ClientMessage) else Payload.GTENSORS


def reply_payloads(origin: Message | None, client: Payload | None) -> tuple[Payload | None, ...]:
    """Return the payloads to try for a response, in order of preference: the backend's payload, if the backend speaks
    grps, and then the `client` payload."""
    return (origin.payload, client) if isinstance(origin, BackendMessage) else (client,)


def fit(payload: Payload | None, tensors: tuple[Tensor, ...], keys: gmap.GmapKeys, *, from_gmap: bool) -> Data | None:
    """Return `tensors` as the data of `payload`, or None if they do not fit. str_data becomes bin_data if the element
    is not UTF-8. For gtensors and ndarray, the result is always None, because gtensors can hold any tensors, and
    servers convert an ndarray to gtensors.

    `keys` are the `gmap_keys` of the tensors' origins. `from_gmap` has the same meaning as in `gmap.fit`."""
    if payload is None:
        return None if tensors else (None, ())
    if payload is Payload.GMAP:
        return _entries(tensors, keys, from_gmap)
    if payload not in (Payload.STR_DATA, Payload.BIN_DATA) or not is_one_element(tensors):
        return None
    is_string = payload is Payload.STR_DATA and is_utf8(tensors[0])
    return (Payload.STR_DATA if is_string else Payload.BIN_DATA), one_element(tensors)


def _entries(tensors: tuple[Tensor, ...], keys: gmap.GmapKeys, from_gmap: bool) -> Data | None:
    entries = [entry for each in tensors if (entry := gmap.fit(each, keys, from_gmap=from_gmap)) is not None]
    distinct = {(gmap.map_of(each), each.name) for each in entries}
    return (Payload.GMAP, tuple(entries)) if len(tensors) == len(entries) == len(distinct) else None


def is_one_element(tensors: tuple[Tensor, ...]) -> bool:
    """Return whether the tensors consist of a single BYTES element."""
    return len(tensors) == 1 and tensors[0].datatype is Datatype.BYTES and tensors[0].elements == 1


def one_element(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the single element, with shape `[1]`, as the data of str_data or bin_data."""
    [tensor] = tensors
    return (tensor if tensor.shape == (1,) else replace(tensor, shape=(1,)),)
