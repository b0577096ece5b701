"""The running gateway: what it is made of, how it starts, changes to another configuration, drains and stops."""

from gateway.runtime.app.gateway import Gateway

__all__ = ["Gateway"]
