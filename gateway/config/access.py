"""The keys for authentication and permissions: `auth`, `permissions`, `principals`, and the `auth` keys of listeners
and of the health and admin ports."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gateway.config.fields import (
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
