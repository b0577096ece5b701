"""Finding the endpoints of backends while the gateway runs: DNS, SRV records, files, and servers that register
themselves. Nothing here knows backends: a Source says which addresses there are, and whoever asked acts on it."""
