"""The policy `rate_limit: {requests: 100, seconds: 1}`: the gateway rejects requests from clients that exceed this
rate."""

import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import lru_cache
from hashlib import blake2b
from ipaddress import ip_address
from time import monotonic
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from gateway.core.documented import Documented
from gateway.core.errors import Reason, refusal
from gateway.core.operations import CALLS
from gateway.core.redis import redis_url
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.places import Shared, SharedState, ShownStates
from gateway.policies.shared_server import SharedServer

_LONGEST_KEY = 64
_HEADER_NAME = re.compile(r"[0-9a-z!#$%&'*+.^_`|~-]+")  # RFC 9110, section 5.6.2


def _header_name(text: str) -> str:
    name = text.lower()
    if not _HEADER_NAME.fullmatch(name):
        raise PydanticCustomError("refused", "expected the name of a header, such as x-api-key")
    return name


class Settings(Documented):
    """Limits the number of inference requests that each client can send per period. The gateway rejects requests above
    the limit."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True

    requests: Annotated[int, Field(ge=1)]
    """Number of requests that a client can send in `seconds`."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1
    """Length of the period, in seconds."""
    burst: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of requests in a burst, after a period without requests. Default: `requests`."""
    by: Literal["client", "principal", "model", "header", "all"] = "client"
    """Requests that share a limit. `client`: requests from the same IP address (for IPv6, the /64 network).
    `principal`: requests from the same principal, or, for clients without a principal, from the same IP address.
    `model`: requests for the same model. `header`: requests with the same value of a header. `all`: all requests."""
    header: Annotated[str, AfterValidator(_header_name)] | None = None
    """Header or gRPC metadata key for `by: header`. Requests without this header share one limit."""
    redis: Annotated[SecretStr, AfterValidator(redis_url)] | None = None
    """URL of a Redis or Valkey server, such as `redis://host:6379/0`, on which gateways share the limit. Needs the
    package `redis`: `pip install "modelglot[redis]"`."""
    name: str = ""
    """Name of the limit in Redis. Gateways share limits with the same name, rate and `by`, including unnamed limits."""
    without_redis: Literal["local", "allow", "refuse"] = "local"
    """Behavior while Redis is unreachable. `local`: each gateway applies the limit separately. `allow`: the gateway
    allows all requests. `refuse`: the gateway rejects all requests."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.by == "header") != (self.header is not None):
            raise PydanticCustomError("refused", "expected both by: header and header: NAME")
        if self.redis is None and self.model_fields_set & {"name", "without_redis"}:
            raise PydanticCustomError("refused", "name and without_redis need redis: URL")
        return self


