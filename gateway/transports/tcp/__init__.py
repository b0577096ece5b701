"""Byte streams over TCP and unix sockets, cut by a protocol's Framing: `Listener`, `Connector`, and `parse_address` of
an endpoint."""

from gateway.transports.tcp.address import parse_address
from gateway.transports.tcp.client.connector import TcpConnector as Connector
from gateway.transports.tcp.server.listener import TcpListener as Listener

__all__ = ["Connector", "Listener", "parse_address"]
