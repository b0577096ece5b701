"""The backend's words for what a client names."""

from gateway.bridge.settings import RouteSettings
from gateway.bridge.signatures import Key
from gateway.bridge.upstream import Upstream
from gateway.core.errors import not_found
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Request


class Addressing:
    """Models, versions and companions under the names that the backend has for them."""

    def __init__(self, settings: RouteSettings, upstream: Upstream) -> None:
        self._settings = settings
        self._upstream = upstream

    def key(self, request: Request) -> Key:
        """The model and version that the backend is asked for, and the config that its signature depends on.

        Raises:
            GatewayError: NOT_FOUND if the backend cannot have such a version.
        """
        settings = self._settings
        model = request.model if settings.model is None else settings.model
        version = request.version if settings.version is None else settings.version
        if version:
            self._check_version(version, request)
        # Only a one-point model's sizes may depend on its config: elsewhere the question for metadata cannot carry it.
        config = request.parameters.get("config", "") if self._upstream.traits.points else ""
        return model, version, str(config)

    def companion(self, key: Key, operation: Operation) -> Key:
        """The companion model of a model."""
        model, version, config = key
        return self._settings.operations.get(operation) or f"{model}.{operation.value}", version, config

    def asked(self, request: Request, key: Key) -> Request:
        """The request with the backend's names."""
        model, version, _ = key
        return replace(request, model=model, version=version, translate=self._settings.translate)

    def _check_version(self, version: str, request: Request) -> None:
        possible = self._upstream.traits.versions
        if possible is None or not possible(version):
            raise not_found(
                f"model {request.model!r} has no version {version!r}: backend {self._upstream.name!r}"
                f' ({self._upstream.protocol}) has no such versions; `rewrite: {{version: ""}}` would drop it'
            )
