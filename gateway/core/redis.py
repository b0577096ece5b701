"""The URL of a Redis or Valkey server: whether it is one, and a pool of connections to it. Nothing is opened here. The
package `redis` is imported only where a configuration names a server."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import SecretStr
from pydantic_core import PydanticCustomError

if TYPE_CHECKING:
    from redis.asyncio import BlockingConnectionPool

CONNECTIONS = 32
"""The most connections to a server at once; further questions wait for one."""

_SCHEMES = ("redis://", "rediss://", "unix://")


def connection_pool(url: str) -> "BlockingConnectionPool":
    """The connections to the server at `url`; none is opened yet.

    Raises:
        ValueError: `url` is not the URL of a Redis server.
    """
    from redis.asyncio import BlockingConnectionPool
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # Whoever asks bounds the time of everything; a new try would only use it up.
    retry = Retry(NoBackoff(), 0)
    try:
        pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=None, protocol=2, retry=retry)
        pool.make_connection()  # type: ignore[no-untyped-call]
    except Exception as error:  # of several types, with texts that may contain parts of the URL
        raise ValueError("not the URL of a Redis server, such as redis://host:6379/0") from error
    return pool


def redis_url(url: SecretStr) -> SecretStr:
    """`url`, if it is the URL of a Redis server; a check for settings.

    Raises:
        PydanticCustomError: it is not, or the package is not installed.
    """
    # The texts do not show the URL, which may hold a password.
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
