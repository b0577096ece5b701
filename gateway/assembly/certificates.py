"""The TLS certificates of listeners, ports and backends.

When certificate files change, the gateway reloads them without a restart, and without closing connections. If the new
files are unusable, the gateway logs the error and continues to use the previous certificates.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NoReturn

from gateway.assembly import registry
from gateway.assembly.forms import spoken
from gateway.config.keys import Config, ReloadConfig
from gateway.config.tls import BackendTlsConfig, ListenerTlsConfig
from gateway.config.watching import Watched, look
from gateway.core.certificates import CertificateError, TlsFiles, expiry
from gateway.core.protocol import Protocol
from gateway.core.surviving import log_and_continue
from gateway.transports.certificates import client_context, server_context
from gateway.transports.tls import ClientTls

log = logging.getLogger(__name__)

WARNED = (timedelta(days=30), timedelta(days=7), timedelta())
"""The remaining validity periods of a certificate at which the gateway logs a warning."""


class Material:
    """The TLS settings of one listener, port or backend, with their files and the context for the next handshake.

    Raises:
        CertificateError: a certificate, key or CA file is unusable.
    """

    def __init__(self, files: TlsFiles, make: Callable[[], ssl.SSLContext]) -> None:
        self.files = files
        self.error: str | None = None
        """The reason why the current versions of the files are not in use; None if they are in use."""
        self.used_by: tuple[str, ...] = ()
        self._make = make
        self._warned = 0
        found = look(files.paths)
        self._context, self.expires = self._read()
        self.watched = Watched(found)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake."""
        return self._context

    def read_again(self) -> None:
        """Switch to the current files if they are valid."""
        self.watched.loaded(look(self.files.paths))
        places = ", ".join(self.used_by)
        try:
            self._context, self.expires = self._read()
        except CertificateError as error:
            self.error = f"tls.{error.key}: {error}"
            log.error(
                "cannot use the new certificates of %s, so the gateway keeps the previous ones: %s", places, self.error
            )
            return
        self.error, self._warned = None, 0
        until = "" if self.expires is None else f"; valid until {self.expires:%Y-%m-%d %H:%M} UTC"
        log.info("reloaded the certificates of %s%s", places, until)

    def warn(self, now: datetime) -> None:
        """Log a warning if the certificate expires soon, once for each threshold in WARNED."""
        if self.expires is None:
            return
        left = self.expires - now
        passed = sum(left <= each for each in WARNED)
        if passed > self._warned:
            places, until = ", ".join(self.used_by), f"{self.expires:%Y-%m-%d %H:%M} UTC"
            if left <= timedelta():
                log.error(
                    "the certificate of %s has expired: %s was valid until %s; renew it", places, self._file, until
                )
            else:
                log.warning(
                    "the certificate of %s expires soon: %s is valid until %s; renew it", places, self._file, until
                )
        self._warned = passed

    @property
    def _file(self) -> str:
        return self.files.certificate

    def _read(self) -> tuple[ssl.SSLContext, datetime | None]:
        return self._make(), expiry(self.files.certificate) if self.files.certificate else None


