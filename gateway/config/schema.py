"""Build the configuration's JSON Schema, for editors, for `docs/configuration`, and for the keys that messages
suggest."""

from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.forms import JSON
from gateway.config.keys import Config

Schema = dict[str, Any]


def json_schema(catalog: Catalog) -> Schema:
    """Return the JSON Schema (draft 2020-12) of a configuration with the protocols and policies of `catalog`.

    The schema describes the values as written in YAML, where every scalar can be a `${REFERENCE}`. Callers share the
    schema, and must not modify it."""
    policies = tuple((name, policy.Settings) for name, policy in sorted(catalog.policies.items()))
    return _json_schema(tuple(sorted(catalog.protocols)), policies)


@lru_cache(
    maxsize=4
)  # cached because building the schema takes longer than all other work for a configuration with an error
def _json_schema(protocols: tuple[str, ...], named_policies: tuple[tuple[str, type[BaseModel]], ...]) -> Schema:
    policies = dict(named_policies)
    models: list[type[BaseModel]] = [Config, *policies.values()]
    references, whole = models_json_schema([(model, "validation") for model in models])
    definitions = whole["$defs"]
    items = {
        name: {**references[model, "validation"], "description": model.__doc__} for name, model in policies.items()
    }
    _name_policies(definitions, items)
    _name_protocols(definitions, list(protocols))
    top = references[Config, "validation"]["$ref"].rpartition("/")[2]
    described = {**definitions.pop(top), "$defs": definitions}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_with_references(described)}


def keys_at(schema: Schema, location: Location) -> list[str]:
    """Return the keys of the map at `location`."""
    return list(below(schema, location).get("properties", ()))


def below(schema: Schema, location: Location) -> Schema:
    """Return the schema of the value at `location`, or {}."""
    part = dereferenced(schema, schema)
    for step in location:
        part = dereferenced(schema, _child(part, step))
    return part


def dereferenced(schema: Schema, part: Schema) -> Schema:
    """Return the schema that `part` references by `$ref`, or the schema `X` if `part` is `X or null`; otherwise return
    `part`."""
    for option in part.get("anyOf", ()):
        if option.get("type") != "null":
            return dereferenced(schema, option)
    if "$ref" in part:
        return dereferenced(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])
    return part


_REFERENCE: Schema = {"type": "string", "pattern": r"\$\{"}
_SCALARS = ("boolean", "integer", "number")
_ANNOTATIONS = ("default", "description", "title")


def _with_references(part: Any) -> Any:
    """Return `part` in which every flag, number and enumeration can also be a reference."""
    if isinstance(part, list):
        return [_with_references(each) for each in part]
    if not isinstance(part, dict):
        return part
    if "enum" in part or part.get("type") in _SCALARS:
        about = {key: each for key, each in part.items() if key in _ANNOTATIONS}
        rest = {key: each for key, each in part.items() if key not in _ANNOTATIONS}
        return {**about, "anyOf": [rest, _REFERENCE]}
    return {key: each if key in ("default", "examples") else _with_references(each) for key, each in part.items()}


def _child(part: Schema, step: str | int) -> Schema:
    if isinstance(step, int):
        # one map can replace a list of maps
        child = part.get("items", part if "properties" in part else None)
    else:
        child = part.get("properties", {}).get(step, part.get("additionalProperties"))
    return child if isinstance(child, dict) else {}


def _name_policies(definitions: Schema, settings: Schema) -> None:
    item = {
        "type": "object",
        "properties": settings,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    for owner in ("BackendConfig", "RouteConfig"):
        definitions[owner]["properties"]["policies"]["items"] = item


def _name_protocols(definitions: Schema, names: list[str]) -> None:
    _name_one(definitions["ListenerConfig"]["properties"]["protocols"]["items"], names)
    for owner in ("BackendConfig", "ReferenceConfig"):
        _name_one(definitions[owner]["properties"]["protocol"], names)
    for option in definitions["MatchConfig"]["properties"]["protocol"]["anyOf"]:
        if option["type"] == "string":
            _name_one(option, names)


def _name_one(text: Schema, names: list[str]) -> None:
    """Restrict a string to `names` and names of forms."""
    text["anyOf"] = [{"type": "string", "enum": names}, {"type": "string", "pattern": f"^{JSON}(:|$)"}]
