"""Functions that check the URL of a Redis or Valkey server, and create a pool of connections to the server. The module
opens no connections, and imports the package `redis` only if the configuration contains the URL of a server."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

CONNECTIONS = 32
"""Maximum number of concurrent connections to a server. When all connections are in use, queries wait for a free
connection."""

_SCHEMES = ("redis://", "rediss://", "unix://")


def connection_pool(url: str) -> "BlockingConnectionPool":
    """Return a pool of connections to the server at `url`. The pool opens connections on first use.

    Raises:
        ValueError: `url` is not the URL of a Redis server.
    """
    from redis.asyncio import BlockingConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # No retries, because the caller limits the total time.
    retry = Retry(NoBackoff(), 0)
    try:
        pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None, protocol=2, retry=retry)
        pool.make_connection()  # type: ignore[no-untyped-call]
    except Exception as error:  # exceptions of several types, whose messages can contain parts of the URL
        raise ValueError("expected the URL of a Redis server, such as redis://host:6379/0") from error
    return pool


def redis_url(url: SecretStr) -> SecretStr:
    """Return `url` if it is the URL of a Redis server. Policies use this function to validate their settings.

    Raises:
        PydanticCustomError: `url` is not the URL of a Redis server, or the package is not installed.
    """
    # The error messages do not contain the URL, because it can contain a password.
    if not url.get_secret_value().startswith(_SCHEMES):
        raise PydanticCustomError("refused", "expected a URL that begins with redis://, rediss:// or unix://")
    if find_spec("redis") is None:
        text = 'needs the package redis, which is not installed: pip install "modelglot[redis]"'
        raise PydanticCustomError("refused", text)
    try:
        connection_pool(url.get_secret_value())
    except ValueError as error:
        raise PydanticCustomError("refused", str(error)) from None
    return url
