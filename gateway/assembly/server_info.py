"""What the gateway says of itself where clients ask for a server's name and version."""

from importlib.metadata import version

from gateway.core.types import ServerInfo

INFO = ServerInfo("modelglot", version("modelglot"))
