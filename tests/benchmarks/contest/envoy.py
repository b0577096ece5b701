"""Envoy's configurations: as a proxy of HTTP/1.1, as a proxy of gRPC, and with its gRPC-JSON transcoder.

One worker thread, no access log and no request ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

PROXY, GRPC, TRANSCODER = "proxy", "grpc", "transcoder"
LARGE = 2**30 - 1
"""Bytes of a message that it holds: its transcoder reads the whole of it."""
WINDOW = 2**28

_TYPE = "type.googleapis.com/envoy.extensions"
_HTTP2 = {"initial_stream_window_size": WINDOW, "initial_connection_window_size": WINDOW}


def config(kind: str, port: int, backend: str, descriptors: str) -> str:
    """As JSON, which Envoy reads as YAML. `descriptors` is a file with the schema of the service."""
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
    route = {"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}}
    cluster = _cluster("backend", backend)
    if kind != PROXY:
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": _HTTP2},
            }
        }
    return _document(port, "HTTP2" if kind == GRPC else "HTTP1", filters, {"routes": [route]}, [cluster])


def by_path(port: int, clusters: Mapping[str, str], paths: Mapping[str, tuple[str, str]]) -> str:
    """A proxy of HTTP/1.1. `clusters` are addresses by name, `paths` say for each path the cluster and the path there.
    They are found in a map: Envoy tries a list of routes one after the other."""
    actions = {
        path: {
            "action": {
                "name": "route",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.config.route.v3.Route",
                    "match": {"path": path},
                    "route": {"cluster": cluster, "prefix_rewrite": there, "timeout": "0s"},
                },
            }
        }
        for path, (cluster, there) in paths.items()
    }
    header = {"@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput", "header_name": ":path"}
    tree = {"input": {"name": "path", "typed_config": header}, "exact_match_map": {"map": actions}}
    matcher = {"matcher": {"matcher_tree": tree}}
    return _document(port, "HTTP1", [], matcher, [_cluster(name, address) for name, address in clusters.items()])


def fixed(port: int, replies: Mapping[str, object]) -> str:
    """A server of HTTP/1.1 that answers each path with the same JSON."""
    routes = [
        {
            "match": {"path": path},
            "direct_response": {"status": 200, "body": {"inline_string": json.dumps(reply)}},
            "response_headers_to_add": [{"header": {"key": "content-type", "value": "application/json"}}],
        }
        for path, reply in replies.items()
    ]
    return _document(port, "HTTP1", [], {"routes": routes}, [])


def _document(
    port: int, codec: str, filters: Sequence[object], routing: Mapping[str, object], clusters: Sequence[object]
) -> str:
    """`routing` is that of the virtual host, `filters` come before that which routes."""
    router = {"name": "router", "typed_config": {"@type": f"{_TYPE}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{_TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "generate_request_id": False,
        "codec_type": codec,
        "http2_protocol_options": _HTTP2,
        "route_config": {
            "max_direct_response_body_size_bytes": LARGE,
            "virtual_hosts": [{"name": "all", "domains": ["*"], **routing}],
        },
        "http_filters": [*filters, router],
    }
    listener = {
        "name": "in",
        "address": _address("127.0.0.1", port),
        "per_connection_buffer_limit_bytes": LARGE,
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}})


def _cluster(name: str, address: str) -> dict[str, object]:
    host, _, port = address.rpartition(":")
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "per_connection_buffer_limit_bytes": LARGE,
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": 10_000, "max_pending_requests": 10_000, "max_requests": 10_000, "max_retries": 3}
            ]
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(host, int(port))}}]}],
        },
    }


def _address(host: str, port: int) -> object:
    return {"socket_address": {"address": host, "port_value": port}}
