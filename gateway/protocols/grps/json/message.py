"""GrpsMessage as JSON: "the members of the protobuf message under their own names", defaults left out."""

from collections.abc import Callable
from reprlib import repr as shown
from typing import Any

from gateway import json
from gateway.core import bytes_elements
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.protocol import Limits
from gateway.core.types import Buffer, Tensor
from gateway.protocols.grps import client as requests
from gateway.protocols.grps.errors import OK
from gateway.protocols.grps.json.generic_tensor import (
    ARRAYS,
    Entry,
    read_ndarray,
    read_tensors,
    write_ndarray,
    write_tensor,
)
from gateway.protocols.grps.json.gmap import of_base64, read_entries, write_entries
from gateway.protocols.grps.json.quoted_numbers import without_quotes
from gateway.protocols.grps.message import GrpsMessage, GrpsStatus
from gateway.protocols.grps.schema import FAILURE, SUCCESS, UNKNOWN, Kind

_FLAGS: dict[object, int] = {"UNKNOWN": UNKNOWN, "SUCCESS": SUCCESS, "FAILURE": FAILURE, 0: 0, 1: 1, 2: 2}
_FLAG_NAMES = {flag: name for name, flag in _FLAGS.items() if isinstance(name, str)}


def read(body: Buffer, role: str, limits: Limits) -> GrpsMessage:
    """The message in `body`. `role` (input, output) is what its tensors are called in errors.

    Raises:
        DecodeError: not JSON, or not this message: two members with data, a member of a wrong type, a tensor that is
            not what it says.
        GatewayError: RESOURCE_EXHAUSTED, a tensor beyond the limit.
    """
    text = without_quotes(body if isinstance(body, bytes) else bytes(body))
    document = json.read(text, ARRAYS, values=limits.json_values, literals=True)
    members = [key for key in _READERS if document.get(key) is not None]
    if len(members) > 1:
        raise DecodeError(f"the message has data in {' and '.join(members)}, expected one of them")
    model = document.get("model", "")
    if not isinstance(model, str):
        raise DecodeError(f"model must be a string, not {shown(model)}")
    status = _read_status(document.get("status"))
    if not members:
        return GrpsMessage(model, status)
    [member] = members
    return GrpsMessage(model, status, _KINDS[member], _READERS[member](document[member], role, limits.message))


def check(body: Buffer, limits: Limits) -> None:
    """Raises DecodeError where `body` is not JSON, whatever it says."""
    json.read(without_quotes(bytes(body)), ARRAYS, values=limits.json_values, literals=True)


def _read_status(given: object) -> GrpsStatus | None:
    if given is None:
        return None
    if not isinstance(given, dict):
        raise DecodeError(f"status must be an object, not {shown(given)}")
    code, text, flag = given.get("code", 0), given.get("msg", ""), given.get("status", UNKNOWN)
    if type(code) is not int or not isinstance(text, str) or type(flag) not in (int, str) or flag not in _FLAGS:
        raise DecodeError(
            f"status is {shown(given)}, expected a code, a msg, and as status {', '.join(_FLAG_NAMES.values())}"
        )
    return GrpsStatus(code, text, _FLAGS[flag])


def _read_string(given: object, role: str, limit: int) -> tuple[Tensor, ...]:
    if not isinstance(given, str):
        raise DecodeError(f"str_data must be a string, not {shown(given)}")
    return (requests.text(given),)


def _read_bytes(given: object, role: str, limit: int) -> tuple[Tensor, ...]:
    """The Python server writes bin_data so where it is empty: the C++ one, and both otherwise, as the bytes alone."""
    if role == "input":
        raise DecodeError("bin_data should use application/octet-stream format.")  # the words of both servers
    return (requests.octets(of_base64(given, "bin_data")),)


def _read_array(given: Any, role: str, limit: int) -> tuple[Tensor, ...]:
    return (read_ndarray(given),)


def _read_entries(given: object, role: str, limit: int) -> tuple[Tensor, ...]:
    return read_entries(given)


_READERS: dict[str, Callable[[Any, str, int], tuple[Tensor, ...]]] = {
    "str_data": _read_string,
    "bin_data": _read_bytes,
    "gtensors": read_tensors,
    "gmap": _read_entries,
    "ndarray": _read_array,
}
_KINDS = {kind.value: kind for kind in Kind}


def write(grps: GrpsMessage, role: str, nan: str) -> tuple[bytes, ...]:
    """The text, in parts, of a message whose data is not bin_data. `nan` says how NaN and infinities are written.

    Raises:
        GatewayError: INVALID_ARGUMENT naming what has no form.
    """
    document: Entry = {}
    if grps.status is not None:
        document["status"] = _OK if grps.status is OK else _write_status(grps.status)
    if grps.model:
        document["model"] = grps.model
    if grps.kind is not None:
        document[grps.kind.value] = _WRITERS[grps.kind](grps.tensors, role, nan)
    try:
        return json.write_parts(document)
    except (TypeError, UnicodeEncodeError) as error:
        raise invalid_input("the name of the model or of a tensor is not UTF-8") from error


def _write_status(status: GrpsStatus) -> Entry:
    written: Entry = {"code": status.code, "msg": status.text, "status": _FLAG_NAMES[status.flag]}
    return {key: each for key, each in written.items() if each not in (0, "", "UNKNOWN")}


_OK = _write_status(OK)
"""Nearly every reply's."""


def _string(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    [element] = bytes_elements.unpack(tensors[0].data)
    return element.decode()


def _gtensors(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    written = [write_tensor(each, nan, f"{role} {each.name or at!r}") for at, each in enumerate(tensors)]
    return {"tensors": written} if written else {}


def _entries(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    return write_entries(tensors, nan)


def _ndarray(tensors: tuple[Tensor, ...], role: str, nan: str) -> object:
    return write_ndarray(tensors[0], nan)


_WRITERS: dict[Kind, Callable[[tuple[Tensor, ...], str, str], object]] = {
    Kind.STR_DATA: _string,
    Kind.GTENSORS: _gtensors,
    Kind.GMAP: _entries,
    Kind.NDARRAY: _ndarray,
}
