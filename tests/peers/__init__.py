"""Peers of the gateway, clients and model servers at the other end of its connections: real ones, and how to install
them."""
