"""Discovery of the endpoints of backends while the gateway runs: DNS, SRV records, files, and servers that register
themselves. This package does not import backends. A Source reports addresses, and the caller applies them."""
