"""The key `backends.*.discovery`: methods to find endpoints while the gateway runs."""

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE, Keys, Name, Period, Secret
from gateway.config.problems import Finding

_SRV_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")


class RegisterConfig(Keys):
    """Servers that register themselves with `POST /register` on the admin port. Each server has a lease, which it
    renews."""

    token: Secret
    """Token that a server must send as `Authorization: Bearer TOKEN`. Anyone with the token can redirect the backend's
    requests to any address, so use a reference such as `${file:/path}`."""
    seconds: Period = 60
    """Maximum duration of a lease, in seconds, and the default for servers that do not request a duration. The gateway
    removes a server that does not renew its lease in time."""


class DiscoveryConfig(Keys):
    """Methods to discover endpoints at runtime. You can combine several methods."""

    dns: Literal["all"] | None = None
    """`all`: every IP address of the host names in `endpoints` becomes a separate endpoint."""
    srv: Name | None = None
    """DNS name with SRV records, which contain the host and port of each server. Needs `pip install
    "modelglot[discovery]"`."""
    files: Name | None = None
    """Absolute path of one or more files that contain one address per line. The path can contain the wildcards `*`,
    `?`, `[...]` and `**`."""
    registration: RegisterConfig | None = Field(None, alias="register")  # pydantic has an attribute `register`
    """Settings for servers that register themselves."""
    interval: Period = 5
    """Interval between checks of DNS names and files, in seconds. The gateway queries SRV records when their TTL
    expires, but not more often than this interval."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The keys of the configured methods."""
        found = {"dns": self.dns, "srv": self.srv, "files": self.files, "register": self.registration}
        return tuple(key for key, value in found.items() if value is not None)

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find invalid values, keys without effect, and missing packages."""
        if self.methods == ("register",) and "interval" in self.model_fields_set:
            text = "has no effect on servers that register themselves; remove the key, or add dns, srv or files"
            yield Finding((*location, "interval"), text, at_key=True)
        if self.srv is not None and not _SRV_NAME.fullmatch(self.srv):
            yield Finding((*location, "srv"), f"expected a DNS name such as _http._tcp.models.default.svc, got {VALUE}")
        if self.srv is not None and not catalog.srv:
            text = 'needs dnspython, which is not installed: pip install "modelglot[discovery]"'
            yield Finding((*location, "srv"), text, at_key=True)
        if self.files is not None and not self.files.startswith("/"):
            yield Finding((*location, "files"), f"expected an absolute path such as /run/models/url-*.txt, got {VALUE}")

    def whole_findings(self, location: Location) -> Iterator[Finding]:
        """Find valid settings without a method."""
        if not self.methods:
            yield Finding(location, "expected at least one of dns, srv, files and register")
