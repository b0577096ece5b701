"""Protocols that clients and model servers speak, one folder per protocol. They convert between bytes and values,
for the client side and the upstream side, and do no I/O.

`PROTOCOLS` of a folder has one Protocol for each variant. docs/architecture.md describes the layout of a folder.
"""
