"""The states of policies in a running gateway."""

from gateway.app import Gateway
from gateway.policies.cache import Cache
from gateway.policies.mirror import Mirror


def mirrors(gateway: Gateway) -> list[Mirror]:
    """The states of all policies `mirror`."""
    return [each for _, _, each in gateway._assembly.policing.states if isinstance(each, Mirror)]


def caches(gateway: Gateway) -> list[Cache]:
    """The states of all policies `cache`."""
    return [each for _, _, each in gateway._assembly.policing.states if isinstance(each, Cache)]
