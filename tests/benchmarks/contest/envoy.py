"""Envoy's configurations: as a proxy of HTTP/1.1, as a proxy of gRPC, and with its gRPC-JSON transcoder.

One worker thread, no access log and no request ids.
"""

from __future__ import annotations

import json

PROXY, GRPC, TRANSCODER = "proxy", "grpc", "transcoder"
LARGE = 2**30 - 1
"""Bytes of a message that it holds: its transcoder reads the whole of it."""
WINDOW = 2**28

_TYPE = "type.googleapis.com/envoy.extensions"
_HTTP2 = {"initial_stream_window_size": WINDOW, "initial_connection_window_size": WINDOW}


def config(kind: str, port: int, backend: str, descriptors: str) -> str:
    """As JSON, which Envoy reads as YAML. `descriptors` is a file with the schema of the service."""
    host, _, to = backend.rpartition(":")
    filters: list[object] = []
    if kind == TRANSCODER:
        transcoder = {
            "@type": f"{_TYPE}.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
            "proto_descriptor": descriptors,
            "services": ["inference.GRPCInferenceService"],
            "auto_mapping": True,
            "max_request_body_size": LARGE,
            "max_response_body_size": LARGE,
        }
        filters.append({"name": "transcoder", "typed_config": transcoder})
    filters.append({"name": "router", "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"}})
    route = {"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}}
    manager = {
        "@type": f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "generate_request_id": False,
        "codec_type": "HTTP2" if kind == GRPC else "HTTP1",
        "http2_protocol_options": _HTTP2,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": filters,
    }
    cluster = {
        "name": "backend",
        "type": "STATIC",
        "connect_timeout": "5s",
        "per_connection_buffer_limit_bytes": LARGE,
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": 10_000, "max_pending_requests": 10_000, "max_requests": 10_000, "max_retries": 3}
            ]
        },
        "load_assignment": {
            "cluster_name": "backend",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(host, int(to))}}]}],
        },
    }
    if kind != PROXY:
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": _HTTP2},
            }
        }
    listener = {
        "name": "in",
        "address": _address("127.0.0.1", port),
        "per_connection_buffer_limit_bytes": LARGE,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def _address(host: str, port: int) -> object:
    return {"socket_address": {"address": host, "port_value": port}}
