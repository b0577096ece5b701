"""V2 REST's JSON bodies, and typed access to their fields. All codecs of this folder use it.

A field that is null counts as absent, because KServe and MLServer write null for missing values.
"""

from reprlib import repr as shown
from typing import Any, TypeAlias

from msgspec import UNSET

from gateway.core import json
from gateway.core.errors import DecodeError
from gateway.core.messages import JSON_HEADERS, Message
from gateway.core.protocol import Limits

JsonObject: TypeAlias = dict[str, Any]


def json_reply(document: object, status: int = 200) -> Message:
    """Return the response whose body is `document` as JSON."""
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=status)


def read_reply(reply: Message, limits: Limits) -> JsonObject:
    """Return the JSON object in a backend's response. Raises DecodeError for anything else."""
    # Triton writes NaN and Infinity if a configuration contains them
    return json.read(reply.body, {}, values=limits.json_values, literals=True)


def read_string(document: JsonObject, key: str) -> str:
    """Return the string at `key`; empty if `key` is absent or null. Raises DecodeError for anything else."""
    return checked_string(document.get(key), key)


def checked_string(given: object, key: str) -> str:
    """Return `given`, the value of `key`, or an empty string if it is absent (UNSET) or null. Raises DecodeError for
    anything else."""
    if isinstance(given, str):
        return given
    if given is not None and given is not UNSET:
        raise DecodeError(f"{key} must be a string, not {shown(given)}")
    return ""


def read_list(document: JsonObject, key: str) -> list[Any]:
    """Return the array at `key`; empty if `key` is absent or null. Raises DecodeError for anything else."""
    entries = document.get(key)
    if entries is not None and not isinstance(entries, list):
        raise DecodeError(f"{key} must be a list, not {shown(entries)}")
    return entries or []


def read_strings(document: JsonObject, key: str) -> tuple[str, ...]:
    """Return the strings of the array at `key`. Raises DecodeError for anything else."""
    texts = read_list(document, key)
    if not all(isinstance(text, str) for text in texts):
        raise DecodeError(f"{key} must be a list of strings, not {shown(texts)}")
    return tuple(texts)


def read_name(entry: object, role: str, position: int) -> str:
    """Return the `name` of `entry`, the object at `position` in a list of `role` (input, output, model).

    Raises:
        DecodeError: the entry is not an object, or has no name.
    """
    if not isinstance(entry, dict):
        raise DecodeError(f"{role} {position} must be an object, not {shown(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise DecodeError(f"{role} {position}: name must be a string, not {shown(name)}")
    return name


def checked_id(given: object) -> str | None:
    """Return `given`, a request's `id`, or None if it is absent (UNSET) or null. Raises DecodeError if it is not a
    string."""
    return None if given is None or given is UNSET else checked_string(given, "id")
