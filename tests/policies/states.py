"""The states of policies in a running gateway."""

from gateway.policies.cache import Cache
from gateway.policies.mirror import Mirror
from gateway.runtime.app import Gateway


def mirrors(gateway: Gateway) -> list[Mirror]:
    """The states of all policies `mirror`."""
    return [each for _, _, each in gateway.state.assembly.policing.states if isinstance(each, Mirror)]


def caches(gateway: Gateway) -> list[Cache]:
    """The states of all policies `cache`."""
    return [each for _, _, each in gateway.state.assembly.policing.states if isinstance(each, Cache)]
