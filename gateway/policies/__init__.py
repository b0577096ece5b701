"""The policies: one module each, whose name is the key under `policies:` of routes and backends.

A policy module has `Settings` (a pydantic model: its keys in YAML), `wrap` (a Handler to a Handler) and `wrap_stream`
(the same for a StreamHandler). `gateway/registry.py` finds it; `timeout` is an example.
"""
