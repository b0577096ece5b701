"""A model as a listener's clients see it, from live metadata. When a user opens the page, `ModelsOfClients` fetches the
metadata through the same path as a client's metadata request, and caches it for a minute."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from gateway.config.keys import Config
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.json.openapi import DescribedModel
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, merge
from gateway.core.requests import Request
from gateway.core.transport import Select

SECONDS_KEPT = 60.0
MOST_KEPT = 256
ASKED_AT_ONCE = 8

Key: TypeAlias = tuple[str, str, str, str]
"""The listener, the protocol, the model and the version."""


class ModelsOfClients:
    """The models that OpenAPI documents describe, for the configuration in use."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._config: Config | None = None
        self._kept: OrderedDict[Key, tuple[float, DescribedModel]] = OrderedDict()
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)

    async def get(
        self, config: Config, select: Select, listener: str, protocol: Protocol, model: str, version: str
    ) -> DescribedModel:
        """Return the model, with the names that clients of `protocol` use on the listener. `select` finds a request's
        destination.

        Raises:
            GatewayError: the error for an unknown model, or the backend's error.
            DecodeError: the model's metadata does not match the route.
        """
        if config is not self._config:
            self._config = config
            self._kept.clear()
        key = (listener, protocol.name, model, version)
        found = self._kept.get(key)
        if found is not None and found[0] > self._clock():
            return found[1]
        async with self._asking:
            described = await _ask(select, key, protocol)
        if config is self._config:
            self._kept[key] = (self._clock() + SECONDS_KEPT, described)
            self._kept.move_to_end(key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return described


async def _ask(select: Select, key: Key, protocol: Protocol) -> DescribedModel:
    listener, _, model, version = key
    models = protocol.traits.models
    asking = Request(Operation.METADATA, model, version, listener=listener, protocol=protocol.name)
    # if the metadata includes the operations, clients send only the first of these requests
    parts = models.metadata_parts if models.operations_part else models.metadata_parts[:1]
    answers = {part: await _answer(select, replace(asking, part=part)) for part in parts}
    signature = merge(tuple(answers.values()))
    if models.operations_part:
        signature = replace(signature, operations=answers[models.operations_part].operations)
    translate = select(replace(asking, operation=Operation.INFER)).translate
    return DescribedModel(model, version, signature, translate)


async def _answer(select: Select, request: Request) -> Signature:
    destination = select(request)
    answer = destination.local(request) if destination.local is not None else None
    if destination.handler is not None:
        answer = await destination.handler(request)
    if not isinstance(answer, Signature):
        raise DecodeError(f"the answer about model {request.model!r} is not a signature")
    return answer


def why_not(error: GatewayError | DecodeError) -> str:
    """Return the reason why a model cannot be described."""
    return error.message if isinstance(error, GatewayError) else str(error)
