"""Byte streams over TCP and unix sockets. A protocol's Framing finds the messages in the stream.

The package contains `Listener`, `Connector`, and `parse_address` for endpoints.
"""

from gateway.transports.tcp.address import ALPN, parse_address
from gateway.transports.tcp.connector import TcpConnector as Connector
from gateway.transports.tcp.listener import TcpListener as Listener

__all__ = ["ALPN", "Connector", "Listener", "parse_address"]
