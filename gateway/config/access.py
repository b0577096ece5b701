"""The keys for authentication and permissions: `auth`, `permissions`, `principals`, and the `auth` keys of listeners
and of the health and admin ports."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    HeaderName,
    Keys,
    Name,
    OneOrSeveral,
    Period,
    Seconds,
    SomeNames,
    distinct,
    distinct_by,
    refusal,
)
from gateway.config.problems import Finding
from gateway.core.certificates import TlsFiles
from gateway.core.principal import Permission

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Way = Literal["keys", "jwt", "certificates"]
"""Types of credentials, named like the keys of `auth`."""

NOT_FOR_KEYS = frozenset({"authorization", "content-type", "content-length", "host", "te", "transfer-encoding"})


def _key_header(name: str) -> str:
    if name in NOT_FOR_KEYS:
        raise refusal("{value} cannot contain a key; `authorization` is always read too")
    return name


def _issuer(url: str) -> str:
    if not url.startswith(("https://", "http://")) or not set(url).isdisjoint(" ?#@"):
        raise refusal("expected the issuer's URL as in `iss` of its tokens, https://HOST[/PATH], got {value}")
    return url


class ApiKeysConfig(Keys):
    """API keys. `gateway keys add` creates a key."""

    file: Name
    """Absolute path of the file in which `gateway keys` stores the digests of the keys. The gateway reloads the file
    when it changes. If the changed file has errors, the gateway keeps the previous keys."""
    header: Annotated[HeaderName, AfterValidator(_key_header)] = "x-api-key"
    """Header or gRPC metadata key for an API key. The gateway also accepts the key in `Authorization`, as `Bearer KEY`
    or as the password of Basic authentication. If a client sends both headers, this header takes precedence."""

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find an unusable file."""
        if not self.file.startswith("/"):
            yield Finding((*location, "file"), f"expected an absolute path, got {VALUE}")
        elif why := catalog.why_not_keys(self.file):
            yield Finding((*location, "file"), f"{VALUE} is not an API key file: {why}", files=(self.file,))


def is_url(place: str) -> bool:
    """Return True if the location of an issuer's keys is a URL, False if it is the path of a file."""
    return place.startswith(("https://", "http://"))


class TokensConfig(Keys):
    """JSON Web Tokens (JWT) from an OpenID Connect issuer. Clients send tokens in the same headers as API keys. Needs
    `pip install "modelglot[jwt]"`."""

    issuer: Annotated[Name, AfterValidator(_issuer)]
    """URL of the issuer, identical to the `iss` claim in tokens."""
    audience: SomeNames
    """Accepted values of the `aud` claim. A token must contain at least one of them."""
    jwks: Name | None = None
    """Location of the issuer's public keys: a URL, or the absolute path of a file. Default: the URL in
    `ISSUER/.well-known/openid-configuration`."""
    ca: Name | None = None
    """Absolute path of a PEM file with the CAs that sign the issuer's server certificate. The gateway reads the file
    each time it refreshes the keys. Default: the system's CAs."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1), AfterValidator(distinct)] = ("RS256", "ES256")
    """Accepted signature algorithms."""
    leeway: Seconds = 30
    """Tolerated difference between the gateway's clock and the issuer's clock, in seconds."""
    principal: Name = "sub"
    """Claim that contains the principal's name. Use dots for claims inside objects: `realm.user`."""
    prefix: str = ""
    """Prefix that the gateway adds to the principal's name, to prevent tokens from impersonating other principals."""
    permissions: Name | None = None
    """Claim that lists groups, roles or scopes. If a value is the name of a set in `permissions`, the token grants the
    permissions in this set. Use dots for claims inside objects: `realm_access.roles`."""
    refresh: Period = 300
    """Interval between refreshes of the issuer's keys, in seconds. A token signed with an unknown key triggers an
    immediate refresh, at most every 10 s."""

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find unusable files."""
        if self.jwks is not None and not is_url(self.jwks):
            if not self.jwks.startswith("/"):
                yield Finding((*location, "jwks"), f"expected a URL or an absolute path, got {VALUE}")
            elif why := catalog.why_not_key_set(self.jwks):
                yield Finding((*location, "jwks"), f"{VALUE} is not an issuer's key set: {why}", files=(self.jwks,))
        if self.ca is None:
            return
        if not (self.jwks or self.issuer).startswith("https://"):
            text = "has no effect: the issuer's keys do not come over https; remove it"
            yield Finding((*location, "ca"), text, at_key=True)
        elif not self.ca.startswith("/"):
            yield Finding((*location, "ca"), f"expected an absolute path, got {VALUE}")
        else:
            for fault in catalog.tls_faults(TlsFiles(authorities=self.ca), "ca"):
                yield Finding((*location, "ca"), f"{VALUE} cannot be used: {fault}", files=(self.ca,))

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find keys that come over plain HTTP."""
        key, url = ("issuer", self.issuer) if self.jwks is None else ("jwks", self.jwks)
        if url.startswith("http://") and urlsplit(url).hostname not in ("localhost", "127.0.0.1", "::1"):
            text = "its keys come over plain http, so anyone on the network path can replace them; use https"
            yield Finding((*location, key), f"{VALUE}: {text}")


