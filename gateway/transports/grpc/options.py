"""How gRPC's core is set up."""

from typing import TypeAlias

from gateway.core.protocol import Limits

Options: TypeAlias = tuple[tuple[str, int | str], ...]

_UNLIMITED = -1
_SECOND = 1000

_KEEPALIVE_TIMEOUT = 60 * _SECOND


def _limits(limits: Limits) -> Options:
    """What is received is bounded, before it is allocated and before it is inflated; what is sent is known to fit."""
    return (
        ("grpc.max_receive_message_length", limits.message),
        ("grpc.max_send_message_length", _UNLIMITED),
        # Between the two core would refuse at random.
        ("grpc.max_metadata_size", limits.headers),
        ("grpc.absolute_max_metadata_size", limits.headers),
    )


def listener_options(limits: Limits) -> Options:
    """Of a server."""
    return (
        *_limits(limits),
        # Else a second gateway would bind the same port without a word, and get half of the clients.
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", 20 * _SECOND),
        # A host that vanished is noticed after two minutes.
        ("grpc.keepalive_time_ms", 60 * _SECOND),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients that ask whether the gateway is there may do so every ten seconds; by default they would be dropped
        # for asking more often than every five minutes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10 * _SECOND),
    )
