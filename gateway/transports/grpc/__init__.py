"""The gRPC transport: `Listener`, `Connector`, and `parse_address` for endpoints."""

from gateway.transports.grpc.address import ALPN, parse_address
from gateway.transports.grpc.client.connector import GrpcConnector as Connector
from gateway.transports.grpc.server.listener import GrpcListener as Listener

__all__ = ["ALPN", "Connector", "Listener", "parse_address"]
