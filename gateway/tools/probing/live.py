"""`gateway check --live`: checks whether a configuration's routes match the backends' servers, and whether the tensors
of graph steps match the models on the servers. The check queries the models of every fixed endpoint, but opens no
listener and runs no model."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from gateway.assembly import registry
from gateway.assembly.assembly import Assembly
from gateway.assembly.certificates import Certificates, alpn
from gateway.assembly.connecting import connect, parse_address
from gateway.assembly.environment import Connect, Connections, Environment
from gateway.assembly.forms import PREFIX, READY, described_form, tells_readiness
from gateway.assembly.routes import route_settings
from gateway.assembly.server_info import INFO
from gateway.bridge.graphs.model import GraphModel
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.graphs.types import UnknownSignatureError
from gateway.client import AsyncClient, ClientError, ConnectError, ServerKind, Unsupported
from gateway.client.credentials import AUTHORIZATION
from gateway.config.backends import BackendConfig
from gateway.config.document import Location
from gateway.config.keys import Config
from gateway.config.problems import Finding
from gateway.config.routes import RouteConfig
from gateway.config.tls import BackendTlsConfig
from gateway.core.errors import GatewayError
from gateway.core.frozen import frozen
from gateway.core.globs import wildcards
from gateway.core.messages import Headers
from gateway.core.models import max_batch_size
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Request
from gateway.policies import gather
from gateway.tools.probing.asking import ServerAccess, ask_forms
from gateway.tools.probing.candidates import FormCandidate
from gateway.tools.probing.fit import Misfit, differences, misfits, missing_model, of_gather, undescribed, wrong_version
from gateway.tools.probing.listing import ServerModels, list_models
from gateway.tools.probing.probe import MOST_SECONDS, client, probe
from gateway.tools.probing.recognition import EVIDENCE, SILENT_TOO

AS_NOBODY = ServerAccess()
"""The access of a client without headers or a key."""

OK, WARNING, ERROR = "ok", "warning", "error"
_OWN = "a server of `reference`, which starts with the gateway"


@frozen
class Row:
    """The result for one route at one endpoint. `model` is the model's name at the backend; `result` is OK, WARNING or
    ERROR."""

    route: str
    backend: str
    endpoint: str
    model: str
    result: str
    text: str


@frozen
class Live:
    """The results of a live check: a row for each route and endpoint, and the findings with their positions in the
    file."""

    rows: tuple[Row, ...]
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


@frozen
class Answered:
    """An endpoint's response. `error` explains why the response is missing."""

    models: ServerModels
    error: str = ""
    batch_sizes: Mapping[str, int] = field(default_factory=dict)
    """The max_batch_size of the queried models."""
    undescribed: frozenset[str] = frozenset()
    """The models for which the server reports neither tensors nor readiness."""
    is_own: bool = False
    """True if the gateway itself starts this server (`reference`)."""


async def check_live(
    config: Config,
    protocols: Mapping[str, Protocol],
    seconds: float,
    access: ServerAccess = AS_NOBODY,
    on_answer: Callable[[], None] = lambda: None,
) -> Live:
    """Query every endpoint, and compare the responses with the routes. `access` is a gateway client's access; each
    backend gets the headers in its `forward_headers`. `seconds` is an endpoint's timeout for each response; its total
    limit is MOST_SECONDS times `seconds`. Call `on_answer` for each endpoint that has responded or timed out."""
    places = [(name, at) for name, each in config.backends.items() for at in range(len(each.endpoints))]

    async def ask(name: str, at: int) -> Answered:
        try:
            return await _ask(config, protocols, access, seconds, name, at)
        finally:
            on_answer()

    asked = await asyncio.gather(*(ask(*place) for place in places))
    answers = dict(zip(places, asked, strict=True))
    rows: list[Row] = []
    errors: list[Finding] = []
    warnings: list[Finding] = []
    for (name, at), answer in answers.items():
        if answer.error:
            place: Location = ("backends", name, "endpoints", at, "address")
            errors.append(Finding(place, f"backend {name!r}: {answer.error}"))
    for number, route in enumerate(config.routes):
        clients = _clients(config, route, protocols)
        for name in dict.fromkeys(route.called_backends):
            backend = config.backends[name]
            if not backend.endpoints:
                rows.append(
                    Row(route.name, name, "-", "-", WARNING, "not checked, because discovery finds the endpoints")
                )
            for at, endpoint in enumerate(backend.endpoints):
                answer = answers[name, at]
                if answer.is_own:
                    rows.append(Row(route.name, name, endpoint.address, _name(route) or "(any)", OK, _OWN))
                    continue
                found = list(_compare(route, backend, answer, clients, protocols))
                if _is_elsewhere(
                    _name(route), backend, answer, [answers[place] for place in places if place[0] == name]
                ):
                    found = []
                for each in found:
                    text = f"backend {name!r} at {endpoint.address}: {each.text}"
                    finding = Finding(("routes", number, *each.location), text)
                    (warnings if each.is_warning else errors).append(finding)
                rows.append(_row(route.name, name, endpoint.address, _name(route), answer, found))
    for name, model, how in _differences(config, protocols, answers):
        rows.append(Row("-", name, "-", model, WARNING, how))
        warnings.append(Finding(("backends", name, "endpoints"), f"backend {name!r}: model {model!r}: {how}"))
    if config.models:
        for graph, misfit in (await graph_misfits(config, protocols, seconds * MOST_SECONDS, access)).items():
            result = OK if misfit is None else WARNING if misfit.is_warning else ERROR
            rows.append(Row(f"models.{graph}", "-", "-", graph, result, "" if misfit is None else misfit.text))
            if misfit is not None:
                (warnings if misfit.is_warning else errors).append(Finding(misfit.location, misfit.text))
    return Live(tuple(rows), tuple(errors), tuple(warnings))


