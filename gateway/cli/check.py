"""`gateway check`: is a configuration right?"""

from gateway.cli.options import ConfigFile, read


def check(config: ConfigFile) -> None:
    """Check a configuration. Exit 0, or print every error as file:line:column: message and exit 1."""
    read(config)
