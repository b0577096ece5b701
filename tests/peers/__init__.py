"""Peers of the gateway: real clients and model servers at the other end of its connections, and how to install them."""
