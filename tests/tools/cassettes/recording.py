"""A gateway that records: listeners for every wire form, and reference servers behind it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.assembly.registry import protocols
from gateway.client.model_server import ModelServer
from gateway.client.settings import ServerArguments
from gateway.runtime.app import Gateway
from gateway.tools.cassettes.entries import Entry
from gateway.tools.cassettes.files import CassetteFile, read
from gateway.tools.cassettes.recorder import Bounds, Recorder
from gateway.tools.cassettes.replaying import Replayed, Settings, replay
from tests.interop.processes import free_port
from tests.running_gateway import config_of

WIRE_FORMS = tuple(protocols())
GENEROUS = Bounds(1000, 2**30)
FILE = "cassette.jsonl"


def configuration(more: str = "") -> str:
    """A listener for each wire form, in front of one V2 server with the models of the tests."""
    nameless = {name for name, each in protocols().items() if not each.names_models}
    listeners = "".join(
        f'  - {{name: {name}, bind: "127.0.0.1:0", protocols: [{name}]{", model: posterior" * (name in nameless)}}}\n'
        for name in WIRE_FORMS
    )
    return f"""
listeners:
{listeners}
backends: {{models: {{protocol: v2-grpc, endpoints: ["127.0.0.1:PORT"]}}}}
routes: [{{match: {{model: "*"}}, backend: models}}]
reference: [{{protocol: v2-grpc, bind: "127.0.0.1:PORT", models: [posterior, double, count]}}]
{more}""".replace("PORT", str(free_port()))


@asynccontextmanager
async def recorded(
    folder: Path, text: str = "", bounds: Bounds = GENEROUS, random: Callable[[], float] = lambda: 0.5
) -> AsyncIterator[tuple[Gateway, Recorder]]:
    """A running gateway. Afterwards the cassette FILE in `folder` is complete."""
    recorder = Recorder(CassetteFile(folder / FILE), bounds, random)
    gateway = Gateway(config_of(text or configuration()), tap=recorder.tap)
    try:
        await gateway.start()
        yield gateway, recorder
    finally:
        await gateway.drain(0)
        recorder.close()


def entries(folder: Path) -> list[Entry]:
    return [entry for _, entry in read(folder / FILE)]


def at(gateway: Gateway, listener: str) -> str:
    """The address of a listener named as its wire form, as the client writes it."""
    return f"{listener}://{gateway.state.listeners[listener].address.rpartition('://')[2]}"


async def replayed(address: str, path: Path, settings: Settings | None = None, protocol: str = "") -> list[Replayed]:
    """The results at a server; of `protocol` alone, if it is given."""
    server = ModelServer(ServerArguments(address).checked())
    try:
        return await replay(chosen(path, protocol), server, settings or Settings())
    finally:
        await server.close()


def chosen(path: Path, protocol: str) -> Iterator[tuple[int, Entry]]:
    return ((line, each) for line, each in read(path) if protocol in ("", each.protocol))
