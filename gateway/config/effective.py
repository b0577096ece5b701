"""The active configuration as plain JSON values, with all defaults and without secrets, for the admin port.

A value is secret if its key is declared as a secret (`fields.Secret`, or a policy's SecretStr), whatever its name.
Strings from a file or an environment variable can also be secrets, so the output contains the reference instead, such
as `${file:/path}`.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from pydantic import BaseModel, SecretStr

from gateway.bridge.graphs.graph import Graph
from gateway.config.forms import FormConfig
from gateway.config.keys import Config
from gateway.config.policies import PolicyConfig
from gateway.config.routes import RouteConfig
from gateway.core.address import Address
from gateway.core.tensors import Tensor

MASK = "***"
"""Replacement for every secret."""


def effective(config: Config) -> object:
    """Return `config` as maps, lists, strings and numbers."""
    return _plain(config, config.references)


def _plain(given: object, references: Mapping[str, str]) -> object:
    match given:
        case str() if given in references:
            return references[given]
        case SecretStr():
            return MASK
        case Enum():
            return _plain(given.value, references)
        case None | bool() | int() | str():
            return given
        case float():
            return given if math.isfinite(given) else str(given)
        case FormConfig():  # a missing template differs from null
            return _plain(given.document(), references)
        case Graph():
            return _plain(given.keys, references)
        case PolicyConfig():
            return {given.name: _plain(given.settings, references)}
        case Address():
            return references.get(str(given), str(given))
        case Tensor():
            return {
                "name": given.name,
                "datatype": given.datatype.value,
                "data": _plain(given.array.tolist(), references),
            }
        case RouteConfig() if "name" not in given.model_fields_set:  # a derived name contains texts that can be secrets
            return _plain(given.model_copy(update={"name": ""}), references)
        case BaseModel():
            keys = type(given).model_fields.items()
            return {key.alias or name: _plain(getattr(given, name), references) for name, key in keys}
        case Mapping():
            return {str(_plain(name, references)): _plain(each, references) for name, each in given.items()}
        case tuple() | list() | frozenset():
            return [_plain(each, references) for each in given]
        case bytes():
            return given.decode(errors="backslashreplace")
    if is_dataclass(given):
        return {each.name: _plain(getattr(given, each.name), references) for each in fields(given)}
    return str(given)
