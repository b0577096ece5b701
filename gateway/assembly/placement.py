"""The placed backends of a Config, with the data about the models on their servers."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from gateway.assembly.routes import rewritten
from gateway.config.keys import Config
from gateway.config.placement import AgreementConfig, PlacementConfig
from gateway.core.frozen import replace
from gateway.core.globs import wildcards
from gateway.core.operations import Operation
from gateway.core.redis import connection_pool
from gateway.routing.backend import Backend
from gateway.routing.choice import EndpointChoice
from gateway.routing.placement.agreement import LoadCoordinator, LocalCoordinator, RedisAgreement
from gateway.routing.placement.inventory import Inventory, InventoryRefresher, SignatureComparison
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.plan import LoadSettings
from gateway.routing.placement.slots import PlacedSlots, placed
from gateway.routing.placement.table import Placements
from gateway.routing.sending import Sender
from gateway.routing.slots import LocalSlots

FIRST_SECONDS = 5.0
"""The maximum time that a start or a reload waits for the servers of placed backends to list their models, in
seconds."""


class Placed:
    """The slots of the placed backends among `backends`. `all` maps backend names to slots."""

    def __init__(self, backends: Mapping[str, Backend]) -> None:
        self.all = placed(backends)
        self._is_started = False

    async def first_round(self, before: "Placed | None" = None) -> None:
        """Query all servers for their models, and wait a few seconds for the responses.

        Skip servers that the backend of the same name in `before` has already queried."""
        asking = []
        for name, each in self.all.items():
            earlier = None if before is None else before.all.get(name)
            known = () if earlier is None else earlier.placements.stocks
            asking += [each.refresher.ask_soon(endpoint) for endpoint in each.local.endpoints if endpoint not in known]
        if asking:
            await asyncio.wait(asking, timeout=FIRST_SECONDS)

    def start(self) -> None:
        """Start keeping the data about the servers up to date, and loading the models that clients request."""
        self._is_started = True
        for each in self.all.values():
            each.start()

    def stop(self) -> None:
        """Stop the background tasks. Only the first call has an effect, because another Assembly might have taken
        over."""
        if self._is_started:
            self._is_started = False
            for each in self.all.values():
                each.stop()

    async def close(self) -> None:
        """Cancel all loads in progress, because the gateway is stopping."""
        for each in self.all.values():
            if each.loader is not None:
                await each.loader.close()


def placed_slots(
    local: LocalSlots,
    sender: Sender,
    keys: PlacementConfig,
    names: Iterable[str],
    new_choice: Callable[[], EndpointChoice],
) -> PlacedSlots:
    """Return the slots of a placed backend, including its table of models and the task that refreshes it. `names`
    contains the model names in routes."""
    protocol, clock = sender.protocol, local.clock
    inventory = Inventory(protocol, sender.target_of, tuple(names))
    placements = Placements(local.name, new_choice, clock)
    refresher = InventoryRefresher(placements, inventory.of, keys.interval, clock, is_busy=local.is_busy)
    models = protocol.traits.models
    if models.metadata_parts and models.trusted_metadata and models.signature is None:
        refresher.comparison = SignatureComparison(inventory.signature)
    loader = None
    if Operation.LOAD in protocol.traits.servers.extensions:
        settings = load_settings(keys, local.max_in_flight)
        loader = OperatedLoader(placements, settings, protocol, inventory, clock, agreement(keys.redis))
    ask = sender.without_slot
    return PlacedSlots(local, ask, placements, inventory, refresher, loader, is_on_demand=keys.loads)


def agreement(keys: AgreementConfig | None) -> LoadCoordinator:
    """Return a coordinator for model loading. It prevents conflicts if several gateways share the servers."""
    if keys is None:
        return LocalCoordinator()
    from redis.asyncio import Redis

    client = Redis.from_pool(connection_pool(keys.url.get_secret_value()))
    return RedisAgreement(client, keys.name)


def load_settings(keys: PlacementConfig, max_in_flight: int) -> LoadSettings:
    """Return the settings for model loading.

    If `max_in_flight` limits calls, each copy of a model accepts this number of calls."""
    settings = LoadSettings(
        keys.max_models, keys.memory, keys.sizes, keys.copies.least, keys.copies.most, idle=keys.idle,
        timeout=keys.timeout, pinned=keys.pinned, min_stay=keys.min_stay, share=keys.share,
    )  # fmt: skip
    return replace(settings, calls_per_copy=max_in_flight) if max_in_flight else settings


def named_models(config: Config, backend: str) -> list[str]:
    """Return the model names without wildcards that routes use for a backend, translated to the backend's names."""
    routes = [each for each in config.routes if backend in each.backends]
    found = (model for each in routes if isinstance(model := rewritten(each) or each.match.model, str))
    return list(dict.fromkeys(model for model in found if not wildcards(model)))
