"""Model servers over REST and gRPC that keep the headers that a gateway sends them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc.aio

from gateway.runtime.app import Gateway
from tests.paused_server import INFER, REPLY, ask, http, listening, port_of, read_message


class Servers:
    """A V2 server over REST and one over gRPC, which keep the headers that they get."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.probed = asyncio.Event()
        self.serving: set[asyncio.Task[None] | None] = set()

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving.add(asyncio.current_task())
        try:
            while True:
                head, _ = await read_message(reader)
                if b"/health/live " in head:
                    self.probed.set()
                self.heads.append(head)
                writer.write(http(b"HTTP/1.1 200 OK", REPLY))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def infer(self, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.metadata.append(dict(context.invocation_metadata() or ()))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")
        raise AssertionError

    def lines(self, path: bytes) -> list[bytes]:
        """The lines of the last head for this path, the first one left out."""
        head = next(each for each in reversed(self.heads) if each.split(b" ")[1] == path)
        return head.split(b"\r\n")[1:]


@asynccontextmanager
async def header_servers(text: str) -> AsyncIterator[tuple[Servers, str]]:
    """Both servers, and the configuration `text` with their ports for `HTTP` and `GRPC`."""
    servers = Servers()
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(servers.infer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with listening(servers.http) as http_port:
        yield servers, text.replace("HTTP", str(http_port)).replace("GRPC", str(port))
        await server.stop(None)
    await asyncio.gather(*filter(None, servers.serving))


async def infer(gateway: Gateway, model: bytes, lines: bytes = b"") -> bytes:
    """The reply to one inference over HTTP, with more lines in its head."""
    request = INFER.replace(b"models/m", b"models/" + model)
    request = request.replace(b"\r\n", b"\r\nConnection: close\r\n" + lines, 1)
    return await ask(port_of(gateway.state.listeners["http"].address), request)
