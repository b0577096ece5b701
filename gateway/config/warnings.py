"""Warnings about valid settings that are probably a mistake, or have no effect, for `gateway check` and the log; and
about keys that probably were another word before a program read them as YAML 1.1. Warnings about a single section are
in its class."""

from collections.abc import Callable, Iterator

from gateway.config.access import HealthAuthConfig, ListenerAuthConfig
from gateway.config.access_checks import access_warnings
from gateway.config.catalog import Catalog, EndpointAddress
from gateway.config.document import Location, Node
from gateway.config.fields import VALUE
from gateway.config.form_checks import form_warnings, with_forms
from gateway.config.graph_checks import graph_warnings
from gateway.config.keys import Config
from gateway.config.partial import all_parts
from gateway.config.policy_checks import retries_of_unsent_calls, unbounded_backends
from gateway.config.problems import Finding, unused
from gateway.config.relaying import relaying
from gateway.config.scalars import other_words
from gateway.config.tls import ListenerTlsConfig
from gateway.config.unreachable import unreachable_routes
from gateway.core.address import Address
from gateway.core.protocol import Protocol
from gateway.protocols.json.form import PREFIX


def find_warnings(config: Config, catalog: Catalog) -> list[Finding]:
    """Return the warnings about a valid configuration. `catalog` contains the installed protocols; this function adds
    the forms that the configuration declares."""
    catalog, _ = with_forms(catalog, all_parts(config))
    return [finding for check in _CHECKS for finding in check(config, catalog)]


def _no_routes(config: Config, catalog: Catalog) -> Iterator[Finding]:
    if not config.routes:
        yield Finding(
            ("routes",), "`routes` is empty, so the gateway cannot answer any request; add a route", at_key=True
        )


def _unused_backends(config: Config, catalog: Catalog) -> Iterator[Finding]:
    named = {name for route in config.routes for name in route.backends}
    for route in config.routes:
        named.update(name for policy in route.policies for name in policy.other_backends.values())
    for name in config.backends:
        if config.routes and name not in named:
            yield Finding(
                ("backends", name), f"no route uses backend {name!r}; add a route, or remove the backend", at_key=True
            )


def _repeated_paths(config: Config, catalog: Catalog) -> Iterator[Finding]:
    for location, _, protocol, place in _endpoints(config, catalog):
        # If messages contain no model name, each model has its own server, which can be at any path. The path of a form
        # is in the form itself.
        models = protocol.traits.models
        if not place.prefix or not (models.named or models.may_be_named or protocol.name.startswith(PREFIX)):
            continue
        paths = tuple(pattern.partition(" ")[2] for pattern in protocol.patterns)
        for at, path in enumerate(paths):
            common = _common_segments(place.prefix, path)
            # Infinity's form also has the path without these segments. The gateway appends the first path of a form.
            rest = path.split("/")[1 + common :]
            if common and not (rest and "/" + "/".join(rest) in paths[:at]):
                text = f"{protocol.name} appends its own paths, such as {path}, to the path of {VALUE}"
                yield Finding(location, f"{text}; remove this part from the path")
                break


def _common_segments(prefix: str, path: str) -> int:
    """Return how many of the last segments of `prefix` are the first segments of the pattern `path`. 0 for a pattern
    that starts with a placeholder, or has no segments."""
    if path == "/" or path.startswith("/{"):
        return 0
    given, own = prefix.split("/")[1:], path.split("/")[1:]
    counts = (
        count
        for count in range(1, min(len(given), len(own)) + 1)
        if all(
            name in (segment, "") or name.startswith("{") for segment, name in zip(given[-count:], own, strict=False)
        )
    )
    return next(counts, 0)


def _same_places(config: Config, catalog: Catalog) -> Iterator[Finding]:
    first: dict[tuple[str, EndpointAddress], int] = {}
    for location, name, _, place in _endpoints(config, catalog):
        at = int(location[-2])
        same = first.setdefault((name, place), at)
        if same != at:
            yield Finding(location, f"{VALUE} is another spelling of endpoints[{same}]; remove one of them")


def _shared_endpoints(config: Config, catalog: Catalog) -> Iterator[Finding]:
    first: dict[tuple[str, EndpointAddress], str] = {}
    for location, name, protocol, place in _endpoints(config, catalog):
        other = first.setdefault((protocol.name, place), name)
        if config.backends[other].health != config.backends[name].health:
            text = f"backend {other!r} also has the endpoint {VALUE}, but with another `health`; make them equal"
            yield Finding(location, text)


def _loops(config: Config, catalog: Catalog) -> Iterator[Finding]:
    for location, _, _, place in _endpoints(config, catalog):
        for listener in config.listeners:
            if _leads_to(place, listener.bind):
                text = (
                    f"{VALUE} is the gateway's own listener {listener.name!r}: requests can loop; use the server's "
                    "address"
                )
                yield Finding(location, text)


