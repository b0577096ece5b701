"""Handles operations on the gateway itself: liveness, readiness, metadata, and statistics."""

from collections.abc import Callable, Mapping

from gateway.assembly.statistics import ListenerStatistics
from gateway.core.errors import unsupported
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request
from gateway.core.transport import Destination
from gateway.routing.readiness import Readiness


def server_operations(
    info: ServerInfo, readiness: Readiness, statistics: Mapping[str, ListenerStatistics], *, asks_backends: bool = False
) -> dict[Operation, Destination]:
    """Return a Destination for each operation on the gateway itself.

    All operations respond immediately, except readiness if it depends on backends (`asks_backends`). `statistics`
    contains the statistics of the listeners with a metrics page, by listener name."""

    def series(request: Request) -> Answer:
        if request.listener not in statistics:
            text = f"listener {request.listener!r} keeps no statistics"
            raise unsupported(f"{text}; `metrics_page: true` on the listener enables them")
        return statistics[request.listener].measurements()

    answers: dict[Operation, Callable[[Request], Answer]] = {
        Operation.LIVE: lambda request: True,
        Operation.READY: readiness.of,
        Operation.ONLINE: readiness.online,
        Operation.OFFLINE: readiness.offline,
        Operation.SERVER_METADATA: lambda request: info,
        Operation.STATISTICS: series,
    }
    own = {operation: Destination(local=answer) for operation, answer in answers.items()}
    if asks_backends:
        own[Operation.READY] = Destination(readiness.with_backends)
    return own
