"""gRPC: `Listener`, `Connector`, and `parse_address` of an endpoint."""

import os

# gRPC's core writes to standard error, in a form of its own, for one when a peer closes a connection; what matters
# comes back as an error, too. It reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from gateway.transports.grpc.address import parse_address
from gateway.transports.grpc.connector import GrpcConnector as Connector
from gateway.transports.grpc.listener import GrpcListener as Listener

__all__ = ["Connector", "Listener", "parse_address"]
