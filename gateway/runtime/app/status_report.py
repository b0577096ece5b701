"""The state of a running gateway, as the status API tells it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.admin import status
from gateway.assembly.certificates import Material
from gateway.assembly.server_info import INFO

if TYPE_CHECKING:
    from gateway.runtime.app.gateway import Gateway


def status_of(gateway: "Gateway", materials: Iterable[Material]) -> status.GatewayStatus:
    """The current state; `materials` are the certificates in use."""
    gateway.observing.flush()
    counters, shedding = gateway.observing.counters, gateway.shedding
    return status.GatewayStatus(
        version=INFO.version,
        ready=gateway.ready,
        configuration=status.ConfigurationStatus(
            loaded_at=gateway.loaded_at, reloads=gateway.reloads, last_error=gateway.last_reload_error
        ),
        listeners={
            each.name: status.ListenerStatus(
                address=listener.address,
                protocols=list(each.protocols),
                requests=dict(counters.of_listener(each.name)),
                refused_connections=listener.refused_connections,
            )
            for each in gateway.config.listeners
            if (listener := gateway.listeners.get(each.name)) is not None
        },
        shedding=None if shedding is None else status.SheddingStatus(since=shedding.since, refused=shedding.refused),
        backends={
            name: status.backend_status(backend, counters.of_backend(name))
            for name, backend in gateway.backends.items()
        },
        policies=[
            status.PolicyStatus(place=place, policy=name, state=dict(state))
            for place, name, state in gateway.policy_states
        ],
        last_errors=list(counters.last_errors()),
        tracing=None
        if gateway.observing.tracing is None
        else status.TracingStatus(sent=gateway.traces.sent, dropped=gateway.traces.dropped),
        certificates=[
            status.CertificateStatus(
                used_by=list(each.used_by),
                certificate=each.files.certificate or None,
                expires=each.expires,
                error=each.error,
            )
            for each in materials
        ],
    )