def _is_elsewhere(name: str, backend: BackendConfig, answer: Answered, all: Sequence[Answered]) -> bool:
    """Return True if a server of a backend with `placement` does not have the model, but another server has it, or the
    gateway loads it on demand."""
    if backend.placement is None or answer.error or _has(answer, name):
        return False
    is_listed = any(each.name == name for other in all for each in other.models.models)
    return any(_has(other, name) for other in all) or (backend.placement.loads and is_listed)


def _has(answer: Answered, name: str) -> bool:
    return any(each.name == name and not each.error for each in answer.models.models)


def _differences(
    config: Config, protocols: Mapping[str, Protocol], answers: Mapping[tuple[str, int], Answered]
) -> Iterator[tuple[str, str, str]]:
    """Yield the backend name, the model and a description for each difference between servers of one backend."""
    for name, backend in config.backends.items():
        servers = {each.address: answers[name, at].models for at, each in enumerate(backend.endpoints)}
        is_trusted = protocols[backend.protocol].traits.models.trusted_metadata or backend.trust_metadata
        for model, how in differences(servers, with_signatures=is_trusted):
            yield name, model, how


def _row(route: str, backend: str, endpoint: str, model: str, answer: Answered, found: Sequence[Misfit]) -> Row:
    if answer.error:
        return Row(route, backend, endpoint, model, ERROR, answer.error)
    result = OK if not found else WARNING if all(each.is_warning for each in found) else ERROR
    text = "; ".join(each.text for each in found)
    if not text and not model:
        text = f"{len(answer.models.own)} models"
    return Row(route, backend, endpoint, model or "(any)", result, text)


def _name(route: RouteConfig) -> str:
    """Return the name of the route's model at the backend, or an empty string if the route matches several models or
    any model."""
    if route.match.model is not None and not wildcards(route.match.model):
        settings = route_settings(route)
        return settings.model if isinstance(settings.model, str) else route.match.model
    return route.rewrite.model if route.rewrite.model and "{" not in route.rewrite.model else ""


def _clients(config: Config, route: RouteConfig, protocols: Mapping[str, Protocol]) -> tuple[Protocol, ...]:
    """Return the protocols of clients whose requests can match the route."""
    match = route.match
    names = {
        name
        for each in config.listeners
        if match.listener in (None, each.name)
        for name in each.protocols
        if match.protocol in (None, name)
    }
    return tuple(protocols[each] for each in sorted(names))


def _compare(
    route: RouteConfig, backend: BackendConfig, answer: Answered, clients: Sequence[Protocol],
    protocols: Mapping[str, Protocol],
) -> Iterator[Misfit]:  # fmt: skip
    name, protocol = _name(route), protocols[backend.protocol]
    if answer.error or route.passthrough or not name:
        return
    if not _tells_models(protocol):
        return
    model = next((each for each in answer.models.models if each.name == name), None)
    missing = missing_model(name, answer.models, model, bool(route.rewrite.model))
    if missing is not None:
        yield missing
        return
    if model is None:
        return
    settings = route_settings(route)
    if name in answer.undescribed and settings.signature is None:
        yield undescribed(name, protocol.name)
    rewritten = route.rewrite.version
    wrong = wrong_version(_version(route), model, is_rewritten=rewritten is not None)
    if wrong is not None:
        yield wrong
    if model.signature is not None and (protocol.traits.models.trusted_metadata or backend.trust_metadata):
        yield from misfits(settings, settings.signature, model.signature, clients)
    for gathers in _gathers(backend):
        found = of_gather(name, model.signature, answer.batch_sizes.get(name), gathers, protocol.traits.wire.rows)
        if found is not None:
            yield found


