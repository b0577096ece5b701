"""What is asked of the gateway itself."""

from collections.abc import Callable, Mapping

from gateway.admin.statistics import Statistics
from gateway.core.errors import unsupported
from gateway.core.operations import Operation
from gateway.core.transport import Destination
from gateway.core.types import Answer, Request, ServerInfo
from gateway.routing.readiness import Readiness


def own_answers(
    info: ServerInfo, readiness: Readiness, statistics: Mapping[str, Statistics], *, asks_backends: bool = False
) -> dict[Operation, Destination]:
    """What is asked of the gateway itself, and answered without waiting, but for whether it is ready where this depends
    on backends (`asks_backends`). `statistics` are by listener."""

    def told(request: Request) -> Answer:
        if request.listener not in statistics:
            text = f"listener {request.listener!r} keeps no statistics"
            raise unsupported(f"{text}; `metrics_page: true` on the listener would")
        return statistics[request.listener].measurements()

    answers: dict[Operation, Callable[[Request], Answer]] = {
        Operation.LIVE: lambda request: True,
        Operation.READY: readiness.of,
        Operation.ONLINE: readiness.online,
        Operation.OFFLINE: readiness.offline,
        Operation.SERVER_METADATA: lambda request: info,
        Operation.STATISTICS: told,
    }
    own = {operation: Destination(local=answer) for operation, answer in answers.items()}
    if asks_backends:
        own[Operation.READY] = Destination(readiness.with_backends)
    return own
