"""Protocols that clients and model servers speak, one folder per protocol. Each protocol converts between bytes and
values, for the client side and the upstream side, and performs no I/O.

In each folder, `PROTOCOLS` lists one Protocol for each variant. docs/architecture.md describes the layout of a folder.
"""
