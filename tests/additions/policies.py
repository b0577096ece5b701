"""`gateway policies`: the names of all policies."""

from gateway.assembly.registry import policies as installed


def policies() -> None:
    """Print the names of the policies."""
    print(*installed())
