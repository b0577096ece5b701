"""`Gateway.reload`: requests in flight end as they began, what stays keeps its state, and a change is whole or not at
all. The same under load is in tests/attacks/test_reload_under_load.py."""

import asyncio
import gc
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc.aio
import pytest

from gateway.assembly.listening import BindError
from gateway.config import Config
from gateway.runtime.app import Gateway
from gateway.runtime.app.replacing import ReloadError
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields
from tests.interop.processes import free_port
from tests.limits import until
from tests.paused_server import INFER, QUESTION, Held, ask, get, held, http, port_of
from tests.running_gateway import config_of, running_gateway
from tests.tls.certificates import Authority

LISTENER = 'listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]\n'
TWO = LISTENER.replace("]}]", ']}, {name: second, bind: "127.0.0.1:0", protocols: [v2-rest]}]')
BACKEND = """
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"], max_in_flight: 1}}
routes: [{match: {model: m}, backend: lab}]
"""
NO_MODEL = LISTENER + BACKEND.replace("model: m", "model: other")


def config(text: str, server: Held | None = None) -> Config:
    return config_of(text.replace("PORT", str(server.port if server else 1)))


def running(text: str, server: Held | None = None) -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(config(text, server))


def at(gateway: Gateway, listener: str = "http") -> int:
    return port_of(gateway.state.listeners[listener].address)


_clients: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
async def close_clients() -> AsyncIterator[None]:
    yield
    while _clients:
        _clients.pop().close()
    await asyncio.sleep(0)