class RateLimit(SharedState):
    """The buckets of one `rate_limit` entry under `policies:`."""

    settings: Settings

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self.place = "rate_limit"
        self._clock = clock
        self._refused = 0
        self._burst = burst = settings.burst or settings.requests
        interval = settings.seconds / settings.requests
        self._text = f"more than {settings.requests} requests in {settings.seconds:g} s"
        self._client = _KEYS[settings.by]
        self._header = settings.header or ""
        self._local = Allowances(interval, burst)
        self._redis: SharedServer | None = None
        self._without_redis = settings.without_redis
        self._shared: Shared | None = None
        self.settings = settings
        if settings.redis is not None:
            rate = f"{settings.requests}:{settings.seconds:g}:{burst}:{settings.by}:{self._header}"
            prefix = f"gateway:rate_limit:{settings.name}:{rate}:"
            self._redis = SharedServer(settings.redis.get_secret_value(), lambda: self.place, clock)
            self._shared = SharedAllowances(self._redis, prefix, interval, burst)

    def share(self, shared: Shared) -> None:
        """Unless the limit is in Redis, apply the limit of `shared`, which other processes of this gateway also use.
        While `shared` does not respond, this process applies the limit separately."""
        if self._redis is None:
            self._shared = shared

    def take(self, client: str) -> float:
        """See SharedState. The setting `by` distinguishes clients."""
        return self._local.take(client, self._clock())

    async def call(self, handler: Handler, request: Request) -> Answer:
        """Return the response of `handler`, unless the client has sent too many requests."""
        client = self._client(request, self._header)
        if self._shared:
            await self._take_shared(self._shared, client)
        else:
            self._take(client)
        return await handler(request)

    async def stream(self, handler: StreamHandler, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses of `handler`, unless the client has sent too many requests. A stream counts as one
        request."""
        client = self._client(request, self._header)
        if self._shared:
            await self._take_shared(self._shared, client)
        else:
            self._take(client)
        async with aclosing(handler(request)) as responses:
            async for response in responses:
                yield response

    def _take(self, client: str) -> None:
        wait = self._local.take(client, self._clock())
        if wait:
            self._refuse(wait)

    async def _take_shared(self, shared: Shared, client: str) -> None:
        wait = await shared.take(client)
        if wait:
            self._refuse(wait)
        elif wait is None and self._without_redis == "refuse":
            self._refused += 1
            text = "the server that counts requests (rate_limit.redis) does not respond; try again later"
            raise refusal(Reason.NOT_READY, text, retry_after=1.0)
        elif wait is None and self._without_redis == "local":
            self._take(client)

    def _refuse(self, wait: float) -> None:
        self._refused += 1
        raise refusal(Reason.RATE_LIMITED, f"{self._text}; try again in {round(wait, 3):g} s", retry_after=wait)

    def status(self) -> Mapping[str, object]:
        """Return the number of stored clients and of rejected requests, and whether Redis responds."""
        shown: dict[str, object] = {"clients": len(self._local), "refused": self._refused}
        return {**shown, "redis": "up" if self._redis.is_reached else "down"} if self._redis else shown

    def of_principal(self, name: str) -> Mapping[str, object] | None:
        """If `by` is `principal`, return the limit, the number of remaining requests (`left`), and the time until the
        full limit is available again, in seconds (`full_in`). `left` and `full_in` are null if Redis counts the
        requests."""
        settings = self.settings
        if settings.by != "principal":
            return None
        shown = {"requests": settings.requests, "seconds": settings.seconds, "burst": self._burst}
        if self._redis is not None:
            return {**shown, "left": None, "full_in": None}
        left, full_in = self._local.left(_principal_key(name), self._clock())
        return {**shown, "left": left, "full_in": round(full_in, 3)}

    async def close(self, seconds: float) -> None:
        """Close the connections to Redis."""
        if self._redis:
            await self._redis.close()


def _by_client(request: Request, header: str) -> str:
    host = request.peer.rpartition(":")[0]
    return _network(host) if ":" in host else host


@lru_cache(4096)
def _network(host: str) -> str:
    """Return the /64 network of an IPv6 address, because a client can choose any address in its network."""
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped) if mapped else address.packed[:8].hex()


def _by_principal(request: Request, header: str) -> str:
    principal = request.principal
    return _by_client(request, header) if principal is None else _principal_key(principal.name)


def _principal_key(name: str) -> str:
    # The NUL distinguishes this text from an empty address and from a client without a principal.
    return f"\0{_short(name)}"


def _by_header(request: Request, header: str) -> str:
    text = request.headers.get(header)
    # The value might be a client's key, so store only a digest, and send only the digest to Redis.
    return blake2b(text.encode("latin-1", "replace"), digest_size=16).hexdigest() if text else ""


def _short(text: str) -> str:
    """Return `text`, or a digest if `text` is long, because clients choose the texts and many of them are stored."""
    if len(text) <= _LONGEST_KEY:
        return text
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


_KEYS: dict[str, Callable[[Request, str], str]] = {
    "client": _by_client,
    "principal": _by_principal,
    "model": lambda request, header: _short(request.model),
    "header": _by_header,
    "all": lambda request, header: "",
}
"""The functions that return the key of a request's bucket, by the value of `by`."""

state = ShownStates(RateLimit)


def wrap(handler: Handler, settings: Settings) -> Handler:
    """Wrap `handler` to limit each client's requests.

    The Handler raises:
        GatewayError: RESOURCE_EXHAUSTED (rate-limited); UNAVAILABLE (not-ready) with `without_redis: refuse`."""
    limit = state(settings)

    async def with_limit(request: Request) -> Answer:
        return await (limit.call(handler, request) if request.operation in CALLS else handler(request))

    return with_limit


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """Wrap `handler`, for streams. See `wrap`."""
    limit = state(settings)

    def with_limit(request: Request) -> AsyncGenerator[Response, None]:
        return limit.stream(handler, request)

    return with_limit


MOST_CLIENTS = 65_536
"""Maximum number of stored clients. Above this number, the gateway forgets the clients with the oldest last requests,
which then start again with a full bucket."""


class Allowances:
    """Token buckets that limit the requests of each client. Each bucket is stored as one number.

    A bucket can hold `burst` tokens. Each request takes one token, and the bucket gains one token every `interval`
    seconds. Instead of the tokens, the class stores the time at which the bucket is full again (the generic cell rate
    algorithm of ATM Forum's UNI 3.1, section 3.6.2.4). A full bucket therefore takes no memory."""

    def __init__(self, interval: float, burst: int, most: int = MOST_CLIENTS) -> None:
        self._interval = interval
        self._spread = interval * burst
        """The time after which an empty bucket is full, in seconds."""
        self._most = most
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """The time at which each client's bucket is full. The client with the oldest last request is first."""

    def __len__(self) -> int:
        return len(self._full_at)

    def left(self, client: str, now: float) -> tuple[int, float]:
        """Return the number of tokens in the bucket of `client`, and the time until the bucket is full, in seconds."""
        missing = max(self._full_at.get(client, now) - now, 0.0)
        # Number of whole tokens, with the same tolerance for rounding errors as in `take`.
        return int((self._spread - missing) / self._interval + 1e-6), missing

    def take(self, client: str, now: float) -> float:
        """Take a token of `client` and return 0.0. If the bucket is empty, return the time until it contains a token,
        in seconds."""
        known = self._full_at
        full_at = max(known.get(client, now), now) + self._interval
        # Tolerate a small deficit, because the sum of many intervals can have a rounding error.
        wait = full_at - now - self._spread
        if wait > self._interval * 1e-6:
            if client in known:
                known.move_to_end(client)
            return wait
        known[client] = full_at
        known.move_to_end(client)
        if len(known) > self._most:
            known.popitem(last=False)
        return 0.0


# Stores a bucket like `Allowances`: the value is the time at which the bucket is full.
_SCRIPT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local interval, spread = tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + interval
local wait = full_at - now - spread
if wait > interval * 0.001 then
  return string.format('%.6f', wait)
end
redis.call('SET', KEYS[1], string.format('%.6f', full_at), 'PX', math.ceil((full_at - now) * 1000))
return '0'
"""


class SharedAllowances:
    """The buckets of all clients, like `Allowances`, but in Redis or Valkey, which several gateways share.

    Each request runs one script on the server. The script is atomic and uses the server's clock. The gateways' clocks
    therefore do not matter."""

    def __init__(self, server: SharedServer, prefix: str, interval: float, burst: int) -> None:
        self._server = server
        self._prefix = prefix
        self._arguments = (repr(interval), repr(interval * burst))
        self._script: Any = None

    async def take(self, client: str) -> float | None:
        """Take a token of `client` and return 0.0. If the bucket is empty, return the time until it contains a token,
        in seconds. Return None if the server does not respond."""
        return await self._server.ask(lambda redis: self._take(redis, client))

    async def _take(self, redis: Any, client: str) -> float:
        if self._script is None:
            self._script = redis.register_script(_SCRIPT)
        keys = [f"{self._prefix}{client}"]
        return float(await self._script(keys=keys, args=self._arguments, client=redis))
