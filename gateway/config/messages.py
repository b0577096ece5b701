"""Convert pydantic's errors to messages in the terms of the configuration. `loading` calls them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from gateway.config.document import Location, Node
from gateway.config.fields import NESTED, VALUE
from gateway.config.policies import UNKNOWN_POLICY
from gateway.config.problems import Finding, listed, suggestion
from gateway.config.scalars import Referenced, other_words
from gateway.config.schema import keys_at
from gateway.core.datatypes import DATATYPES, meant_by

_LONGEST = 60

_PASSWORD = re.compile(r"(:)(?!//)[^@\s]+@")
"""The password of a URL, with or without a scheme: `redis://USER:PASSWORD@HOST`. The password can contain any character
except `@`."""


_TIME = re.compile(r"[0-9.]+ ?(ns|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)")
_SIZE = re.compile(r"[0-9.]+ ?([kKMGT]i?B?|B|bytes)")
_MOST_KEYS = 8
"""Maximum number of keys that a message lists. Messages about maps with more keys omit them."""

_BOUNDS = {
    **dict.fromkeys(("most", "largest", "longest", "highest", "maximum", "max"), "max"),
    **dict.fromkeys(("least", "smallest", "shortest", "lowest", "minimum", "min"), "min"),
}
"""First words of keys that set a limit in other programs, and the first word of such keys in this configuration."""
_SAMPLE = "sample"
_SAMPLE_WORDS = ("share", "sampling", "fraction", "percent", "percentage", "probability", "ratio")
"""Words that other programs use for the fraction of calls that `sample` sets."""


def flattened(errors: Any, above: Location = ()) -> Iterator[dict[str, Any]]:
    """Yield pydantic's errors, including nested errors, with their full locations."""
    for error in errors:
        location = (*above, *error["loc"])
        if error["type"] == NESTED:
            yield from flattened(error["ctx"]["errors"], location)
        elif error["type"] != "too_short" or not error["input"]:  # pydantic counts only valid items
            yield {**error, "loc": location}


def finding_of(error: dict[str, Any], schema: dict[str, Any], policies: Iterable[str] = ()) -> Finding:
    """Return the Finding for an error from `flattened`. `policies` are the names of all policies."""
    kind, location = error["type"], error["loc"]
    if kind == "extra_forbidden":
        known = keys_at(schema, location[:-1])
        key, colon, rest = str(location[-1]).partition(":")
        if colon and key in known:
            text = f"{location[-1]!r} is one word without a space after the colon; write {key}: {rest}"
            return Finding(location, text, at_key=True)
        if key in policies and "policies" in known:
            text = f"{key!r} is a policy, not a key here; write policies: [{{{key}: {{...}}}}]"
            return Finding(location, text, at_key=True)
        near = _same_meaning(str(location[-1]), known) or suggestion(str(location[-1]), known)
        return Finding(location, f"unknown key {location[-1]!r}{near}", at_key=True)
    if kind == "missing":
        return Finding(location[:-1], f"the key {location[-1]!r} is missing")
    message = _MESSAGES[kind](error) if kind in _MESSAGES else str(error["msg"])
    if kind in _NO_MAP and 0 < len(known := keys_at(schema, location)) <= _MOST_KEYS:
        message += f"; its keys are {', '.join(known)}"
    if location[-1:] == ("[key]",):  # pydantic's step for an error in the key itself
        return Finding(location[:-1], message.replace(VALUE, repr(location[-2])), at_key=True)
    return Finding(location, message, at_key=kind == UNKNOWN_POLICY)


def shown(node: Node) -> str:
    """Return a value in the form that messages show, without the password of a URL. If the value came from a reference,
    return the reference, because the value can be a secret."""
    match node.value:
        case Referenced() as referenced:
            return repr(referenced.source)
        case str(text):
            text = _PASSWORD.sub(r"\1***@", text)
            return repr(text if len(text) <= _LONGEST else text[:_LONGEST] + "...")
        case bool(flag):
            return "true" if flag else "false"
        case None:
            return "nothing"
        case dict():
            return "a map"
        case list():
            return "a list"
        case number:
            return str(number)


