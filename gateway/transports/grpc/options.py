"""How gRPC's core is set up, on both sides."""

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


def connector_options(limits: Limits) -> Options:
    """Of a channel."""
    return (
        *_limits(limits),
        # Each call goes to the next of the addresses that the name resolves to.
        ("grpc.lb_policy_name", "round_robin"),
        # A name's own service configuration could ask for retries, and a proxy of the environment is none of ours.
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.enable_http_proxy", 0),
        # Connectors do not share connections, nor how long to wait until they connect again.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1 * _SECOND),
        # Despite its name: how long connecting may take.
        ("grpc.min_reconnect_backoff_ms", 5 * _SECOND),
        # gRPC servers by default drop clients that ask more often than every five minutes, or while no call runs.
        ("grpc.keepalive_time_ms", 310 * _SECOND),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 0),
    )
