"""Protocols that nobody speaks. Each folder here is what a folder under `gateway/protocols` is."""