def _same_meaning(key: str, known: Collection[str]) -> str:
    """Return the suggestion in a message about an unknown key: the keys in `known` with the same meaning but another
    name, such as `max_models` for `most_models`. Empty if no known key has the same meaning."""
    first, _, rest = key.lower().partition("_")
    bound = _BOUNDS.get(first)
    if bound is None:
        same = [_SAMPLE] if first in _SAMPLE_WORDS and _SAMPLE in known else []
    elif rest and f"{bound}_{rest}" in known:
        same = [f"{bound}_{rest}"]
    else:
        same = sorted(each for each in known if each == bound or each.startswith(f"{bound}_"))
    return f"; did you mean {listed(map(repr, same))}?" if same else ""


def _choice(error: dict[str, Any]) -> str:
    options = re.findall(r"'([^']*)'", error["ctx"]["expected"])
    close = suggestion(error["input"], options) if isinstance(error["input"], str) else ""
    if options == list(DATATYPES) and isinstance(error["input"], str) and (datatype := meant_by(error["input"])):
        close = f"; did you mean {datatype.value!r}?"
    return f"expected {listed(options)}, got {VALUE}" + (close if "did you mean" in close else "")


def _text(error: dict[str, Any]) -> str:
    given = error["input"]
    quote = "; quote it" if isinstance(given, (bool, int, float)) else ""
    hint = f"; {other_words(given)}" if isinstance(given, bool) else ""
    return f"expected text, got {VALUE}{quote}{hint}"


def _bound(relation: str, key: str) -> Callable[[dict[str, Any]], str]:
    # pydantic formats the bounds of floats as floats: `above 0.0`.
    return lambda error: f"must be {relation} {str(error['ctx'][key]).removesuffix('.0')}, got {VALUE}"


def _list(error: dict[str, Any]) -> str:
    given = error["input"]
    if isinstance(given, str | int | float):
        return f"expected a list, got {VALUE}; write [{VALUE}]"
    return f"expected a list, got {VALUE}" + ("; each of its items begins with `- `" if given else "")


def _number(what: str) -> Callable[[dict[str, Any]], str]:
    def message(error: dict[str, Any]) -> str:
        given = error["input"] if isinstance(error["input"], str) else ""
        unit = "times are in seconds" if _TIME.fullmatch(given) else "sizes are in bytes"
        hint = f"; write it without a unit: {unit}" if _TIME.fullmatch(given) or _SIZE.fullmatch(given) else ""
        if given.endswith("%"):
            hint = "; write 0.1 for 10 %" if what == "a number" else "; write it without %"
        return f"expected {what}, got {VALUE}{hint}"

    return message


def _expected(what: str) -> Callable[[dict[str, Any]], str]:
    return lambda error: f"expected {what}, got {VALUE}"


_NO_MAP = ("model_type", "model_attributes_type", "dict_type", "mapping_type")

_MESSAGES: dict[str, Callable[[dict[str, Any]], str]] = {
    **dict.fromkeys(_NO_MAP, _expected("a map")),
    **dict.fromkeys(("tuple_type", "list_type"), _list),
    **dict.fromkeys(("int_type", "int_from_float"), _number("a whole number")),
    "float_type": _number("a number"),
    "bool_type": _expected("true or false"),
    "finite_number": _expected("a finite number"),
    "string_type": _text,
    "enum": _choice,
    "literal_error": _choice,
    "too_short": lambda error: "must not be empty",
    "string_too_short": lambda error: "must not be empty",
    "too_long": lambda error: f"expected at most {error['ctx']['max_length']} elements",
    "greater_than": _bound("above", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("below", "lt"),
    "less_than_equal": _bound("at most", "le"),
}
