"""The configuration that is in use, as plain values for JSON: with every default, and without secrets.

A value is a secret if its key is declared as one (`fields.Secret`, or a SecretStr of a policy). No name is guessed.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

from pydantic import BaseModel, SecretStr

from gateway.config.policies import PolicyConfig
from gateway.core.address import Address
from gateway.core.types import Tensor

MASK = "***"
"""Stands for every secret."""


def effective(given: object) -> object:
    """`given`, a Config or a value in it, as maps, lists, texts and numbers."""
    match given:
        case SecretStr():
            return MASK
        case Enum():
            return effective(given.value)
        case None | bool() | int() | str():
            return given
        case float():
            return given if math.isfinite(given) else str(given)
        case PolicyConfig():
            return {given.name: effective(given.settings)}
        case Address():
            return str(given)
        case Tensor():
            return {"name": given.name, "datatype": given.datatype.value, "data": effective(given.array.tolist())}
        case BaseModel():
            keys = type(given).model_fields.items()
            return {key.alias or name: effective(getattr(given, name)) for name, key in keys}
        case Mapping():
            return {str(effective(name)): effective(each) for name, each in given.items()}
        case tuple() | list() | frozenset():
            return [effective(each) for each in given]
        case bytes():
            return given.decode(errors="backslashreplace")
    if is_dataclass(given):
        return {each.name: effective(getattr(given, each.name)) for each in fields(given)}
    return str(given)
