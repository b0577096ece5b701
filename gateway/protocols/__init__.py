"""The protocols that clients and model servers speak, one folder each: bytes to values and back, for both sides. Pure.

A folder's `PROTOCOLS` has a Protocol for each of its wire forms; docs/architecture.md has the layout of a folder.
"""
