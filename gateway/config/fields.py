"""Building blocks for the classes of keys: scalar types, values that YAML and Python represent differently, and errors
for validators. All files of keys and of checks in this folder use them."""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SecretStr,
    Strict,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gateway.core.documented import Documented
from gateway.core.requests import Nan

T = TypeVar("T")

NESTED = "nested"
"""The type of an error that contains other errors, in `errors` of its context. The locations of these errors are
relative to this error's location."""
VALUE = "{value}"
"""Placeholder in a message for the value at the message's location, or for the reference that the value came from."""


class Keys(Documented):
    """Base class for a map in the configuration. The attributes are the keys; their docstrings are the descriptions.

    Rules that types cannot express are methods of the class with the keys, and yield Findings. `findings` yields
    errors, even if some keys are invalid and therefore missing. `whole_findings` yields errors of a valid map, such as
    a missing key. `warnings` yields probable mistakes in a valid map. Rules about several maps of a configuration are
    functions in `name_checks`, `route_checks` and the other modules of checks."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def refusal(message: str, *location: str | int, kind: str = "refused") -> PydanticCustomError:
    """Return an error for a validator to raise. `message` can contain VALUE. `location` is relative to the validated
    value."""
    return refusals([{"type": kind, "loc": location, "msg": message}])


def refusals(errors: list[Any]) -> PydanticCustomError:
    """Return a single error that contains `errors`. Each item needs `type`, `loc` and `msg`, like a pydantic error."""
    return PydanticCustomError(NESTED, "several errors", {"errors": errors})


class Written:
    """Annotation for a value that `build` creates from a `form`, its YAML representation."""

    def __init__(self, form: Any, build: Callable[[Any], Any]) -> None:
        self.form = form
        self.build = build

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.build, handler.generate_schema(self.form))


class OneOrSeveral:
    """Annotation for a tuple of `model` that can also be a single map in YAML, without a list around it."""

    def __init__(self, model: type[Keys]) -> None:
        self.model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def listed(value: Any) -> Any:
            return [value] if isinstance(value, (dict, self.model)) else value

        return core_schema.no_info_before_validator_function(listed, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(schema)
        return {"anyOf": [several["items"], {**several, "minItems": 1}]}


def distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    """Return `items`. Raises pydantic's error if an item is listed twice."""
    for at, item in enumerate(items):
        if item in items[:at]:
            raise refusal(f"{VALUE} is listed twice", at)
    return items


def distinct_by(*keys: str, message: str = f"{VALUE} is listed twice") -> Callable[[Any], Any]:
    """Return a validator like `distinct`, for items that must differ in the value of each of `keys`."""

    def check(items: tuple[Any, ...]) -> tuple[Any, ...]:
        for key in keys:
            seen = set()
            for at, item in enumerate(items):
                value = getattr(item, key)
                if value in seen:
                    raise refusal(message, at, key)
                seen.add(value)
        return items

    return check


# RFC 9110, section 5.6.2
# --- Headers ---

_TOKEN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~")


def _header_name(text: str) -> str:
    name = text.lower()
    if not set(name) <= _TOKEN:
        raise refusal(f"{VALUE} is not a valid header name")
    return name


# RFC 9110, section 5.5, without characters beyond ASCII
_HEADER_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")


def _header_value(secret: SecretStr) -> SecretStr:
    if not _HEADER_VALUE.fullmatch(secret.get_secret_value()):
        raise refusal(
            "the value is invalid in a header: expected visible ASCII characters, with spaces only between them"
        )
    return secret


# --- Names, numbers and sizes ---

Name = Annotated[str, Field(min_length=1)]
HeaderName = Annotated[Name, AfterValidator(_header_name)]
Size = Annotated[int, Strict(), Field(ge=1)]
Seconds = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Period = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
"""Seconds, more than 0."""
_BYTES_WRITTEN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(B|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _bytes(given: Any) -> Any:
    """Return a text such as `64KiB` as a number of bytes. Return other values unchanged; the type validates them."""
    if not isinstance(given, str):
        return given
    found = _BYTES_WRITTEN.fullmatch(given)
    if found is None:
        raise refusal(f"expected a number of bytes, or one with a unit (KiB, MiB, GiB, TiB) such as 64KiB, got {VALUE}")
    return int(float(found[1]) * _UNITS[found[2]])


class OrText:
    """Annotation that also allows text in the JSON Schema. `limits` are the text's keywords, such as `minLength`."""

    def __init__(self, **limits: int | str) -> None:
        self._limits = limits

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "string", **self._limits}]}


Bytes = Annotated[Size, BeforeValidator(_bytes), OrText(pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i)?B$")]
"""Bytes, at least 1, as a number or as a text such as `64KiB`."""
Share = Annotated[float, Strict(), Field(ge=0, le=1)]
Secret = Annotated[SecretStr, Field(min_length=1)]
"""A text that is printed as `***`; `get_secret_value` returns the text."""
SecretHeaderValue = Annotated[Secret, AfterValidator(_header_value)]
"""The value of a header, as a Secret."""


def _each_once(given: Any) -> Any:
    """Return a map of header names unchanged, or refuse it if two names differ only in case, such as `Host` and
    `host`."""
    seen: dict[str, Any] = {}
    for name in given if isinstance(given, dict) else ():
        other = seen.setdefault(str(name).lower(), name)
        if other is not name:
            raise refusal(f"{name!r} and {other!r} are the same header", name)
    return given


EachHeaderOnce = BeforeValidator(_each_once)
"""Annotation for a map whose keys are header names."""
Flag = Annotated[bool, Strict()]
Names = Annotated[tuple[Name, ...], AfterValidator(distinct)]
SomeNames = Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(distinct)]


def _null_is_a_word(given: Any) -> Any:
    return "null" if given is None else given


NanKey = Annotated[Nan | None, BeforeValidator(_null_is_a_word)]
"""Representation of NaN and infinities. The YAML null in `nan: null` becomes the text `null`. None means that the key
is absent."""
