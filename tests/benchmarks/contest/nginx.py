"""nginx's configuration as a proxy: one worker process, no access log, and connections that are kept on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_CONFIG = """
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log {folder}/errors warn;
worker_rlimit_nofile {files};
events {{ worker_connections {connections}; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_max_body_size 0;
  client_body_buffer_size 32m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  proxy_buffers 16 32k;
  proxy_max_temp_file_size 0;
  proxy_http_version 1.1;
  proxy_set_header Connection "";
{upstreams}
  server {{
    listen {listen};
{locations}
  }}
}}
"""
_UPSTREAM = "  upstream {name} {{ server {address}; keepalive 512; keepalive_requests 1000000000; }}"


def nginx_config(
    folder: Path, listen: str, upstreams: Mapping[str, str], locations: Mapping[str, str], connections: int = 4096
) -> str:
    """A server at `listen`; `upstreams` are addresses by name, `locations` say where the paths that they match go."""
    return _CONFIG.format(
        folder=folder,
        listen=listen,
        files=2 * connections,
        connections=connections,
        upstreams="\n".join(_UPSTREAM.format(name=name, address=address) for name, address in upstreams.items()),
        locations="\n".join(f"    location {match} {{ {passed}; }}" for match, passed in locations.items()),
    )
