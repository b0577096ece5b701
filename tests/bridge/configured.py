"""Servers that tell the configuration of a model."""

from collections.abc import Mapping

from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request
from tests.bridge.fakes import TENSORS, Backend, Compute
from tests.bridge.traits import adapted

TELLS_CONFIGS = adapted(TENSORS, servers={"extensions": {Operation.CONFIG: "model_configuration"}})
"""As TENSORS, from servers that tell the configuration of a model."""


class Configured(Backend):
    """A Backend that tells the configuration of each model in `configs`, or fails to with the error there. All have the
    signature `known`."""

    def __init__(
        self, configs: Mapping[str, Mapping[str, object] | Exception], known: Signature, *compute: Compute
    ) -> None:
        super().__init__(dict.fromkeys(configs, known), *compute)
        self._configs = configs

    async def __call__(self, request: Request) -> Answer:
        if request.operation is not Operation.CONFIG:
            return await super().__call__(request)
        self.asked.append(request)
        found = self._configs[request.model]
        if isinstance(found, Exception):
            raise found
        return dict(found)

    @property
    def configs_asked(self) -> list[str]:
        """The models whose configuration was asked."""
        return [request.model for request in self.asked if request.operation is Operation.CONFIG]