class Certificates:
    """All TLS settings in use. Equal settings share one Material, even across reloads."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._materials: dict[Hashable, Material] = {}

    def server(
        self, settings: ListenerTlsConfig, alpn: tuple[str, ...], place: str = ""
    ) -> Callable[[], ssl.SSLContext]:
        """Return a function that returns the TLS context for a listener's next handshake. The handshake selects the
        first protocol in `alpn` that the client offers. Until `take_over`, log lines use `place` as the listener's
        name.

        Raises:
            CertificateError: a file is unusable.
        """
        make = partial(server_context, settings.files, settings.client, alpn)
        material = self._material((settings, alpn), settings.files, make)
        material.used_by = material.used_by or ((place,) if place else ())
        return material.context

    def client(self, settings: BackendTlsConfig, alpn: str = "") -> ClientTls:
        """Return the TLS settings for a backend's endpoints. Raises the same errors as `server`."""
        names = (alpn,) if alpn else ()
        make = partial(client_context, settings.files, verify=settings.verify, alpn=names)
        context = self._material((settings, names), settings.files, make).context
        return ClientTls(context, settings.server_name or "")

    def prepare(self, config: Config) -> None:
        """Read the files that `config` uses and that the previous configuration did not use. Raises the same errors as
        `server`."""
        for _, settings, alpn in _places(config):
            if isinstance(settings, BackendTlsConfig):
                self.client(settings, *alpn)
            else:
                self.server(settings, alpn)

    def take_over(self, config: Config) -> None:
        """Drop the files that `config`, the new configuration, no longer uses."""
        places: dict[Hashable, list[str]] = {}
        for place, settings, alpn in _places(config):
            places.setdefault((settings, alpn), []).append(place)
        self._materials = {key: each for key, each in self._materials.items() if key in places}
        for key, each in self._materials.items():
            each.used_by = tuple(places[key])
            each.warn(self._clock())

    async def watch(self, settings: Callable[[], ReloadConfig]) -> NoReturn:
        """Reload changed files if the configuration enables reloading, and log warnings about certificates that expire
        soon."""
        while True:
            await asyncio.sleep(settings().interval)
            for each in list(self._materials.values()):
                with log_and_continue(f"reading the certificates of {', '.join(each.used_by)} again"):
                    if settings().watch and each.watched.has_changed(await asyncio.to_thread(look, each.files.paths)):
                        await asyncio.to_thread(each.read_again)
                    each.warn(self._clock())

    def read_changed(self) -> None:
        """Reload the changed files."""
        for each in self._materials.values():
            with log_and_continue(f"reading the certificates of {', '.join(each.used_by)} again"):
                if each.watched.differs(look(each.files.paths)):
                    each.read_again()

    @property
    def materials(self) -> tuple[Material, ...]:
        """All Materials in use."""
        return tuple(self._materials.values())

    def _material(self, key: Hashable, files: TlsFiles, make: Callable[[], ssl.SSLContext]) -> Material:
        if key not in self._materials:
            self._materials[key] = Material(files, make)
        return self._materials[key]


def alpn(*protocols: Protocol) -> tuple[str, ...]:
    """Return the ALPN names that client and server announce over TLS for the transports of these protocols.

    HTTP/1.1 comes before HTTP/2, because most HTTP clients offer both, and gRPC clients offer only HTTP/2."""
    names = {registry.transport(protocol.transport).ALPN for protocol in protocols}
    return tuple(sorted(names - {""}, reverse=True))  # http/1.1, h2


def port_alpn(port: str = "") -> tuple[str, ...]:
    """Return the ALPN names for a port that is not a listener: HTTP/2 for the scaler, and HTTP/1.1 for other ports."""
    return (registry.transport("grpc" if port == "scaler" else "http").ALPN,)


def certificate_files(config: Config) -> frozenset[Path]:
    """Return the certificate, key and CA files of all TLS settings."""
    return frozenset(path for _, settings, _ in _places(config) for path in settings.files.paths)


def _places(config: Config) -> Iterator[tuple[str, ListenerTlsConfig | BackendTlsConfig, tuple[str, ...]]]:
    """Yield all TLS settings in the configuration, with their locations and ALPN names."""
    protocols = spoken(config)
    for listener in config.listeners:
        if listener.tls is not None:
            own = (protocols[name] for name in listener.protocols)
            yield f"listener {listener.name!r}", listener.tls, alpn(*own)
    for reference in config.reference:
        if reference.tls is not None:
            yield f"reference {reference.protocol!r}", reference.tls, alpn(protocols[reference.protocol])
    for name, port in (("health", config.health), ("admin", config.admin), ("scaler", config.scaler)):
        if port is not None and port.tls is not None:
            yield f"the {name} port", port.tls, port_alpn(name)
    for name, backend in config.backends.items():
        if backend.tls is not None:
            yield f"backend {name!r}", backend.tls, alpn(protocols[backend.protocol])
    if config.log.payloads is not None and config.log.payloads.tls is not None:
        yield "the payload log", config.log.payloads.tls, port_alpn()
