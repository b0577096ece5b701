"""The catalog of the protocols, policies and sample models that a configuration can use.

The caller passes the catalog to `load`, so this folder imports no protocol, policy or transport. `gateway.cli.options`
creates the catalog.
"""

import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

from pydantic import BaseModel

from gateway.core.address import is_ip
from gateway.core.certificates import CertificateError, FileKey, TlsFiles
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol
from gateway.protocols.json.form import FormError


class Policy(typing.Protocol):
    """A policy's module. Its class `Settings` declares the policy's YAML keys."""

    @property
    def Settings(self) -> type[BaseModel]: ...  # noqa: N802 - a class in the module


@frozen
class EndpointAddress:
    """The normalized address of an endpoint: host (lower case) and port, or the path of a unix socket. Different
    spellings of an address result in the same value. `prefix` is the path of a URL."""

    host: str = ""
    port: int = 0
    socket: str = ""
    prefix: str = ""
    tls: bool = False

    @property
    def has_name(self) -> bool:
        """True if the host is a name; False for an IP address or a socket."""
        return bool(self.host) and not is_ip(self.host)


def any_endpoint(transport: str, endpoint: str) -> EndpointAddress:
    """Return an empty address for every endpoint. Default of Catalog.parse_endpoint."""
    return EndpointAddress(endpoint)


def no_faults(files: TlsFiles, authorities: FileKey) -> Sequence[CertificateError]:
    """Accept all files. Default of Catalog.tls_faults."""
    return ()


def no_forms(name: str, document: Mapping[str, Any]) -> NoReturn:
    """Refuse every form."""
    raise FormError((), "forms cannot be used here")


@frozen
class Catalog:
    """The protocols, policies and sample models that a configuration can use, and functions for its checks."""

    protocols: Mapping[str, Protocol]
    policies: Mapping[str, Policy]
    reference_models: Collection[str] = ()
    """The names of the sample models."""
    parse_endpoint: Callable[[str, str], EndpointAddress] = any_endpoint
    """Returns the EndpointAddress of an endpoint, given the transport's name. Raises ValueError if the endpoint is
    invalid."""
    tls_faults: Callable[[TlsFiles, FileKey], Sequence[CertificateError]] = no_faults
    """Returns an error for each reason why files are unusable for TLS. The second argument is the key whose value is
    the file with the CAs."""
    images: bool = True
    """True if Pillow is installed."""
    srv: bool = True
    """True if dnspython is installed."""
    jwt: bool = True
    """True if PyJWT is installed."""
    why_not_engine: Callable[[str], str] = lambda name: ""
    """Returns the missing packages or programs of the engine with this name; empty if the engine is usable."""
    why_not_keys: Callable[[str], str] = lambda path: ""
    """Returns the reason why the API key file at a path is unusable, or an empty string."""
    why_not_key_set: Callable[[str], str] = lambda path: ""
    """Returns the reason why the file at a path, with an issuer's public keys, is unusable, or an empty string."""
    form: Callable[[str, Mapping[str, Any]], Protocol] = no_forms
    """Returns the protocol of a declared form, given the form's name and document. Raises FormError."""
    ready_forms: Mapping[str, Protocol] = field(default_factory=dict)
    """The protocols of the built-in forms, by their names `json:FORM`. The mapping can create each protocol on first
    access."""
