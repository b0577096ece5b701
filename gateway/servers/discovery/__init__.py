"""Discovers backend endpoints while the gateway runs: through DNS, SRV records, files, and servers that register
themselves. This package does not import backends: a Source reports addresses, and the caller applies them."""
