"""Detects the protocols and the models at an address."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from operator import attrgetter

from gateway.assembly.forms import PREFIX
from gateway.client import AsyncClient, ClientError
from gateway.client.settings import DEFAULT_KIND, ServerKind, named_protocol
from gateway.core.errors import TransportError
from gateway.core.frozen import frozen
from gateway.core.models import ServerInfo
from gateway.core.protocol import Protocol
from gateway.core.tasks import spawn
from gateway.tools.probing.asking import (
    FormFinding,
    ProbeReply,
    ServerAccess,
    ask_forms,
    ask_transport,
    connect,
    speaks_tls,
)
from gateway.tools.probing.candidates import Candidates, FormCandidate, candidates
from gateway.tools.probing.listing import FoundModel, ServerModels, list_models
from gateway.tools.probing.recognition import EVIDENCE, SILENT_TOO

SECONDS = 2.0
"""Default timeout for each response, in seconds."""
MOMENT = 0.5
"""Timeout for the other transports after one transport has responded, in seconds."""
MOST_SECONDS = 5
"""Time limit for listing the models, as a multiple of the timeout for one response."""
UNSHOWN = frozenset({"v1-rest"})
"""Protocols of which some servers implement only the paths that run a model, so no response to a probe shows the
protocol."""


class ProbeVerdict(Enum):
    """The verdict of a probe."""

    SPOKEN = "spoken"
    OTHER = "other"
    """The server uses no known protocol."""
    REFUSED = "refused"
    """The server requires credentials."""
    SILENT = "silent"
    UNREACHABLE = "unreachable"


@frozen
class Spoken:
    """A protocol that the server uses, with the address in the format of backends, the server type (empty if the
    protocol has only one), and the models."""

    protocol: str
    address: str
    flavor: str
    models: ServerModels


@frozen
class Probed:
    """The result of a probe: the protocols found at an address. The first protocol in `spoken` supports the most
    features."""

    address: str
    verdict: ProbeVerdict
    text: str
    spoken: tuple[Spoken, ...] = ()
    findings: tuple[FormFinding, ...] = ()
    tls: bool = False


async def probe(
    address: str,
    protocols: Mapping[str, Protocol],
    access: ServerAccess,
    *,
    seconds: float = SECONDS,
    names: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda _: None,
) -> Probed:
    """Detect the protocols at `address`, waiting at most `seconds` for each response. `names` contains the models to
    query on servers that do not list their models. The probe runs no model.

    Raises:
        ValueError: the address or a setting is invalid.
    """
    found = candidates(address, protocols, tls=access.tls is not None)
    access.settings(found.each[0])
    try:
        await connect(found.each[0], seconds)
    except TransportError as error:
        return Probed(address, ProbeVerdict.UNREACHABLE, error.message)
    findings = await _ask(found.each, access, seconds, next(iter(names), ""), on_progress)
    if found.open and not _spoken(findings) and await speaks_tls(found.each[0], seconds):
        on_progress("TLS")
        found = candidates(address, protocols, tls=True)
        findings = await _ask(found.each, access, seconds, next(iter(names), ""), on_progress)
    over_http = next((each.candidate for each in findings if _is_other_http(each)), None)
    if over_http is not None and not _spoken(findings) and (forms := _forms(address, protocols)):
        on_progress("forms of JSON")
        recognised = await _recognised(over_http, forms, access, seconds)
        names_recognised = {each.candidate.protocol.name for each in recognised}
        findings = (*(each for each in findings if each.candidate.protocol.name not in names_recognised), *recognised)
    spoken = [await _described(each, access, seconds, names, on_progress) for each in _spoken(findings)]
    listed = next((each.models.own[0].name for each in spoken if each.models.own), "")
    others = tuple(each.candidate for each in findings if each.heard is ProbeReply.OTHER)
    if listed and not names and (further := _that_name_models_in_paths(others)):
        # A server with several models that does not list them in this protocol has listed them in another protocol.
        more = await _ask(further, access, seconds, listed, on_progress)
        asked = {each.candidate.protocol.name: each for each in more}
        findings = tuple(asked.get(each.candidate.protocol.name, each) for each in findings)
        known = [each.name for each in spoken[0].models.own]
        spoken += [await _described(each, access, seconds, known, on_progress) for each in _spoken(more)]
    spoken.sort(key=lambda each: _rank(protocols[each.protocol]))
    verdict, text = _verdict(findings, found, names)
    return Probed(address, verdict, text, tuple(spoken), findings, found.tls)


def stated(found: Probed, names: Sequence[str] = ()) -> Spoken | None:
    """Return the protocol that the probed address states, with the models `names`. Return None unless the protocol is
    in UNSHOWN and the server responded over the protocol's transport."""
    protocol = named_protocol(found.address)
    heard = next((each for each in found.findings if each.candidate.protocol.name == protocol), None)
    if protocol not in UNSHOWN or heard is None or heard.heard is not ProbeReply.OTHER or not heard.is_response:
        return None
    return Spoken(protocol, heard.candidate.address, "", ServerModels(models=tuple(map(FoundModel, names))))


def _that_name_models_in_paths(some: Sequence[FormCandidate]) -> tuple[FormCandidate, ...]:
    return tuple(each for each in some if each.protocol.traits.models.one_at is not None)


def _forms(address: str, protocols: Mapping[str, Protocol]) -> Mapping[str, Protocol]:
    """Return the forms to check for at an address: all built-in forms, or, if the address states a protocol, only this
    protocol, provided that it is a form."""
    named = named_protocol(address)
    if named in protocols:
        return {named: protocols[named]} if named.startswith(PREFIX) else {}
    return protocols


