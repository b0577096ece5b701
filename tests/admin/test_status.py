"""The status API."""

import json
from datetime import UTC, datetime

from gateway.admin.status import (
    BackendStatus,
    ClientWaiting,
    ConfigurationError,
    ConfigurationStatus,
    EndpointStatus,
    GatewayStatus,
    LastError,
    ListenerStatus,
    LoadError,
    NotReloaded,
    QueueStatus,
    Reloaded,
    application,
)
from tests.admin.served import served

STATUS = GatewayStatus(
    version="1.2.3",
    ready=True,
    configuration=ConfigurationStatus(
        loaded_at=datetime(2026, 11, 22, 3, 0, 0, tzinfo=UTC),
        reloads=4,
        last_error=LoadError(text="g.yaml:1:2: wrong", at=datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)),
    ),
    listeners={"http": ListenerStatus(address="127.0.0.1:8080", protocols=["v2-rest"], refused_connections=2)},
    backends={
        "lab": BackendStatus(
            protocol="umbridge",
            max_in_flight=1,
            waiting=3,
            queue=QueueStatus(
                length=10, timeout=None, estimated_wait=2.5, clients=[ClientWaiting(client="a", waiting=3)]
            ),
            endpoints=[
                EndpointStatus(
                    address="h:1",
                    in_flight=1,
                    state="down",
                    last_error=LastError(text="connection refused", at=datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)),
                    ejected_until=datetime(2026, 11, 22, 3, 4, 15, tzinfo=UTC),
                )
            ],
        )
    },
)


async def test_it_shows_the_current_state() -> None:
    now = [STATUS]
    async with served(application(lambda: now[-1])) as port:
        assert json.loads((await port.get("/status"))[1]) == STATUS.model_dump(mode="json")
        now.append(STATUS.model_copy(update={"ready": False}))
        assert json.loads((await port.get("/status"))[1])["ready"] is False


async def test_it_has_an_openapi_description() -> None:
    async with served(application(lambda: STATUS)) as port:
        described = json.loads((await port.get("/openapi.json"))[1])
        assert described["info"]["version"] == "1.2.3"
        assert list(described["paths"]) == ["/status"]


async def test_a_reload_answers_with_what_changed_or_with_every_error() -> None:
    outcomes: list[Reloaded | NotReloaded] = [
        Reloaded(changes=["backend 'lab' added"]),
        NotReloaded(errors=[ConfigurationError(text="wrong", file="g.yaml", line=3, column=5, location=["routes", 0])]),
    ]

    async def reload() -> Reloaded | NotReloaded:
        return outcomes.pop(0)

    post = b"POST /reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    async with served(application(lambda: STATUS, reload)) as port:
        status, body = await port.send(post)
        assert (status, json.loads(body)) == (200, {"changes": ["backend 'lab' added"]})
        status, body = await port.send(post)
        assert status == 422
        assert json.loads(body) == {
            "errors": [{"text": "wrong", "file": "g.yaml", "line": 3, "column": 5, "location": ["routes", 0]}]
        }
        status, body = await port.get("/reload")
        assert (status, json.loads(body)) == (405, {"detail": "use POST to reload: curl -X POST URL"})
        described = json.loads((await port.get("/openapi.json"))[1])
        assert list(described["paths"]) == ["/status", "/reload"]
