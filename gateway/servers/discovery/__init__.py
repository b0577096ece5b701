"""Discovery of the endpoints of backends while the gateway runs: DNS, SRV records, files, and servers that register
themselves. This package does not import backends: a Source reports addresses, and its caller applies them."""
