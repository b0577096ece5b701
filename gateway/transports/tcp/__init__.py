"""Byte streams over TCP and unix sockets, in which a protocol's Framing finds the messages.

The package has `Listener`, `Connector`, and `parse_address` for endpoints.
"""

from gateway.transports.tcp.address import ALPN, parse_address
from gateway.transports.tcp.client.connector import TcpConnector as Connector
from gateway.transports.tcp.server.listener import TcpListener as Listener

__all__ = ["ALPN", "Connector", "Listener", "parse_address"]
