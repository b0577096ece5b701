"""The gateway's name and version, as server metadata and reports contain them."""

from importlib.metadata import version

from gateway.core.models import ServerInfo

INFO = ServerInfo("modelglot", version("modelglot"))
