"""The headers of every request to a server: credentials, and headers that an intermediate proxy requires."""

from collections.abc import AsyncGenerator, Mapping

from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message, Metadata
from gateway.core.protocol import GrpcBinding, Protocol, StreamBinding
from gateway.core.transport import Connector

AUTHORIZATION = b"authorization"

RawHeaders = tuple[tuple[bytes, bytes], ...]


def raw_headers(headers: Mapping[str, str] | None, key: str | None) -> RawHeaders:
    """Return the headers to send: `headers`, and `key` as a bearer token (RFC 6750), which the gateway accepts as an
    API key.

    Raises:
        ValueError: `headers` contains Authorization although `key` is set, or a header's name or value is invalid.
    """
    raw = tuple((_encoded(name).lower(), _encoded(value)) for name, value in (headers or {}).items())
    if key is None:
        return raw
    if any(name == AUTHORIZATION for name, _ in raw):
        raise ValueError("set only one of `key` and the header Authorization")
    return (*raw, (AUTHORIZATION, b"Bearer " + _encoded(key)))


def _encoded(text: str) -> bytes:
    if not text.isascii() or not text.isprintable() or text != text.strip() or not text:
        # The value can be a secret.
        raise ValueError("a header's name and value must be printable ASCII without blanks around them")
    return text.encode()


def check_headers(protocol: Protocol, headers: RawHeaders) -> None:
    """Check that a protocol's messages can carry these headers.

    Raises:
        ValueError: the messages cannot carry the headers.
    """
    if headers and isinstance(protocol.binding, StreamBinding):
        others = [name.decode() for name, _ in headers if name != AUTHORIZATION]
        if others or protocol.binding.with_credential is None:
            what = f"the header {others[0]!r}" if others else "a key"
            raise ValueError(f"messages of {protocol.name} cannot carry {what}; use another protocol")


class FixedHeaders:
    """A Connector that adds headers to the messages of another Connector.

    On a byte stream, the only possible header is the credential, which goes into the message's credentials field."""

    def __init__(self, connector: Connector, protocol: Protocol, headers: RawHeaders) -> None:
        self._connector = connector
        self._headers = headers
        self._kind = Metadata if isinstance(protocol.binding, GrpcBinding) else Headers
        self._binding = protocol.binding

    async def exchange(self, message: Message) -> Message:
        """Add the headers, and call the other Connector's `exchange`."""
        return await self._connector.exchange(self._with_headers(message))

    def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Add the headers, and call the other Connector's `stream`."""
        return self._connector.stream(self._with_headers(message))

    async def close(self) -> None:
        """Close the other Connector."""
        await self._connector.close()

    def _with_headers(self, message: Message) -> Message:
        binding = self._binding
        if isinstance(binding, StreamBinding):
            assert binding.with_credential is not None
            return binding.with_credential(message, self._headers[0][1])
        return replace(message, headers=self._kind((*message.headers.raw, *self._headers)))
