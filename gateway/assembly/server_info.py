"""The name and version of the gateway, for clients that request it."""

from importlib.metadata import version

from gateway.core.types import ServerInfo

INFO = ServerInfo("modelglot", version("modelglot"))
