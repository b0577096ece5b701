"""Handlers within their policies."""

from collections.abc import Mapping, Sequence

from gateway.config.policies import PolicyConfig
from gateway.core.transport import Handler, StreamHandler
from gateway.registry import Policy


def wrapped(handler: Handler, configs: Sequence[PolicyConfig], policies: Mapping[str, Policy]) -> Handler:
    """`handler` within its policies, the first one outermost."""
    for config in reversed(configs):
        handler = policies[config.name].wrap(handler, config.settings)
    return handler


def wrapped_stream(
    handler: StreamHandler, configs: Sequence[PolicyConfig], policies: Mapping[str, Policy]
) -> StreamHandler:
    """`handler` within its policies, the first one outermost."""
    for config in reversed(configs):
        handler = policies[config.name].wrap_stream(handler, config.settings)
    return handler
