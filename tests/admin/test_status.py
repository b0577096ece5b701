"""The status API."""

import json
from datetime import UTC, datetime

from gateway.admin.status import BackendStatus, EndpointStatus, LastError, ListenerStatus, Status, application
from tests.admin.served import served

STATUS = Status(
    version="1.2.3",
    ready=True,
    listeners={"http": ListenerStatus(address="127.0.0.1:8080", protocols=["v2-rest"])},
    backends={
        "lab": BackendStatus(
            protocol="umbridge",
            max_in_flight=1,
            waiting=3,
            endpoints=[
                EndpointStatus(
                    address="h:1",
                    in_flight=1,
                    state="ejected",
                    last_error=LastError(text="connection refused", at=datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)),
                    ejected_until=datetime(2026, 11, 22, 3, 4, 15, tzinfo=UTC),
                )
            ],
        )
    },
)


async def test_it_tells_what_runs_now() -> None:
    now = [STATUS]
    async with served(application(lambda: now[-1])) as port:
        assert json.loads((await port.get("/status"))[1]) == STATUS.model_dump(mode="json")
        now.append(STATUS.model_copy(update={"ready": False}))
        assert json.loads((await port.get("/status"))[1])["ready"] is False


async def test_it_describes_itself() -> None:
    async with served(application(lambda: STATUS)) as port:
        described = json.loads((await port.get("/openapi.json"))[1])
        assert described["info"]["version"] == "1.2.3"
        assert list(described["paths"]) == ["/status"]
        assert (await port.get("/docs"))[0] == 200
