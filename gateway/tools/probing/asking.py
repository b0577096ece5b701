"""Checks whether a server accepts connections at an address and uses TLS, and sends the queries from `recognition` to
the address. The queries are few and small, and each transport sends them sequentially."""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING

from gateway.assembly import registry
from gateway.client.credentials import AUTHORIZATION
from gateway.client.model_server import connected
from gateway.client.settings import ClientSettings, ServerArguments, ServerKind, Tls
from gateway.core.errors import GatewayError, TransportError
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Message
from gateway.core.protocol import Protocol, Target
from gateway.core.transport import Connector
from gateway.tools.probing.candidates import FormCandidate
from gateway.tools.probing.recognition import EVIDENCE, NOWHERE, ProbeQuestion, is_silence, judge, questions
from gateway.transports.certificates import client_context
from gateway.transports.errors import not_connected

if TYPE_CHECKING:
    from gateway.config.backends import BackendConfig


_OK = 200
MOST_SILENT = 2
"""Number of consecutive queries without a response after which the probe stops on a transport."""


@frozen
class ServerAccess:
    """The settings for requests to servers, in addition to their addresses: headers, credentials and TLS."""

    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    tls: Tls | None = None

    def of_backend(self, backend: "BackendConfig") -> "ServerAccess":
        """Return the access that the gateway itself would use for servers of `backend` if a client sent these headers
        and this key. The access contains the client headers that `forward_headers` lists, the backend's own headers,
        and the backend's TLS settings, if any."""
        headers = {name: text for name, text in self.headers.items() if name.lower() in backend.forward_headers}
        headers |= {name: each.get_secret_value() for name, each in backend.headers.items()}
        key = self.key if AUTHORIZATION.decode() in backend.forward_headers else None
        if backend.tls is None:
            return replace(self, headers=headers, key=key)
        own = backend.tls
        return ServerAccess(headers, key, Tls(own.ca, own.certificate, own.key, own.server_name, verify=own.verify))

    def settings(self, candidate: FormCandidate) -> ClientSettings:
        """Return the client settings for a candidate. Raise ValueError if a file, a header or the address is
        invalid."""
        return self.settings_for(candidate.address, candidate.protocol.name, ServerKind())

    def settings_for(self, address: str, protocol: str, kind: ServerKind) -> ClientSettings:
        """Return the client settings for the server at `address`. `protocol` is empty if the address contains the
        protocol. Raise ValueError, like `settings`."""
        return ServerArguments(address, protocol or None, self.headers, self.key, self.tls, kind=kind).checked()


class ProbeReply(Enum):
    """The server's reaction to queries in one protocol."""

    SPOKEN = "spoken"
    REFUSED = "refused"
    """The server requires credentials, or rejects the given credentials."""
    OTHER = "other"
    """The responses do not belong to the protocol, or the connection failed."""
    SILENT = "silent"
    """No response arrived in time."""


@frozen
class FormFinding:
    """The finding for one protocol, with an explanation."""

    candidate: FormCandidate
    heard: ProbeReply
    text: str = ""
    address: str = ""
    """The address to use for a backend, if the server uses the protocol."""
    is_response: bool = False
    """True if a complete response with any content arrived over the protocol's transport."""


async def ask_transport(
    candidates: tuple[FormCandidate, ...], access: ServerAccess, seconds: float, model: str, findings: list[FormFinding]
) -> None:
    """Query the protocols of one transport sequentially, and append the results to `findings`. `seconds` is the timeout
    for each response. `model` is the name of a model that the server might have."""
    silent = 0
    for candidate in candidates:
        if silent >= MOST_SILENT:
            findings.append(
                FormFinding(candidate, ProbeReply.SILENT, "not queried, because two queries got no response")
            )
            continue
        finding, unanswered = await _ask(candidate, access, seconds, model, MOST_SILENT - silent)
        silent = silent + unanswered if finding.heard is ProbeReply.SILENT else 0
        findings.append(finding)


