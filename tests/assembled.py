"""An Assembly whose Connectors are the test's own, and a policy that notes what it lets pass."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from gateway.assembly.assembly import Assembly
from gateway.assembly.environment import Connections, Environment, Host, ParseAddress
from gateway.assembly.registry import protocols
from gateway.config import Config
from gateway.core.models import ServerInfo
from gateway.core.protocol import Limits, Protocol
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Connector, Handler, StreamHandler

INFO = ServerInfo("gateway", "1")


def assembled(
    config: Config,
    connector: Callable[[str, Protocol, Limits, str], Connector],
    spoken: Mapping[str, Protocol] | None = None,
    policies: Mapping[str, Any] | None = None,
    *,
    parse_address: ParseAddress = lambda address, protocol: address,
    clock: Callable[[], float] | None = None,
    ready: bool = True,
    host: Host | None = None,
    before: Assembly | None = None,
) -> Assembly:
    """An Assembly of `config`, which replaces `before`. `connector` makes the Connector for an address, which has a
    protocol, limits and an IP address."""

    def connect(
        address: str, protocol: Protocol, limits: Limits, ip: str = "", *, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> Connector:
        return connector(address, protocol, limits, ip)

    environment = Environment(
        protocols() if spoken is None else spoken,
        policies or {},
        Connections(parse_address, connect),
        clock or asyncio.get_running_loop().time,
        INFO,
        lambda: ready,
        host or Host(),
    )
    return Assembly(config, environment, before)


class Named(BaseModel):
    name: str


def marks(passed: list[str]) -> Any:
    """A policy that notes what it lets pass."""

    def wrap(handler: Handler, settings: Named) -> Handler:
        async def marked(request: Request) -> Answer:
            passed.append(settings.name)
            return await handler(request)

        return marked

    def wrap_stream(handler: StreamHandler, settings: Named) -> StreamHandler:
        async def marked(request: Request) -> AsyncGenerator[Response, None]:
            passed.append(f"stream {settings.name}")
            async for response in handler(request):
                yield response

        return marked

    return SimpleNamespace(Settings=Named, wrap=wrap, wrap_stream=wrap_stream)