def _gathers(backend: BackendConfig) -> list[gather.Settings]:
    return [each.settings for each in backend.policies if isinstance(each.settings, gather.Settings)]


async def _batch_sizes(
    asked: AsyncClient, backend: BackendConfig, protocol: Protocol, names: Sequence[str]
) -> dict[str, int]:
    """Return the max_batch_size of each model, if the server reports it and a policy needs it."""
    found: dict[str, int] = {}
    if not _gathers(backend) or Operation.CONFIG not in protocol.traits.servers.extensions:
        return found
    for name in names:
        with suppress(ClientError):
            config = await asked.ask(Request(Operation.CONFIG, name))
            most = max_batch_size(config) if isinstance(config, Mapping) else None
            if most is not None:
                found[name] = most
    return found


async def _undescribed(asked: AsyncClient, models: ServerModels) -> frozenset[str]:
    """Return the models for which the server reports neither tensors nor readiness."""
    found = set()
    for each in models.models:
        if each.signature is not None and not each.signature.inputs and not each.signature.outputs:
            try:
                await asked.ready(each.name)
            except Unsupported:
                found.add(each.name)
            except ClientError:
                pass  # the server returns an error for this model, so it has the path
    return frozenset(found)


def _tells_models(protocol: Protocol) -> bool:
    """Return whether servers of the protocol list or describe their models."""
    return bool(protocol.traits.models.metadata_parts) and protocol.names_models


def _version(route: RouteConfig) -> str:
    if route.rewrite.version is not None:
        return route.rewrite.version
    version = route.match.version or ""
    return "" if wildcards(version) else version


async def _ask(
    config: Config, protocols: Mapping[str, Protocol], access: ServerAccess, seconds: float, name: str, at: int
) -> Answered:
    """Query one endpoint. If it does not respond, probe whether it uses another protocol."""
    backend = config.backends[name]
    names = sorted({_name(route) for route in config.routes if name in route.called_backends} - {""})
    try:
        place = backend.endpoints[at].address
        kind = ServerKind(backend.flavor, form=described_form(config, backend.protocol))
        asked = client(backend.protocol, place, access.of_backend(backend), seconds, kind)
        async with asked, asyncio.timeout(seconds * MOST_SECONDS):
            if _tells_models(protocols[backend.protocol]):
                models = await list_models(asked, names)
                sizes = await _batch_sizes(asked, backend, protocols[backend.protocol], names)
                answer = Answered(models, batch_sizes=sizes, undescribed=await _undescribed(asked, models))
            else:
                ready = await asked.ready()
                answer = Answered(
                    ServerModels(), "" if ready else "the server is unreachable or not ready; check that it runs"
                )
    except TimeoutError:
        return Answered(
            ServerModels(), f"no answer within {seconds * MOST_SECONDS:g} s; raise --timeout for slow servers"
        )
    except (ClientError, ValueError) as error:
        if isinstance(error, ConnectError) and _is_own(config, backend.endpoints[at].address):
            return Answered(ServerModels(), is_own=True)
        answer = Answered(ServerModels(), str(error))
    other_form = await _other_form(config, backend, at, access.of_backend(backend), seconds, is_ready=not answer.error)
    if other_form:
        return Answered(ServerModels(), other_form)
    if not answer.error:
        if tells_readiness(config, backend.protocol) or any(not each.error for each in answer.models.models):
            return answer
        if backend.protocol.startswith(PREFIX):
            # A server with a custom JSON API might also answer at the paths of other forms.
            protocols = {name: each for name, each in protocols.items() if not name.startswith(PREFIX)}
    other = await _other_protocol(backend, at, protocols, access.of_backend(backend), seconds)
    return Answered(ServerModels(), other) if other else answer