async def sent(port: int, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that has sent `request`; closed at the test's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _clients.append(writer)
    writer.write(request)
    return reader, writer


async def waits(gateway: Gateway) -> None:
    """Return when a call of the current configuration waits for a slot."""
    await until(lambda: gateway.state.status().backends["lab"].waiting, 0)


async def status(reader: asyncio.StreamReader) -> int:
    """The status of the next reply, which is read whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    await reader.readexactly(sum(int(line[15:]) for line in lines if line.startswith(b"content-length:")))
    return int(head.split()[1])


async def test_a_call_in_flight_ends_as_it_began_and_the_next_one_on_its_connection_is_of_the_new_configuration() -> (
    None
):
    async with held() as server, running(LISTENER + BACKEND, server) as gateway:
        reader, writer = await sent(at(gateway), INFER)
        await server.arrived.wait()
        assert await gateway.reload(config(NO_MODEL.replace("PORT", "2"))) == (
            f"backend 'lab': endpoints + 127.0.0.1:2 - 127.0.0.1:{server.port}",
            "route 'other' added",
            "route 'm' removed",
        )
        server.release.set()
        assert await status(reader) == 200
        writer.write(INFER)
        assert await status(reader) == 404


async def test_a_request_that_is_still_arriving_is_of_the_new_configuration() -> None:
    """Its path, too: the first configuration does not serve it at all."""
    moved = LISTENER.replace("protocols: [v2-rest]", "protocols: [v2-rest], prefix: {v2-rest: /moved}")
    async with held() as server, running(moved + BACKEND, server) as gateway:
        server.release.set()
        head, _, body = INFER.partition(b"\r\n\r\n")
        reader, writer = await sent(at(gateway), head.replace(b"/v2", b"/moved/v2") + b"\r\n\r\n" + body[:10])
        other_reader, other = await sent(at(gateway), head + b"\r\n\r\n" + body[:10])
        await ask(at(gateway), get("/v2"))  # the two have arrived: they came first
        await gateway.reload(config(LISTENER + BACKEND, server))
        writer.write(body[10:])
        other.write(body[10:])
        assert await status(reader) == 404
        assert await status(other_reader) == 200


async def test_slots_of_an_endpoint_are_counted_across_a_reload() -> None:
    """`max_in_flight: 1`: the second call waits for the first one, which began before the reload."""
    async with held() as server, running(LISTENER + BACKEND, server) as gateway:
        first, _ = await sent(at(gateway), INFER)
        await server.arrived.wait()
        queued, _ = await sent(at(gateway), INFER)
        await waits(gateway)
        assert await gateway.reload(config(LISTENER + BACKEND + "drain: {timeout: 7}", server)) == ("drain changed",)
        new, _ = await sent(at(gateway), INFER)
        await waits(gateway)
        assert gateway.state.status().backends["lab"].endpoints[0].in_flight == 1
        assert len(server.handling) == 1
        server.release.set()
        assert [await status(each) for each in (first, queued, new)] == [200, 200, 200]


async def test_load_shedding_goes_on_through_a_reload_that_does_not_change_it() -> None:
    shed = "limits: {shed: {lag: 5}}"
    async with running(LISTENER + BACKEND + shed) as gateway:
        before = gateway.state.shedding
        assert before is not None
        await gateway.reload(config(LISTENER + BACKEND + shed + "\ndrain: {timeout: 7}"))
        assert gateway.state.shedding is before
        await gateway.reload(config(LISTENER + BACKEND + shed.replace("5", "6")))
        assert gateway.state.shedding not in (None, before)
        await gateway.reload(config(LISTENER + BACKEND))
        assert gateway.state.status().shedding is None


async def test_the_health_of_an_endpoint_that_stays_survives_and_one_that_goes_is_forgotten() -> None:
    async with running(LISTENER + BACKEND) as gateway:
        reader, _ = await sent(at(gateway), INFER)
        assert await status(reader) == 503
        (before,) = gateway.state.status().backends["lab"].endpoints
        assert before.state == "down"
        more = LISTENER + BACKEND.replace("max_in_flight: 1", "max_in_flight: 2, limits: {message: 1000}")
        assert await gateway.reload(config(more)) == ("backend 'lab': max_in_flight, limits changed",)
        (after,) = gateway.state.status().backends["lab"].endpoints
        assert (after.state, after.last_error) == ("down", before.last_error)
        await gateway.reload(config(more.replace("PORT", "2")))
        assert gateway.state.status().backends["lab"].endpoints[0].state == "unknown"


@pytest.mark.parametrize(
    ("before", "after", "changed", "expected"),
    [
        ("max_in_flight: 1", "max_in_flight: 1, limits: {message: 10}", "backend 'lab'", 502),
        ("protocols:", "limits: {message: 10}, protocols:", "listener 'http'", 413),
    ],
    ids=["of a backend", "of a listener"],
)
async def test_changed_limits_hold_for_the_next_call_on_open_connections(
    before: str, after: str, changed: str, expected: int
) -> None:
    async with held() as server, running(LISTENER + BACKEND, server) as gateway:
        server.release.set()
        reader, writer = await sent(at(gateway), INFER)
        assert await status(reader) == 200
        small = (LISTENER + BACKEND).replace(before, after)
        assert await gateway.reload(config(small, server)) == (f"{changed}: limits changed",)
        writer.write(INFER)
        assert await status(reader) == expected


async def test_listeners_are_added_removed_moved_and_renamed() -> None:
    ports = [free_port() for _ in range(3)]
    form = '{{name: {}, bind: "127.0.0.1:{}", protocols: [v2-rest]}}'

    def listeners(*each: tuple[str, int]) -> Config:
        return config(f"listeners: [{', '.join(form.format(*one) for one in each)}]\n{BACKEND}")

    async with running_gateway(listeners(("stays", ports[0]), ("moves", ports[1]))) as gateway:
        stays = gateway.state.listeners["stays"]
        reader, writer = await sent(ports[0], INFER)
        await status(reader)
        assert await gateway.reload(listeners(("renamed", ports[0]), ("moves", ports[2]))) == (
            "listener 'renamed' added",
            "listener 'stays' removed",
            f"listener 'moves': bind 127.0.0.1:{ports[1]} -> 127.0.0.1:{ports[2]} changed",
        )
        assert gateway.state.listeners["renamed"] is stays
        writer.write(INFER)
        assert await status(reader) == 503  # its connection is kept
        assert b" 200 OK" in await ask(ports[2], get("/v2/health/live"))
        with pytest.raises(ConnectionRefusedError):
            await ask(ports[1], get("/v2/health/live"))
        # The address is free at once: another listener can have it in the next reload.
        await gateway.reload(listeners(("moves", ports[1])))
        assert b" 200 OK" in await ask(ports[1], get("/v2/health/live"))


async def test_a_call_at_a_removed_listener_is_answered() -> None:
    async with held() as server, running(TWO + BACKEND, server) as gateway:
        reader, _ = await sent(at(gateway, "second"), INFER)
        await server.arrived.wait()
        await gateway.reload(config(NO_MODEL))
        server.release.set()
        assert await status(reader) == 200
        assert await reader.read() == b""


async def test_a_call_at_a_removed_listener_has_only_the_time_of_a_drain(caplog: pytest.LogCaptureFixture) -> None:
    at_once = "drain: {timeout: 0}\n"
    async with held() as server, running(TWO + BACKEND + at_once, server) as gateway:
        reader, _ = await sent(at(gateway, "second"), INFER)
        await server.arrived.wait()
        await gateway.reload(config(LISTENER + BACKEND + at_once, server))
        assert await reader.read() == b""
        await until(lambda: "closed removed listeners; cancelled requests: 1" in caplog.text, 0)


async def test_a_reload_changes_nothing_if_a_certificate_breaks_or_the_gateway_stops_meanwhile(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "localhost")
    async with running(LISTENER + BACKEND) as gateway:
        before = gateway.state.config
        over_tls = config(LISTENER.replace("protocols:", f"tls: {files.server}, protocols:") + BACKEND)
        files.certificate.write_text("nonsense")
        with pytest.raises(ReloadError, match=r"^tls\.certificate: expected a certificate in PEM$"):
            await gateway.reload(over_tls)
        reloading = asyncio.ensure_future(gateway.reload(config(NO_MODEL)))
        await asyncio.sleep(0)
        gateway.announce_end()
        with pytest.raises(ReloadError, match="the gateway has not started yet, or is stopping; try again"):
            await reloading
        assert gateway.state.config is before


async def test_if_an_address_cannot_be_bound_nothing_changes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        free = free_port()
        async with running(LISTENER + BACKEND) as gateway:
            before = gateway.state.config
            form = ', {{name: l{}, bind: "127.0.0.1:{}", protocols: [v2-rest]}}'
            more = form.format(0, free) + form.format(1, port)
            text = LISTENER.replace("]}]", f"]}}{more}]") + BACKEND.replace("model: m", "model: other")
            with pytest.raises(BindError, match=f"listener 'l1': cannot bind 127.0.0.1:{port}: Address already in use"):
                await gateway.reload(config(text))
            assert gateway.state.config is before
            assert list(gateway.state.listeners) == ["http"]
            with pytest.raises(ConnectionRefusedError):
                await ask(free, get("/v2"))
            reader, _ = await sent(at(gateway), INFER)
            assert await status(reader) == 503  # not 404: its route is there
        assert gateway.state.reloads == 0


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("[v2-rest]", "[v2-grpc]", "its transport cannot change from http to grpc"),
        ("[mip], model: m", "[grps-brpc]", "its protocol cannot change from mip to grps-brpc"),
    ],
)
async def test_what_a_socket_cannot_change_to_is_refused(before: str, after: str, why: str) -> None:
    port = free_port()
    text = f'listeners: [{{name: l, bind: "127.0.0.1:{port}", protocols: {before}}}]\n{BACKEND}'
    signature = "signature: {inputs: [{name: x, datatype: FP64, shape: [1]}], outputs: []}"
    text = text.replace("backend: lab}", f"backend: lab, {signature}}}")
    async with running(text) as gateway:
        with pytest.raises(ReloadError, match=f"listener 'l': {why} at the same address"):
            await gateway.reload(config(text.replace(before, after)))


async def test_what_needs_a_restart_is_told_and_kept() -> None:
    text = LISTENER + BACKEND
    async with running(text) as gateway:
        more = f'{text}reference: [{{protocol: v2-rest, bind: "127.0.0.1:{free_port()}", models: [double]}}]\n'
        told = "reference differs from the file, which needs a restart to take effect"
        assert await gateway.reload(config(more)) == (told,)
        assert gateway.state.config.reference == ()
        assert await gateway.reload(config(more + "drain: {timeout: 3}\n")) == ("drain changed", told)
        assert gateway.state.config.drain.timeout == 3


async def test_the_same_configuration_changes_nothing() -> None:
    async with running(LISTENER + BACKEND) as gateway:
        assembly = gateway.state.assembly
        assert await gateway.reload(config(LISTENER + BACKEND)) == ()
        assert gateway.state.assembly is assembly
        assert gateway.state.status().configuration.reloads == 0


async def test_ports_beside_the_listeners_follow_their_addresses() -> None:
    ports = [free_port(), free_port()]
    text = LISTENER + BACKEND + f'health: {{bind: "127.0.0.1:{ports[0]}"}}\n'
    async with running(text) as gateway:
        assert b" 200 OK" in await ask(ports[0], get("/readyz"))
        await gateway.reload(config(text.replace("health: {", "health: {ready: all, ")))
        assert b" 503 " in await ask(ports[0], get("/readyz"))  # no backend is there
        assert await gateway.reload(config(text.replace(str(ports[0]), str(ports[1])))) == ("health changed",)
        assert b" 200 OK" in await ask(ports[1], get("/readyz"))
        await gateway.reload(config(LISTENER + BACKEND + f'admin: {{bind: "127.0.0.1:{ports[0]}"}}\n'))
        body = (await ask(ports[0], get("/status"))).partition(b"\r\n\r\n")[2]
        assert json.loads(body)["configuration"]["reloads"] == 3
        await gateway._replacements.all_ended()  # the port is closed in the background
        with pytest.raises(ConnectionRefusedError):
            await ask(ports[1], get("/readyz"))


async def test_a_listener_that_clients_took_offline_stays_offline() -> None:
    text = 'listeners: [{name: http, bind: "127.0.0.1:0", protocols: [grps-rest], allow_offline: true}]\nready: none\n'
    async with running(text) as gateway:
        offline, ready = get("/grps/v1/health/offline"), get("/grps/v1/health/ready")
        assert b" 200 OK" in await ask(at(gateway), offline)
        told = await ask(at(gateway), ready)
        assert b" 200 OK" not in told
        await gateway.reload(config(text + "drain: {timeout: 3}\n"))
        assert await ask(at(gateway), ready) == told


async def test_grpc_calls_whose_method_is_not_served_any_more_are_told_so() -> None:
    both = 'listeners: [{name: l, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc]}]\n'
    async with running(both) as gateway, grpc.aio.insecure_channel(gateway.state.listeners["l"].address) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert await live(b"") == b"\x08\x01"
        await gateway.reload(config(both.replace("v2-grpc, ", "")))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await live(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_grpc_call_that_is_still_arriving_is_of_the_new_configuration() -> None:
    routed = 'listeners: [{name: l, bind: "127.0.0.1:0", protocols: [v2-grpc]}]\n' + BACKEND
    message = struct.pack(">?L", False, 3) + b"\x0a\x01m"  # ModelReadyRequest(name="m")
    head = http2.head(*fields(b"/inference.GRPCInferenceService/ModelReady"))
    async with running(routed) as gateway:
        peer = http2.Peer(*await sent(at(gateway, "l"), OPENING))
        peer.send(head, http2.frame(http2.DATA, 0, 1, message[:6]), http2.frame(http2.PING, 0, 0, bytes(8)))
        await peer.next(http2.PING)
        await gateway.reload(config(routed.replace("match: {model: m}", "match: {model: other}")))
        peer.send(http2.frame(http2.DATA, http2.END_STREAM, 1, message[6:]))
        _, trailers = [await peer.next(http2.HEADERS) for _ in range(2)]
        assert b"model-not-found" in trailers[3]


async def test_unix_sockets_stay_and_go(tmp_path: Path) -> None:
    text = f'listeners: [{{name: l, bind: "unix://{tmp_path}/a", protocols: [grps-brpc]}}'
    async with running(text + "]\n") as gateway:
        stays = gateway.state.listeners["l"]
        await gateway.reload(config(text + f', {{name: k, bind: "unix://{tmp_path}/b", protocols: [grps-brpc]}}]\n'))
        assert gateway.state.listeners["l"] is stays
        assert sorted(each.name for each in os.scandir(tmp_path)) == ["a", "b"]
        await gateway.reload(config(text + "]\n"))
        assert [each.name for each in os.scandir(tmp_path)] == ["a"]


@pytest.fixture
def never_collected() -> Iterator[None]:
    """Garbage is collected only where the gateway says so."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_nothing_is_left_of_configurations_that_have_ended(never_collected: None) -> None:
    """Fifty routes and their policies are some ten thousand objects."""
    backend = "m{0}: {{protocol: v2-rest, endpoints: ['127.0.0.1:{0}'], safe: true, policies: [{{timeout: {1}}}]}}"
    route = "{{match: {{model: m{0}}}, backend: m{0}, policies: [{{cache: {1}}}]}}"
    both = []
    for policy in ("{seconds: 30}", "{seconds: 31}"):
        backends, routes = (", ".join(each.format(at, policy) for at in range(1, 51)) for each in (backend, route))
        both.append(config(f"{LISTENER}backends: {{{backends}}}\nroutes: [{routes}]\n"))
    async with running(LISTENER) as gateway:
        objects = []
        for number in range(10):
            await gateway.reload(both[number % 2])
            await gateway._replacements.all_ended()
            await asyncio.sleep(0)
            objects.append(len(gc.get_objects()))
    assert max(objects[2:]) < objects[1] + 1000


async def test_the_time_of_loading_is_that_of_the_configuration_in_effect() -> None:
    async with running(NO_MODEL) as gateway:
        first = gateway.state.loaded_at
        assert await gateway.reload(config(NO_MODEL)) == ()
        assert gateway.state.loaded_at == first
        await gateway.reload(config(NO_MODEL.replace("model: other", "model: another")))
        assert gateway.state.loaded_at > first


async def test_a_gateway_that_stops_does_not_reload() -> None:
    async with running(LISTENER + BACKEND) as gateway:
        gateway.announce_end()
        with pytest.raises(ReloadError, match="is stopping"):
            await gateway.reload(config(NO_MODEL))
        await gateway.drain(0)


async def test_a_gateway_that_ends_gives_up_what_a_removed_listener_still_has() -> None:
    async with held() as server, running(TWO + BACKEND, server) as gateway:
        reader, _ = await sent(at(gateway, "second"), INFER)
        await server.arrived.wait()
        await gateway.reload(config(LISTENER + BACKEND, server))
        assert await gateway.drain(0) == 1
        assert await reader.read() == b""


async def test_a_sequence_goes_on_at_the_endpoint_that_has_its_state() -> None:
    """Equally busy endpoints take turns: without its state every second request would go to the other one."""
    async with held() as one, held() as two:
        one.release.set()
        two.release.set()
        text = LISTENER + BACKEND.replace("PORT", f'{one.port}", "127.0.0.1:PORT')
        async with running(text, two) as gateway:
            body = QUESTION.replace(b'{"inputs"', b'{"parameters":{"sequence_id":7},"inputs"')
            request = http(b"POST /v2/models/m/infer HTTP/1.1", body)
            first, _ = await sent(at(gateway), INFER)  # has the first turn, so the sequence begins at the second server
            assert await status(first) == 200
            used = []
            for number in range(4):
                one.arrived.clear()
                two.arrived.clear()
                reader, _ = await sent(at(gateway), request)
                assert await status(reader) == 200
                used.append(one.arrived.is_set())
                await gateway.reload(config(f"{text}drain: {{timeout: {number + 1}}}\n", two))
            assert used == [False] * 4
