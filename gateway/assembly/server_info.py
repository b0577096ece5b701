"""The gateway's name and version, for clients that request it."""

from importlib.metadata import version

from gateway.core.types import ServerInfo

INFO = ServerInfo("modelglot", version("modelglot"))