def _unchecked_tritons(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find routes on which any client can crash a Triton server with a request."""
    spoken = {
        name: catalog.protocols[each.protocol].with_settings(each.settings) for name, each in config.backends.items()
    }
    for at, route in enumerate(config.routes):
        tritons = [name for name in route.backends if config.backends[name].flavor == "triton"]
        for listener in config.listeners if tritons else ():
            if listener.auth is not None or listener.bind.loopback or route.match.listener not in (None, listener.name):
                continue
            clients = [each for each in listener.protocols if route.match.protocol in (None, each)]
            if any(relaying(route, catalog.protocols[each], config, spoken).relay is not None for each in clients):
                text = (
                    f"listener {listener.name!r} requires no credentials, and its requests reach the Triton servers of"
                )
                text = f"{text} backend {tritons[0]!r} unread, which can crash them; set `check: full`"
                yield Finding(("routes", at), text, at_key=True)
                break


_OVER_IPV4 = frozenset({"localhost", "127.0.0.1", "0.0.0.0"})
_OVER_IPV6 = frozenset({"localhost", "::1", "::"})


def _leads_to(place: EndpointAddress, bind: Address) -> bool:
    if place.socket or bind.path:
        return place.socket == bind.path
    if place.port != bind.port:
        return False
    if bind.host in ("0.0.0.0", "::") and place.host.startswith("127."):
        return True
    hosts = {place.host, bind.host}
    if bind.host == "::":  # can also accept IPv4
        return hosts <= _OVER_IPV4 | _OVER_IPV6
    return len(hosts) == 1 or hosts <= _OVER_IPV4 or hosts <= _OVER_IPV6


def _endpoints(config: Config, catalog: Catalog) -> Iterator[tuple[Location, str, Protocol, EndpointAddress]]:
    """Yield each endpoint, with its location in the file, its backend's name and protocol, and its EndpointAddress."""
    for name, backend in config.backends.items():
        protocol = catalog.protocols[backend.protocol]
        for at, address in enumerate(backend.addresses):
            place = catalog.parse_endpoint(protocol.transport, address)
            yield ("backends", name, "endpoints", at, "address"), name, protocol, place


def _within_sections(config: Config, catalog: Catalog) -> Iterator[Finding]:
    yield from config.metrics.warnings(("metrics",))
    yield from config.log.access.warnings(("log", "access"))
    if config.tracing is not None:
        yield from config.tracing.warnings(("tracing",))
    for name, backend in config.backends.items():
        yield from backend.warnings(("backends", name), catalog)
    for location, tls in all_parts(config).tls_sections():
        yield from tls.warnings(location)


def _unused_in_metrics(config: Config, catalog: Catalog) -> Iterator[Finding]:
    if "metrics" in config.model_fields_set and config.metrics.enabled and config.health is None:
        yield unused(("metrics",), "the metrics page is on the health port; add `health: {bind: HOST:PORT}`")
    if not config.metrics.enabled and config.health is not None and config.health.auth is not None:
        yield unused(("health", "auth"), "it applies to /metrics, but `metrics.enabled` is false")


def _unused_in_certificates(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find entries for client certificates that no listener requests."""
    places = [(each.auth, each.tls) for each in config.listeners]
    asks = any(_asks(auth, tls) for auth, tls in places)
    if config.health is not None:
        asks = asks or _asks(config.health.auth, config.health.tls)
    if config.auth is not None and config.auth.certificates and not asks:
        text = "no listener with `auth` requests certificates; add `client_ca` and `client` to the listener's `tls`"
        yield unused(("auth", "certificates"), text)


def _asks(auth: ListenerAuthConfig | HealthAuthConfig | None, tls: ListenerTlsConfig | None) -> bool:
    accepts = auth is not None and (auth.accept is None or "certificates" in auth.accept)
    return accepts and tls is not None and tls.client != "none"


def _unused_in_permissions(config: Config, catalog: Catalog) -> Iterator[Finding]:
    given = {name for principal in config.principals.values() for name in principal.permissions}
    claimed = config.auth is not None and any(each.permissions for each in config.auth.jwt)
    for name in config.permissions:
        if name not in given and not claimed:
            yield unused(("permissions", name), "no principal uses it; add it to a principal's `permissions`")
    if config.principals and config.auth is None and all(each.auth is None for each in config.listeners):
        yield unused(("principals",), "authentication is off; add `auth` at the top level and to listeners")


_CHECKS: tuple[Callable[[Config, Catalog], Iterator[Finding]], ...] = (
    _no_routes,
    form_warnings,
    unreachable_routes,
    _unused_backends,
    _repeated_paths,
    _same_places,
    _shared_endpoints,
    _loops,
    _unchecked_tritons,
    graph_warnings,
    unbounded_backends,
    retries_of_unsent_calls,
    access_warnings,
    _within_sections,
    _unused_in_metrics,
    _unused_in_certificates,
    _unused_in_permissions,
)


_WRITTEN = {"true": "y", "false": "n"}


def boolean_keys(node: Node, above: Location = ()) -> Iterator[Finding]:
    """Yield a finding for each key `true` or `false` in a document. Tensors and models rarely have these names, but
    programs that read YAML 1.1, such as Helm, turn a key `y` or `n` into a boolean, and write the boolean as this
    text."""
    match node.value:
        case dict(items):
            for key, child in items.items():
                if key in _WRITTEN:
                    quoted = f'quote the original key, such as "{_WRITTEN[key]}"'
                    text = f"the key {key!r} is probably another word: {other_words(key == 'true')}; {quoted}"
                    yield Finding((*above, key), text, at_key=True)
                yield from boolean_keys(child, (*above, key))
        case list(items):
            for at, child in enumerate(items):
                yield from boolean_keys(child, (*above, at))
