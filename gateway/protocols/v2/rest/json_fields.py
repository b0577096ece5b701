"""Members of V2's JSON objects, read with their types. Null is absent, as KServe and MLServer write it."""

from reprlib import repr as shown
from typing import Any, TypeAlias

from gateway.core.errors import DecodeError, WrongReplyError
from gateway.core.types import Answer, Response

Entry: TypeAlias = dict[str, Any]


def read_text(document: Entry, key: str) -> str:
    """The string at `key`, empty where it is absent or null. Raises DecodeError for anything else."""
    text = document.get(key)
    if text is not None and not isinstance(text, str):
        raise DecodeError(f"{key} must be a string, not {shown(text)}")
    return text or ""


def read_list(document: Entry, key: str) -> list[Any]:
    """The array at `key`, empty where it is absent or null. Raises DecodeError for anything else."""
    entries = document.get(key)
    if entries is not None and not isinstance(entries, list):
        raise DecodeError(f"{key} must be a list, not {shown(entries)}")
    return entries or []


def read_texts(document: Entry, key: str) -> tuple[str, ...]:
    """The strings of the array at `key`. Raises DecodeError for anything else."""
    texts = read_list(document, key)
    if not all(isinstance(text, str) for text in texts):
        raise DecodeError(f"{key} must be a list of strings, not {shown(texts)}")
    return tuple(texts)


def read_name(entry: object, role: str, position: int) -> str:
    """The `name` of the JSON object `entry`. Raises DecodeError where there is none."""
    if not isinstance(entry, dict):
        raise DecodeError(f"{role} {position} must be an object, not {shown(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise DecodeError(f"{role} {position}: name must be a string, not {shown(name)}")
    return name


def check_id(answer: Answer, sent: str) -> None:
    """Whether a response is that of the request with the id `sent`: "if specified this identifier must be returned". A
    server that returns none is left alone. Not for requests without an id, for which MLServer makes one up.

    Raises:
        WrongReplyError: it has another id.
    """
    told = answer.id if isinstance(answer, Response) else None
    if told and told != sent:
        raise WrongReplyError(f"the reply's id is {shown(told)}, expected {shown(sent)}, the request's")


def read_id(given: object) -> str | None:
    """A request's `id`. Raises DecodeError for anything but a string."""
    if given is not None and not isinstance(given, str):
        raise DecodeError(f"id must be a string, not {shown(given)}")
    return given
