"""The keys that say who clients are and what they may do: `auth`, `permissions`, `principals`, and `auth` of listeners
and of the status API."""

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
    refusal,
)
from gateway.core.principal import Permission

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
Way = Literal["keys", "jwt", "certificates"]
"""How a client says who it is, named as the keys of `auth`."""

NOT_FOR_KEYS = frozenset({"authorization", "content-type", "content-length", "host", "te", "transfer-encoding"})


def _key_header(name: str) -> str:
    if name in NOT_FOR_KEYS:
        raise refusal("{value} cannot hold a key; `authorization` is always read, too")
    return name


def _issuer(url: str) -> str:
    if not url.startswith(("https://", "http://")) or not set(url).isdisjoint(" ?#@"):
        raise refusal("expected the issuer's URL, https://HOST[/PATH], as tokens have it in `iss`, got {value}")
    return url


class ApiKeysConfig(Keys):
    """API keys. `gateway keys add` makes one."""

    file: Name
    """The absolute path of the file with the digests of the keys, as `gateway keys` writes it. It is read again when it
    changes; if it has errors then, the keys from before are kept."""
    header: Annotated[HeaderName, AfterValidator(_key_header)] = "x-api-key"
    """The header or metadata key that holds a key, besides `Authorization: Bearer KEY` and Basic with the key as
    password. Where both are sent, this one counts."""


class TokensConfig(Keys):
    """JSON Web Tokens of an issuer (OpenID Connect), sent as API keys are. Needs
    `pip install "modelglot[jwt]"`."""

    issuer: Annotated[Name, AfterValidator(_issuer)]
    """The issuer's URL, as tokens have it in `iss`."""
    audience: SomeNames
    """Tokens must have one of these names in `aud`."""
    jwks: Name | None = None
    """Where the issuer's public keys are: a URL, or the absolute path of a file. Without it the URL is looked up at
    `ISSUER/.well-known/openid-configuration`."""
    ca: Name | None = None
    """The absolute path of a PEM file: the CAs that sign the certificate of the issuer's server. Without it the CAs of
    the system are trusted. It is read at each look at the keys."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1), AfterValidator(distinct)] = ("RS256", "ES256")
    """The algorithms of signatures that are accepted."""
    leeway: Seconds = 30
    """Seconds by which the issuer's clock may differ."""
    principal: Name = "sub"
    """The claim that names the principal. A dot leads into an object."""
    prefix: str = ""
    """What goes before that name, so that no token can have the name of another principal."""
    permissions: Name | None = None
    """The claim that lists groups, roles or scopes: those that are names in `permissions` give the token these
    permissions. A dot leads into an object: `realm_access.roles`."""
    refresh: Period = 300
    """Seconds between two looks at the issuer's keys. A token with an unknown key makes the gateway look at once, at
    most every 10 s."""


def _distinct_issuers(listed: tuple[TokensConfig, ...]) -> tuple[TokensConfig, ...]:
    issuers = [each.issuer for each in listed]
    for at, issuer in enumerate(issuers):
        if issuer in issuers[:at]:
            raise refusal("{value} is listed twice", at, "issuer")
    return listed


class CertificateConfig(Keys):
    """Which principal a client certificate stands for."""

    identity: Name
    """The glob of the identity in the certificate."""
    principal: Name
    """The name of the principal; `*` in it stands for the identity."""


class AuthConfig(Keys):
    """The credentials by which clients can identify themselves. Listeners with `auth` ask for it."""

    keys: ApiKeysConfig | None = None
    """API keys."""
    jwt: Annotated[
        tuple[TokensConfig, ...], Field(min_length=1), OneOrSeveral(TokensConfig), AfterValidator(_distinct_issuers)
    ] = ()
    """Tokens of an issuer; a list for several issuers. A token is verified with the keys and by the rules of the one
    that it names in `iss`, and of no other."""
    certificates: tuple[CertificateConfig, ...] = ()
    """Client certificates, on listeners with TLS that ask for them. The first that matches counts."""

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways that are configured."""
        found: list[Way] = []
        if self.keys is not None:
            found.append("keys")
        if self.jwt:
            found.append("jwt")
        if self.certificates:
            found.append("certificates")
        return tuple(found)


class GrantConfig(Keys):
    """Permits operations on models."""

    operations: Annotated[tuple[Permission, ...], Field(min_length=1), AfterValidator(distinct)]
    """What is permitted: `infer` (running models), `metadata` (reading about models and servers), `control` (loading
    models and changing settings of servers, where the listener has `allow_control`), `offline` (where it has
    `allow_offline`), `explain` (asking how a request was answered), `admin` (the status API), `details` (errors in full
    where the listener has `errors: {detail: brief}`), `metrics` (`/metrics`, where `health` has `auth`)."""
    models: SomeNames = ("*",)
    """Globs of models, by the names that clients use."""
    listeners: SomeNames = ("*",)
    """Globs of listeners."""


class PrincipalConfig(Keys):
    """A person or program, or all whose names a glob matches."""

    permissions: SomeNames
    """Names of `permissions`, or `use` (infer and metadata of all models) or `all`."""


class ListenerAuthConfig(Keys):
    """The listener's clients must identify themselves."""

    accept: Annotated[tuple[Way, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """How: some of `keys`, `jwt` and `certificates`. Without it all that `auth` at the top has."""
    anonymous: Name | None = None
    """The principal of clients that send no credentials. Without it they are refused."""


class AdminAuthConfig(Keys):
    """Who may use the status API: principals with the permission `admin`."""

    accept: Annotated[tuple[Literal["keys", "jwt"], ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """How they identify themselves: by `keys`, `jwt` or both. Without it all that `auth` at the top has."""


class HealthAuthConfig(Keys):
    """Who may read `/metrics`: principals with the permission `metrics`."""

    accept: Annotated[tuple[Way, ...], Field(min_length=1), AfterValidator(distinct)] | None = None
    """How they identify themselves: some of `keys`, `jwt` and `certificates`. Without it all that `auth` at the top
    has."""


PermissionSets = Mapping[Name, Annotated[tuple[GrantConfig, ...], Field(min_length=1)]]
PrincipalEntries = Mapping[Name, PrincipalConfig]
