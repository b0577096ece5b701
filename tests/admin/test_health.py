"""The health port."""

from gateway.admin.health import application
from tests.admin.served import served
from tests.held import get


async def always() -> bool:
    return True


async def test_it_tells_that_the_process_serves_and_whether_it_takes_requests() -> None:
    states = iter([False, True])

    async def ready() -> bool:
        return next(states)

    async with served(application(ready)) as port:
        assert await port.get("/healthz") == (200, "ok")
        assert await port.get("/readyz") == (503, "not ready")
        assert await port.get("/readyz") == (200, "ready")


async def test_it_tells_nothing_else() -> None:
    async with served(application(always)) as port:
        assert [(await port.get(path))[0] for path in ("/", "/docs", "/openapi.json", "/status")] == [404] * 4
        assert (await port.send(get("/healthz").replace(b"GET", b"DELETE")))[0] == 405
