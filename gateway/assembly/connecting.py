"""Creates Connectors to servers, for the protocol's transport."""

from collections.abc import Hashable

from gateway.assembly import registry
from gateway.core.protocol import HttpBinding, Limits, Protocol, StreamBinding, TransportBinding
from gateway.core.transport import Connector, FixedFields
from gateway.transports.tls import ClientTls


def parse_address(address: str, protocol: Protocol) -> Hashable:
    """Return `address` in the normalized form of the protocol's transport.

    Raise ValueError if the address is not valid."""
    parsed: Hashable = registry.transport(protocol.transport).parse_address(address)
    return parsed


def connect(
    address: str,
    protocol: Protocol,
    limits: Limits,
    ip: str = "",
    tls: ClientTls | None = None,
    *,
    headers: FixedFields = (),
) -> Connector:
    """Return a Connector to the server at `address`.

    If `ip` is not empty, connect to this IP address of the host. The Connector sends `headers` with every message,
    except over byte streams, which have no headers. Raise ValueError if `address` is not valid for the protocol's
    transport."""
    transport = registry.transport(protocol.transport)
    connector: Connector = transport.Connector(
        address,
        connection_per_call=protocol.traits.servers.connection_per_call,
        limits=limits,
        ip=ip,
        tls=tls,
        **({"headers": headers} if headers else {}),
        **_framing(protocol.binding),
    )
    return connector


def _framing(binding: TransportBinding) -> dict[str, object]:
    """Return the Connector arguments that specify how to find the end of a message. Only byte streams require these
    arguments."""
    match binding:
        case StreamBinding():
            return {"framing": binding.framing}
        case HttpBinding() if binding.stream_framing is not None:
            return {"stream_framing": binding.stream_framing}
    return {}
