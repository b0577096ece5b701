"""Wraps Handlers in the policies of routes and backends, and stores the states of these policies. A new policy requires
no change in this module (see `gateway/policies`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from gateway.assembly.environment import Environment
from gateway.assembly.forms import described_form
from gateway.assembly.routes import policy_states, reach_of_messages, stream_with_policies, with_policies
from gateway.config.keys import Config
from gateway.config.policies import PolicyConfig
from gateway.config.routes import OF_BACKENDS, RouteConfig
from gateway.core.frozen import replace
from gateway.core.surviving import all_surviving
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.context import MessageReach, PolicyContext
from gateway.policies.places import PolicyState
from gateway.routing.backend import Backend


class Policing:
    """The policies of one Config. Assembly creates this object; `backends` uses it for backends, and `routers` uses it
    for routes."""

    def __init__(self, config: Config, environment: Environment, backends: Mapping[str, Backend]) -> None:
        self._config = config
        self._environment = environment
        self._backends = backends
        self._routes = {each.name: each for each in config.routes}
        self.of_backends = {name: self._of_backend(name) for name in config.backends}
        """The context of each backend's policies."""
        self.states = list(self._states())
        """For each policy with a state, its location (a route's name, or `backends.NAME`), its name, and its state."""

    def around(self, handler: Handler, policies: Sequence[PolicyConfig], context: PolicyContext) -> Handler:
        """Wrap `handler` in these policies. The first policy is the outermost."""
        return with_policies(handler, policies, self._environment.policies, context)

    def around_stream(
        self, handler: StreamHandler, policies: Sequence[PolicyConfig], context: PolicyContext
    ) -> StreamHandler:
        """Wrap `handler` in these policies, like `around`, for streams."""
        return stream_with_policies(handler, policies, self._environment.policies, context)

    def of_route(self, config: RouteConfig) -> PolicyContext:
        """Return the context of a route's policies. The route's calls are `safe` to repeat if every possible backend is
        `safe`."""
        name, safe = config.main_backend, all(self._config.backends[each].safe for each in config.called_backends)
        names = [name, *(each for each in config.called_backends if each != name)]
        # Route policies run before the Bridge, so they see requests and responses in the client's own protocol
        # (`is_unfitted`). `reach` contains the parts of client messages that affect the servers' responses.
        reach = replace(reach_of_messages(self._config, names, self._environment.protocols), is_unfitted=True)
        return self._context(f"the route to backend {name!r}", names, safe, reach)

    def _of_backend(self, name: str) -> PolicyContext:
        """Return the context of the policies around calls to the backend `name`."""
        reach = reach_of_messages(self._config, [name], self._environment.protocols)
        return self._context(f"backend {name!r}", [name], self._config.backends[name].safe, reach)

    def _context(self, owner: str, names: Sequence[str], safe: bool, reach: MessageReach) -> PolicyContext:
        """Return the context of the policies around calls to these backends. The first backend is the main one."""
        backends = [self._backends[name] for name in names]

        def on_new_models(watcher: Callable[[], None]) -> None:
            for each in backends:
                each.on_recovery(watcher)  # also called when the models of a server have changed

        return PolicyContext(
            owner,
            safe=safe,
            endpoints=lambda: len(backends[0].serving),
            clock=self._environment.clock,
            reach=reach,
            on_new_models=on_new_models,
        )

    def _states(self) -> Iterator[tuple[str, str, PolicyState]]:
        places = [(f"{OF_BACKENDS}{name}", each.policies) for name, each in self._config.backends.items()]
        places += [(each.name, each.policies) for each in self._config.routes]
        for place, policies in places:
            for name, state in policy_states(place, policies, self._environment.policies):
                yield place, name, state

    def adopt(self, previous: "Policing") -> None:
        """After a reload, take over the counts and data of each state's predecessor: the state of the same policy at
        the same location."""
        for place, _, state in self.states:
            for place_before, _, before in previous.states:
                if place_before == place and type(before) is type(state):
                    is_unchanged = self.place_config(place) == previous.place_config(place)
                    state.take_over(before, is_unchanged=is_unchanged)

    def place_config(self, place: str) -> object:
        """Return the configuration on which responses at `place` depend: the configuration of the backend, or of the
        route and its backends, with the forms that the backends use."""
        route = self._routes.get(place)
        if route is None:
            return self._backend_config(place.removeprefix(OF_BACKENDS))
        return route, [self._backend_config(each) for each in route.backends]

    def _backend_config(self, name: str) -> object:
        backend = self._config.backends[name]
        return backend, described_form(self._config, backend.protocol)

    @property
    def caches(self) -> list[tuple[str, PolicyState]]:
        """Return the location and state of each policy that stores responses."""
        return [(place, state) for place, _, state in self.states if state.keeps_answers]

    async def close(self, seconds: float) -> None:
        """Close the policies' connections. Calls that the policies make outside requests have `seconds` seconds to
        end."""
        await all_surviving("closing a policy", (state.close(seconds) for _, _, state in self.states))
