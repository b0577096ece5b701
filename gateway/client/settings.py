"""The arguments of a client, checked before anything is connected."""

from collections.abc import Mapping

from gateway import registry
from gateway.client.address import ServerAddress, split_address
from gateway.client.credentials import RawHeaders, check_headers, raw_headers
from gateway.client.model_server import ModelServer
from gateway.core.certificates import CertificateError, TlsFiles
from gateway.core.frozen import frozen
from gateway.core.protocol import Limits, Protocol
from gateway.transports.certificates import client_context
from gateway.transports.tls import ClientTls

MAX_MESSAGE = 2**30
"""The default of `max_message`."""


@frozen
class ClientSettings:
    """A client's settings for its server."""

    protocol: Protocol
    place: ServerAddress
    tls: ClientTls | None
    headers: RawHeaders
    limits: Limits
    max_in_flight: int | None
    flavor: str
    batch: str
    trust_metadata: bool

    def connected(self) -> ModelServer:
        """The server. A connection is opened by its first request."""
        return ModelServer(
            self.protocol,
            self.place.address,
            limits=self.limits,
            tls=self.tls,
            headers=self.headers,
            max_in_flight=self.max_in_flight,
            flavor=self.flavor,
            batch=self.batch,
            trust_metadata=self.trust_metadata,
        )


def checked(
    address: str,
    protocol: str | None,
    headers: Mapping[str, str] | None,
    key: str | None,
    *,
    tls: bool,
    ca: str | None,
    certificate: str | None,
    certificate_key: str | None,
    verify: bool,
    server_name: str | None,
    max_message: int,
    max_in_flight: int | None,
    flavor: str,
    batch: str,
    trust_metadata: bool,
) -> ClientSettings:
    """The arguments as settings.

    Raises:
        ValueError: an argument is wrong; the text says which and what is expected.
    """
    protocols = registry.protocols()
    transports = {name: each.transport for name, each in protocols.items()}
    secured = tls or not verify or any((ca, certificate, certificate_key, server_name))
    place = split_address(address, protocol or "", transports, tls=secured)
    spoken = protocols[place.protocol]
    transport = registry.transport(spoken.transport)
    transport.parse_address(place.address)
    if secured and not place.tls:
        raise ValueError(f"the address {address!r} cannot be reached over TLS, which other arguments ask for")
    check_headers(spoken, sent := raw_headers(headers, key))
    flavors = spoken.traits.servers.flavors
    _check_name("flavor", flavor, flavors.names if flavors else (), spoken)
    _check_name("batch", batch, tuple(spoken.batches), spoken)
    if not 0 < max_message < 2**31:
        raise ValueError(f"max_message is {max_message}, expected bytes between 1 and {2**31 - 1}")
    return ClientSettings(
        spoken,
        place,
        _client_tls(transport.ALPN, ca, certificate, certificate_key, server_name, verify=verify)
        if place.tls
        else None,
        sent,
        Limits(message=max_message),
        max_in_flight,
        flavor,
        batch,
        trust_metadata,
    )


def _check_name(argument: str, name: str, known: tuple[str, ...], protocol: Protocol) -> None:
    if name and name not in known:
        expected = f"expected one of {', '.join(known)}" if known else f"{protocol.name} has none"
        raise ValueError(f"no {argument} {name!r}; {expected}")


_ARGUMENTS = {"certificate": "certificate", "key": "certificate_key", "ca": "ca", "client_ca": "ca"}
"""The argument for each file."""


def _client_tls(
    alpn: str, ca: str | None, certificate: str | None, key: str | None, server_name: str | None, *, verify: bool
) -> ClientTls:
    if bool(certificate) != bool(key):
        raise ValueError("`certificate` and `certificate_key` go together")
    files = TlsFiles(certificate or "", key or "", ca or "")
    try:
        context = client_context(files, verify=verify, alpn=(alpn,) if alpn else ())
    except CertificateError as error:
        raise ValueError(f"`{_ARGUMENTS[error.key]}`: {error}") from error
    return ClientTls(lambda: context, server_name or "")