async def _other_form(
    config: Config, backend: BackendConfig, at: int, access: ServerAccess, seconds: float, *, is_ready: bool
) -> str:
    """Return the error for an endpoint that needs a form related to the backend's built-in form, such as
    `ray-applications` instead of `ray`, or an empty string. Both forms use the same readiness path, but the server's
    other responses show the difference. If the endpoint has a path and the server is ready, no response shows the form,
    and the result is empty."""
    name = backend.protocol
    if name not in EVIDENCE or name in SILENT_TOO or described_form(config, name) is not None:
        return ""
    scheme, separator, rest = backend.endpoints[at].address.rpartition("://")
    host, _, path = rest.partition("/")
    root = f"{scheme}{separator}{host}"
    if is_ready and path:
        return ""
    found = await ask_forms(FormCandidate(READY[name], root), READY, access, seconds)
    names = [each.candidate.protocol.name for each in found]
    others = [each.removeprefix(PREFIX) for each in names if each != name and EVIDENCE[name][0] in EVIDENCE[each]]
    if not others or (name in names and not path):
        return ""
    moved = f", and remove /{path} from the endpoint" if path else ""
    return f"{root} uses the form {others[0]}, not {name.removeprefix(PREFIX)}; write `form: {others[0]}`{moved}"


def _is_own(config: Config, address: str) -> bool:
    """Return whether the configuration starts a sample server (`reference`) at an endpoint's address."""
    place = address.rpartition("://")[2].rstrip("/").replace("localhost", "127.0.0.1")
    return any(place == str(each.bind).rpartition("://")[2] for each in config.reference)


async def _other_protocol(
    backend: BackendConfig, at: int, protocols: Mapping[str, Protocol], access: ServerAccess, seconds: float
) -> str:
    """Return the error for an endpoint that uses protocols other than the backend's protocol, or an empty string if the
    probe finds no other protocol."""
    address = backend.endpoints[at].address
    try:
        found = await probe(_for_every_protocol(address), protocols, access, seconds=seconds)
    except ValueError:
        return ""
    spoken = [each.protocol for each in found.spoken]
    if not spoken or backend.protocol in spoken:
        return ""
    tls = " over TLS" if found.tls else ""
    return f"{address} uses {', '.join(spoken)}{tls}, not {backend.protocol}; write `protocol: {spoken[0]}`"


def _for_every_protocol(address: str) -> str:
    """If the address contains only a host and a port, return it as HOST:PORT, for which a probe tries every protocol.
    Otherwise, return it unchanged."""
    scheme, separator, rest = address.partition("://")
    plain = rest.rstrip("/")
    return plain if separator and scheme in ("http", "tcp") and "/" not in plain and ":" in plain else address


@frozen
class GraphMisfit:
    """The reason why a graph is unusable or, if `is_warning` is set, why the graph could not be checked. `location` is
    the position in the file."""

    location: Location
    text: str
    is_warning: bool = False


async def graph_misfits(
    config: Config, protocols: Mapping[str, Protocol], seconds: float, access: ServerAccess
) -> Mapping[str, GraphMisfit | None]:
    """Return the mismatch of each graph by name, or None for a graph without a mismatch. The function uses a client's
    `access` to request metadata for the models of the graph's steps, within `seconds` for each graph."""
    assembly = _assembled(config, protocols)
    await assembly.discovery.start()
    assembly.start()
    try:
        return {name: await _misfit(name, model, seconds, access) for name, model in assembly.graphs.models.items()}
    finally:
        await assembly.close()


def _assembled(config: Config, protocols: Mapping[str, Protocol]) -> Assembly:
    certificates = Certificates()
    certificates.prepare(config)

    def over_tls(tls: BackendTlsConfig) -> Connect:
        return lambda address, protocol, limits, ip="", *, headers=(): connect(
            address, protocol, limits, ip, certificates.client(tls, *alpn(protocol)), headers=headers
        )

    connections = Connections(parse_address, connect, over_tls)
    clock = asyncio.get_running_loop().time
    return Assembly(config, Environment(protocols, registry.policies(), connections, clock, INFO, lambda: True))


async def _misfit(name: str, model: GraphModel, seconds: float, access: ServerAccess) -> GraphMisfit | None:
    headers = [(key.lower().encode(), text.encode()) for key, text in access.headers.items()]
    if access.key is not None:
        headers.append((AUTHORIZATION, b"Bearer " + access.key.encode()))
    try:
        async with asyncio.timeout(seconds):
            await model(Request(Operation.METADATA, name, headers=Headers(headers)))
    except TimeoutError:
        text = f"no answer about the models of its steps within {seconds:g} s; raise --timeout for slow servers"
        return GraphMisfit(("models", name), text)
    except GatewayError as error:
        cause = error.__cause__
        if isinstance(cause, GraphError):
            is_warning = isinstance(cause, UnknownSignatureError)
            return GraphMisfit(("models", name, *cause.place), cause.in_its_step, is_warning)
        return GraphMisfit(("models", name), error.message)
    return None
