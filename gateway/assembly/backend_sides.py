"""The backends of a Config in the form that Bridges call: wrapped in their policies, with the signatures of their
models. `assembly` creates them."""

from collections.abc import Mapping

from gateway.assembly.environment import Environment
from gateway.assembly.policing import Policing
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.signature_cache import SignatureCache
from gateway.config.backends import BackendConfig
from gateway.config.keys import Config
from gateway.core.operations import Operation
from gateway.core.protocol import resolve_traits
from gateway.core.transport import Handler
from gateway.policies.context import KnownModels
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend


class BackendSides:
    """All BackendSides. `all` maps backend names to BackendSides. `activities` contains, for the scaler, the call
    counts of some backends."""

    def __init__(
        self,
        config: Config,
        backends: Mapping[str, Backend],
        policing: Policing,
        activities: Mapping[str, Activity],
        environment: Environment,
    ) -> None:
        self._backends = backends
        self._policing = policing
        self._activities = activities
        self._clock = environment.clock
        self._rows_at_once = environment.rows_at_once
        self.all: dict[str, BackendSide] = {}
        for name, each in config.backends.items():
            self.all[name] = self._side(name, each)

    def _side(self, name: str, config: BackendConfig) -> BackendSide:
        backend = self._backends[name]
        protocol = backend.protocol
        _, traits = resolve_traits(protocol, config.batch, config.addresses, trust_metadata=config.trust_metadata)
        context = self._policing.of_backends[name]
        context.models = KnownModels(
            lambda model, version: self.all[name].signatures.get((model, version, "")),
            traits.wire.rows,
            Operation.CONFIG in traits.servers.extensions,
            config.forward_headers,
            config.limits,
        )
        activity = self._activities.get(name)
        call: Handler = backend if activity is None else activity.counted(backend)
        stream = backend.stream if activity is None else activity.counted_stream(backend.stream)
        handler = self._policing.around(call, config.policies, context)
        responses = self._policing.around_stream(stream, config.policies, context) if traits.wire.streams else None
        signatures = SignatureCache(handler, traits, self._clock, backend.local.count_joined)
        backend.on_recovery(signatures.drop_all)
        usual = (lambda: backend.capacity + 1) if backend.max_in_flight else ROWS_AT_ONCE
        window = self._rows_at_once or usual
        return BackendSide(name, protocol.name, traits, handler, signatures, window, responses, config.limits)
