"""The gateway's name and version, for server metadata and reports."""

from importlib.metadata import version

from gateway.core.models import ServerInfo

INFO = ServerInfo("modelglot", version("modelglot"))