async def _recognised(
    place: FormCandidate, forms: Mapping[str, Protocol], access: ServerAccess, seconds: float
) -> tuple[FormFinding, ...]:
    """Return the forms that the server at `place` uses. If the address states a form whose servers cannot be
    recognized, and the server is ready, assume this form."""
    name = place.protocol.name
    if not name.startswith(PREFIX) or name in EVIDENCE:
        found = await ask_forms(place, forms, access, seconds)
        if found or name not in SILENT_TOO:
            return found
    try:
        async with client(name, place.address, access, seconds) as asked:
            is_ready = await asked.ready()
    except ClientError as error:
        return (FormFinding(place, ProbeReply.OTHER, str(error)),)
    return (FormFinding(place, ProbeReply.SPOKEN, address=place.address),) if is_ready else ()


def _is_other_http(finding: FormFinding) -> bool:
    """Return whether the server sent an HTTP response that does not belong to the protocol."""
    return finding.candidate.transport == "http" and finding.heard is ProbeReply.OTHER


def _spoken(findings: Sequence[FormFinding]) -> tuple[FormFinding, ...]:
    return tuple(each for each in findings if each.heard is ProbeReply.SPOKEN)


async def _ask(
    some: Sequence[FormCandidate], access: ServerAccess, seconds: float, model: str, on_progress: Callable[[str], None]
) -> tuple[FormFinding, ...]:
    """Query all candidates, with the transports in parallel. After one transport has responded, the others get only a
    little more time, because few servers use several transports at one address, and these servers respond
    immediately."""
    ordered = sorted(some, key=attrgetter("transport"))
    groups = [tuple(group) for _, group in groupby(ordered, key=attrgetter("transport"))]
    on_progress(", ".join(group[0].transport for group in groups))
    findings: list[FormFinding] = []
    asking = {spawn(ask_transport(group, access, seconds, model, findings)) for group in groups}
    try:
        while asking:
            wait = min(MOMENT, seconds) if _spoken(findings) else None
            done, asking = await asyncio.wait(asking, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
            if not done:
                break
    finally:
        for each in asking:
            each.cancel()
        if asking:
            await asyncio.wait(asking, timeout=seconds)
    heard = {each.candidate.protocol.name: each for each in findings}
    given_up = "no longer waiting, because another transport has answered"
    return tuple(heard.get(each.protocol.name) or FormFinding(each, ProbeReply.SILENT, given_up) for each in some)


async def _described(
    finding: FormFinding, access: ServerAccess, seconds: float, names: Sequence[str], on_progress: Callable[[str], None]
) -> Spoken:
    name = finding.candidate.protocol.name
    on_progress(f"models over {name}")
    async with client(name, finding.address, access, seconds) as asked:
        try:
            async with asyncio.timeout(seconds * MOST_SECONDS):
                models = await list_models(asked, names)
        except (ClientError, TimeoutError) as error:
            models = ServerModels(error=str(error) or f"models unknown after {seconds * MOST_SECONDS:g} s")
    return Spoken(name, finding.address, flavor_of(finding.candidate.protocol, models.server), models)


def client(
    protocol: str, address: str, access: ServerAccess, seconds: float, kind: ServerKind = DEFAULT_KIND
) -> AsyncClient:
    """Return a client for one server. Raise ValueError if a setting is invalid."""
    return AsyncClient(
        address, protocol=protocol, timeout=seconds, headers=access.headers, key=access.key, tls=access.tls, kind=kind
    )  # fmt: skip


def flavor_of(protocol: Protocol, server: ServerInfo | None) -> str:
    """Return the server type that the gateway would detect, or an empty string if the protocol has only one server
    type."""
    flavors = protocol.traits.servers.flavors
    return flavors.detect(server) if flavors is not None else ""


def _rank(protocol: Protocol) -> tuple[bool, ...]:
    """Return a sort key that puts protocols with more features first."""
    wire, models = protocol.traits.wire, protocol.traits.models
    return (
        not models.trusted_metadata, wire.untyped, models.versions is None, wire.unnamed, not wire.streams,
    )  # fmt: skip


def _verdict(findings: Sequence[FormFinding], found: Candidates, names: Sequence[str]) -> tuple[ProbeVerdict, str]:
    heard = {each.heard for each in findings}
    if ProbeReply.SPOKEN in heard:
        return ProbeVerdict.SPOKEN, ""
    if ProbeReply.REFUSED in heard:
        [first, *_] = [each for each in findings if each.heard is ProbeReply.REFUSED]
        return ProbeVerdict.REFUSED, f"the server requires credentials: {first.text}; give them with --key or --header"
    if heard == {ProbeReply.SILENT}:
        return (
            ProbeVerdict.SILENT,
            "the server accepts connections, but does not respond in time; raise --timeout if it is slow",
        )
    certificates = [each.text for each in findings if "certificate" in each.text]
    if found.tls and certificates:
        return ProbeVerdict.UNREACHABLE, f"it uses TLS: {certificates[0]}"
    tried = ", ".join(each.protocol.name for each in found.each)
    text = f"a server responds{' over TLS' if found.tls else ''}, but its protocol is not one of {tried}"
    if any(map(_is_other_http, findings)):
        if not names:
            text += "; if it does not list its models, like TensorFlow Serving, name one with --model NAME"
        text += "; for a custom JSON API, use `gateway init --example`"
        if not UNSHOWN.isdisjoint(each.protocol.name for each in found.each):
            text += (
                "; a server with only `/v1/models/NAME:predict` cannot be detected: write `protocol: v1-rest`, and a "
                "`signature` in the route, or start with `gateway init --backend v1-rest://HOST:PORT --model NAME`"
            )
    return ProbeVerdict.OTHER, text
