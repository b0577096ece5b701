"""The key `policies`: an ordered list of maps. Each map has a single key, the policy's name; the value is the policy's
settings."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from gateway.config.fields import refusal, refusals
from gateway.config.problems import suggestion
from gateway.core.frozen import frozen

UNKNOWN_POLICY = "unknown_policy"


@frozen
class PolicyConfig:
    """A policy's name and its settings, an instance of the policy's `Settings`."""

    name: str
    settings: BaseModel

    @property
    def other_backends(self) -> Mapping[str, str]:
        """The backends in the policy's settings (not the route's own backends), by key."""
        keys: tuple[str, ...] = getattr(self.settings, "other_backends", ())
        return {key: getattr(self.settings, key) for key in keys}


def _policy(item: Any, info: ValidationInfo) -> PolicyConfig:
    if not isinstance(item, dict) or len(item) != 1:
        raise refusal("expected a map of one key, such as {timeout: {seconds: 2}}")
    [(name, settings)] = item.items()
    known = info.context or {}
    if name not in known:
        raise refusal(f"unknown policy {name!r}{suggestion(name, known)}", name, kind=UNKNOWN_POLICY)
    try:
        # `- name:` without a value is allowed if all settings have defaults.
        return PolicyConfig(name, known[name].Settings.model_validate({} if settings is None else settings))
    except ValidationError as error:
        raise refusals([{**each, "loc": (name, *each["loc"])} for each in error.errors(include_url=False)]) from error


class _OneKeyMap:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(_policy)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"type": "object"}  # `gateway.config.schema` adds the policies


Policies = tuple[Annotated[PolicyConfig, _OneKeyMap()], ...]
