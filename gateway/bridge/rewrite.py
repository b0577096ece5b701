"""Implements the key `rewrite` of a route, which maps the clients' names for models, versions and derivatives to the
backend's names.
"""

from gateway.bridge.backend import BackendSide
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import Key
from gateway.core.errors import invalid_input, not_found
from gateway.core.frozen import replace_struct
from gateway.core.operations import Operation
from gateway.core.requests import Request


class Rewrite:
    """Rewrites the names in a route's requests."""

    def __init__(self, settings: RouteSettings, backend: BackendSide) -> None:
        self.settings = settings
        self.backend = backend
        self._model, self._version = settings.model, settings.version
        self._has_one_version = bool(settings.version) and not settings.takes_one_version
        """True if clients can request only the version in `rewrite`, or omit the version. The gateway rejects any other
        version."""
        # Only one-point protocols can request metadata for a config.
        self._has_config = backend.traits.wire.points
        self._leaves_names = settings.model is None and not settings.version
        """True if the names of the model and the version stay unchanged."""

    def key(self, request: Request) -> Key:
        """Return the backend's names for the model and the version, and the config on which the signature depends.

        Raises:
            GatewayError: NOT_FOUND if the backend's protocol does not allow the version, or if the client requests a
                version other than the route's; INVALID_ARGUMENT if the config is not text.
        """
        model, version = self._model, self._version
        if model is None:
            model = request.model
        elif not isinstance(model, str):
            model = model(request.model)
        if version is None:
            version = request.version
        elif self._has_one_version and request.version and request.version != version:
            raise not_found(
                f"model {request.model!r} has no version {request.version!r}; use version {version!r}, or leave the "
                "version out"
            )
        if version:
            self._check_version(version, request)
        if not self._has_config:
            return model, version, ""
        config = request.parameters.get("config", "")
        if not isinstance(config, str):
            shown = str(config).lower() if isinstance(config, bool) else config
            raise invalid_input(
                f"parameter 'config' is {shown}, expected a text that is a JSON object, such as '{{\"level\": 1}}'"
            )
        return model, version, config

    def renamed(self, request: Request) -> Request:
        """Return the result of `outgoing` for the `key` of `request`, for callers that do not need the key."""
        if self._leaves_names and not request.version:
            return replace_struct(request, translate=self.settings)
        return self.outgoing(request, self.key(request))

    def companion(self, key: Key, operation: Operation) -> Key:
        """Return the key of a model's derivative model for `operation`."""
        model, version, config = key
        return self.settings.operations.get(operation) or f"{model}.{operation.value}", version, config

    def outgoing(self, request: Request, key: Key) -> Request:
        """Return the request to the backend, with the names in `key` and the route's settings for codecs."""
        model, version, _ = key
        return replace_struct(request, model=model, version=version, translate=self.settings)

    def _check_version(self, version: str, request: Request) -> None:
        is_version = self.backend.traits.models.versions
        if is_version is None or not is_version(version):
            raise not_found(
                f"model {request.model!r} has no version {version!r}: backend {self.backend.name!r}"
                f' ({self.backend.protocol}) has no versions like this; `rewrite: {{version: ""}}` on the route'
                " drops the client's version"
            )
