"""The running gateway: its parts, and how it starts, reloads, drains and stops."""

from gateway.runtime.app.gateway import Gateway

__all__ = ["Gateway"]
