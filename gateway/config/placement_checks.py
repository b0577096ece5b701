"""Checks of `backends.*.placement` for keys that conflict with each other, with the protocol, or with the routes to the
backend."""

from collections.abc import Iterator

from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.document import Location
from gateway.config.partial import Parts
from gateway.config.placement import OF_LOADING
from gateway.config.problems import Finding
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol


def placement_findings(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Yield all findings about backends with placement."""
    for key, backend in parts.backends.items():
        if backend.placement is not None:
            above: Location = ("backends", key, "placement")
            if backend.servers is not None:
                text = "all servers that the gateway starts have the same models; remove one of the keys"
                yield Finding(above, f"{text}, `placement` or `servers`", at_key=True)
            yield from _of_loading(above, backend)
            if backend.protocol in catalog.protocols:
                yield from _of_protocol(above, backend, catalog.protocols[backend.protocol])
    yield from _loaded_by_two(parts, catalog)
    for at, route in parts.routes.items():
        for place, name in zip(route.backend_places, route.backends, strict=True):
            found = parts.backends.get(name)
            if route.passthrough and found is not None and found.placement is not None:
                text = (
                    "`placement` of backend {value} needs the model, but passthrough does not decode messages; remove "
                    "one of them"
                )
                yield Finding(("routes", at, *place), text)


def _of_loading(above: Location, backend: BackendConfig) -> Iterator[Finding]:
    placement = backend.placement
    assert placement is not None
    if not placement.loads:
        for key in sorted(placement.model_fields_set.intersection(OF_LOADING)):
            yield Finding((*above, key), "has an effect only with `loading: on_demand`; remove the key", at_key=True)
        return
    if placement.memory is not None and not placement.sizes:
        text = 'this key needs `sizes`, such as `{"*": 2GiB}`: servers do not report model sizes'
        yield Finding((*above, "memory"), text, at_key=True)
    if placement.sizes and placement.memory is None:
        yield Finding(
            (*above, "sizes"),
            "has an effect only with `memory`, the limit for the total size; add `memory`",
            at_key=True,
        )
    for glob, size in placement.sizes.items():
        if placement.memory is not None and size > placement.memory:
            text = "no server can load models of this size, which exceeds `memory`; raise `memory`"
            yield Finding((*above, "sizes", glob), text)


def _loaded_by_two(parts: Parts, catalog: Catalog) -> Iterator[Finding]:
    """Find servers that two backends with model loading share. Neither backend knows how much capacity the other
    uses."""
    loading = [
        (key, each)
        for key, each in parts.backends.items()
        if each.placement is not None and each.placement.loads and each.protocol in catalog.protocols
    ]
    seen: dict[EndpointAddress, str] = {}
    for key, backend in loading:
        for at, address in enumerate(backend.addresses):
            try:
                place = catalog.parse_endpoint(catalog.protocols[backend.protocol].transport, address)
            except ValueError:
                continue  # another check reports it
            other = seen.setdefault(place, key)
            if other != key:
                text = f"backend {other!r} also loads models on {{value}}, so both together could exceed its capacity"
                yield Finding(("backends", key, "endpoints", at, "address"), f"{text}; use one backend for both")


def _of_protocol(above: Location, backend: BackendConfig, protocol: Protocol) -> Iterator[Finding]:
    models = protocol.traits.models
    if not (models.named or models.may_be_named or models.one_at is not None):
        text = f"{protocol.name} requests do not name a model, which placement needs; remove the key"
        yield Finding(above, text, at_key=True)
    loads = backend.placement is not None and backend.placement.loads
    if loads and Operation.LOAD not in protocol.traits.servers.extensions:
        text = f"{protocol.name} servers cannot load models on demand; expected never, got on_demand"
        yield Finding((*above, "loading"), text)