async def ask_forms(
    place: FormCandidate, protocols: Mapping[str, Protocol], access: ServerAccess, seconds: float
) -> tuple[FormFinding, ...]:
    """Return the built-in forms in `protocols` that the server at `place` uses over HTTP, according to its responses.
    The probe requests each path once, with a timeout of `seconds`, and stops after a request without a response."""
    connector = connected(access.settings(place))
    replies: dict[str, Message] = {}

    async def reply(path: str) -> Message:
        if path not in replies:
            async with asyncio.timeout(seconds):
                replies[path] = await connector.exchange(Message("GET", path))
        return replies[path]

    found: list[FormFinding] = []
    try:
        if (await reply(NOWHERE)).status == _OK:
            return ()  # a web server with a page for every path
        for name in (each for each in EVIDENCE if each in protocols):
            for each in EVIDENCE[name]:
                message = await reply(each.path)
                if message.status != _OK or not each.shows(message):
                    break
            else:
                spoken = FormCandidate(protocols[name], place.address)
                found.append(FormFinding(spoken, ProbeReply.SPOKEN, address=place.address))
    except (TimeoutError, TransportError):
        return tuple(found)
    finally:
        with suppress(GatewayError):
            await connector.close()
    return tuple(found)


async def _ask(
    candidate: FormCandidate, access: ServerAccess, seconds: float, model: str, patience: int
) -> tuple[FormFinding, int]:
    """Return the finding for a candidate, and the number of queries without a response, which is at most `patience`."""
    protocol = candidate.protocol
    try:
        settings = access.settings(candidate)
        connector = connected(settings)
    except ValueError as error:
        return FormFinding(candidate, ProbeReply.OTHER, str(error)), 0
    target = Target("server", address=candidate.address, limits=settings.limits)
    findings: list[FormFinding] = []
    silent = 0
    try:
        for question in questions(protocol, target, model):
            findings.append(await _one(candidate, connector, question, target, seconds))
            silent += findings[-1].heard is ProbeReply.SILENT
            if findings[-1].heard is ProbeReply.SPOKEN or silent >= patience:
                break
    finally:
        with suppress(GatewayError):
            await connector.close()
    if not findings:
        return FormFinding(candidate, ProbeReply.OTHER, "no query can show that the server uses this protocol"), 0
    found = {each.heard: each for each in reversed(findings)}
    return next(found[each] for each in ProbeReply if each in found), silent


async def _one(
    candidate: FormCandidate, connector: Connector, question: ProbeQuestion, target: Target, seconds: float
) -> FormFinding:
    try:
        async with asyncio.timeout(seconds):
            reply = await connector.exchange(question.message)
    except TimeoutError:
        return FormFinding(candidate, ProbeReply.SILENT, f"no response within {seconds:g} s")
    except TransportError as error:
        if is_silence(error):
            return FormFinding(candidate, ProbeReply.SILENT, error.message)
        return FormFinding(candidate, ProbeReply.OTHER, error.message)
    evidence = judge(candidate.protocol, question, reply, target)
    if evidence.speaks:
        return FormFinding(candidate, ProbeReply.SPOKEN, address=_address(candidate, question))
    heard = ProbeReply.REFUSED if evidence.refused else ProbeReply.OTHER
    return FormFinding(candidate, heard, evidence.text, is_response=True)


def _address(candidate: FormCandidate, question: ProbeQuestion) -> str:
    """Return the address to use for a backend. If a path in the protocol's addresses marks a server with a single
    model, and the server responded at the root without a model name, the result ends with `/`."""
    one_at = candidate.protocol.traits.models.one_at
    rooted = f"{candidate.address}/" if "://" in candidate.address else f"http://{candidate.address}/"
    if one_at is None or question.request.model or one_at(candidate.address) or not one_at(rooted):
        return candidate.address
    return rooted


_ALPN = ("h2", "http/1.1")


async def _open(candidate: FormCandidate, seconds: float, context: ssl.SSLContext | None) -> None:
    """Connect, with a TLS handshake if `context` is set, and close the connection."""
    place = registry.transport(candidate.transport).parse_address(candidate.address)
    async with asyncio.timeout(seconds):
        if getattr(place, "path", ""):
            _, writer = await asyncio.open_unix_connection(place.path)
        else:
            host = place.host if context is not None else None
            _, writer = await asyncio.open_connection(place.host, place.port, ssl=context, server_hostname=host)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def connect(candidate: FormCandidate, seconds: float) -> None:
    """Connect, and close the connection.

    Raises:
        TransportError: no server accepts connections at the address.
        ValueError: the address is invalid.
    """
    try:
        await _open(candidate, seconds, None)
    except OSError as error:
        place = registry.transport(candidate.transport).parse_address(candidate.address)
        raise not_connected(error, getattr(place, "path", "") or place.host, seconds) from error


async def speaks_tls(candidate: FormCandidate, seconds: float) -> bool:
    """Return whether a TLS handshake succeeds. The handshake accepts any certificate."""
    try:
        await _open(candidate, seconds, client_context(verify=False, alpn=_ALPN))
    except OSError:
        return False
    return True