class CertificateConfig(Keys):
    """Principal for client certificates with a matching identity."""

    identity: Name
    """Glob that the identity in the certificate must match."""
    principal: Name
    """Name of the principal. The gateway replaces `*` in the name with the identity."""


class AuthConfig(Keys):
    """Credentials that clients can use to authenticate on listeners with `auth`."""

    keys: ApiKeysConfig | None = None
    """API keys."""
    jwt: Annotated[
        tuple[TokensConfig, ...], Field(min_length=1), OneOrSeveral(TokensConfig), AfterValidator(distinct_by("issuer"))
    ] = ()
    """JSON Web Tokens: the settings of an issuer, or a list for several issuers. The gateway verifies a token only with
    the keys and rules of the issuer in the token's `iss` claim."""
    certificates: tuple[CertificateConfig, ...] = ()
    """Rules that map client certificates to principals, on listeners whose TLS settings request certificates. The first
    matching entry applies."""

    @property
    def ways(self) -> tuple[Way, ...]:
        """The configured types of credentials."""
        found: list[Way] = []
        if self.keys is not None:
            found.append("keys")
        if self.jwt:
            found.append("jwt")
        if self.certificates:
            found.append("certificates")
        return tuple(found)

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find unusable files, and missing packages."""
        if self.keys is not None:
            yield from self.keys.findings((*location, "keys"), catalog)
        if self.jwt and not catalog.jwt:
            text = 'needs PyJWT, which is not installed: pip install "modelglot[jwt]"'
            yield Finding((*location, "jwt"), text, at_key=True)
            return
        for at, issuer in enumerate(self.jwt):
            yield from issuer.findings((*location, "jwt", at), catalog)

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find issuers whose tokens others can forge or confuse."""
        first: dict[str, str] = {}
        for at, issuer in enumerate(self.jwt):
            yield from issuer.warnings((*location, "jwt", at))
            other = first.setdefault(issuer.prefix, issuer.issuer)
            if other != issuer.issuer:
                text = f"its tokens can name the principals of {other}, which has the same `prefix`"
                yield Finding((*location, "jwt", at, "issuer"), f"{VALUE}: {text}; use different prefixes")


class GrantConfig(Keys):
    """Permitted operations on models."""

    operations: Annotated[tuple[Permission, ...], Field(min_length=1), AfterValidator(distinct)]
    """Permitted operations. `infer`: run models. `metadata`: read model and server metadata. `control`: load models and
    change server settings, if the listener has `allow_control`. `offline`: take a listener offline, if the listener has
    `allow_offline`. `explain`: request explanations of responses. `admin`: use the admin port. `details`: receive full
    error messages, even if the listener has `errors: {detail: brief}`. `metrics`: read `/metrics`, if `health` has
    `auth`."""
    models: SomeNames = ("*",)
    """Globs of model names that clients use."""
    listeners: SomeNames = ("*",)
    """Globs of listener names."""


class PrincipalConfig(Keys):
    """Permissions of a person or program, or of all principals whose names match a glob."""

    permissions: SomeNames
    """Names of sets in `permissions`, or the built-in sets `use` (`infer` and `metadata` for all models) and `all`."""


class ListenerAuthConfig(Keys):
    """Authentication of the listener's clients by API keys, tokens or certificates."""

    accept: Annotated[tuple[Way, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Accepted credentials: any of `keys`, `jwt` and `certificates`. Default: all credentials in the top-level key
    `auth`."""
    anonymous: Name | None = None
    """Principal for clients without credentials. Default: the gateway rejects clients without credentials."""


class AdminAuthConfig(Keys):
    """Authentication for the admin port. Principals need the permission `admin`."""

    accept: Annotated[tuple[Literal["keys", "jwt"], ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Accepted credentials: `keys`, `jwt` or both. Default: all credentials in the top-level key `auth`."""


class HealthAuthConfig(Keys):
    """Authentication for `/metrics`. Principals need the permission `metrics`."""

    accept: Annotated[tuple[Way, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """Accepted credentials: any of `keys`, `jwt` and `certificates`. Default: all credentials in the top-level key
    `auth`."""


PermissionSets = Mapping[Name, Annotated[tuple[GrantConfig, ...], Field(min_length=1)]]
PrincipalEntries = Mapping[Name, PrincipalConfig]
