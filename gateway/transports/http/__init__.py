"""The HTTP/1.1 transport: `Listener`, `Connector`, and `parse_address` for endpoints."""

from gateway.transports.http.address import ALPN, parse_address
from gateway.transports.http.client.connector import HttpConnector as Connector
from gateway.transports.http.server.listener import HttpListener as Listener

__all__ = ["ALPN", "Connector", "Listener", "parse_address"]
