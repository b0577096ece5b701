"""The health port: `/healthz` and `/readyz`, for kubelet and load balancers. No key, and nothing else."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse


def application(ready: Callable[[], Awaitable[bool]]) -> FastAPI:
    """`/healthz` answers 200 while the process serves at all; `/readyz` 200 while it takes requests, else 503."""
    app = FastAPI(title="Inference gateway: health", docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    @app.get("/readyz")
    async def readyz() -> PlainTextResponse:
        return PlainTextResponse("ready") if await ready() else PlainTextResponse("not ready", 503)

    return app
