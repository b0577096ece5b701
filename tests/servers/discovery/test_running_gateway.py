"""Gateways whose endpoints come and go, with real servers behind them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dns.asyncresolver
import httpx
import pytest

from gateway.assembly import discovery as assembly_discovery
from gateway.core.address import is_ip
from gateway.core.log_limit import LogLimit
from gateway.runtime.app import Gateway
from gateway.servers.discovery import source
from tests.interop.processes import free_port
from tests.paused_server import port_of
from tests.running_gateway import reference, running_gateway
from tests.servers.discovery.running import messages, model_server
from tests.servers.discovery.test_srv import DnsServer

EVALUATE = {"name": "posterior", "input": [[1.0, 2.0]], "config": {}}


def address_of(gateway: Gateway) -> str:
    return f"http://{next(iter(gateway.state.listeners.values())).address}"


def endpoints(gateway: Gateway) -> list[str]:
    return sorted(each.address for each in gateway.state.status().backends["lab"].endpoints)


@pytest.fixture(autouse=True)
def _lines_of_other_tests_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (assembly_discovery, source):
        monkeypatch.setattr(module, "_lines", LogLimit(module.log, lines=1000))


FILES = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
backends: {lab: {protocol: umbridge, discovery: {files: "FOLDER/url-*.txt", interval: 0.02}}}
routes: [{match: {model: "*"}, backend: lab}]
"""


async def test_servers_that_announce_themselves_by_files_come_and_go_without_a_failed_call(tmp_path: Path) -> None:
    """As jobs of an HPC system: each writes its URL to a file, and is ended some time after the file was removed."""
    statuses: list[int] = []

    def announce(number: int, address: str) -> Path:
        file = tmp_path / f"url-{number}.txt"
        file.write_text(f"http://{address}\n")
        return file

    async def evaluate(url: str, is_over: asyncio.Event) -> None:
        async with httpx.AsyncClient(base_url=url) as client:
            while not is_over.is_set():
                statuses.append((await client.post("/Evaluate", json=EVALUATE)).status_code)

    is_over = asyncio.Event()
    jobs = [await model_server("umbridge") for _ in range(2)]
    files = [announce(number, job.address) for number, job in enumerate(jobs)]
    with messages() as log:
        async with running_gateway(FILES.replace("FOLDER", str(tmp_path))) as gateway:
            load = asyncio.gather(*(evaluate(address_of(gateway), is_over) for _ in range(6)))
            for number in range(2, 8):
                jobs.append(await model_server("umbridge"))
                files.append(announce(number, jobs[-1].address))
                await log.until(f"added http://{jobs[-1].address}; it has 3 now")
                before = len(statuses)
                files.pop(0).unlink()
                oldest = jobs.pop(0)
                await log.until(f"endpoint http://{oldest.address} is closed")
                assert await oldest.drain(0) == 0  # nothing was in flight any more
                while len(statuses) < before + 20:
                    await asyncio.wait([load], timeout=0.01)
            assert endpoints(gateway) == sorted(f"http://{job.address}" for job in jobs)
            is_over.set()
            await load
    for job in jobs:
        await job.drain(0)
    assert set(statuses) == {200}
    assert len(statuses) > 100


async def test_calls_fail_while_nobody_has_announced_itself_and_work_as_soon_as_somebody_has(tmp_path: Path) -> None:
    with messages() as log:
        async with (
            running_gateway(FILES.replace("FOLDER", str(tmp_path))) as gateway,
            reference("umbridge", "posterior") as server,
            httpx.AsyncClient(base_url=address_of(gateway)) as client,
        ):
            failed = await client.post("/Evaluate", json=EVALUATE)
            assert failed.status_code == 503
            assert "backend 'lab' has no endpoint at the moment" in failed.text
            (tmp_path / "url-1.txt").write_text(f"http://{server}\n")
            await log.until("added")
            assert (await client.post("/Evaluate", json=EVALUATE)).status_code == 200


def infer(name: str) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": "FP64", "shape": [1, 2], "data": [[1.0, 2.0]]}]}


NAMES = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: PROTOCOL, endpoints: ["models.test:PORT"], discovery: {dns: all, interval: 0.02}}}
routes: [{match: {model: "*"}, backend: lab}]
"""


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """IP addresses by host name, for the event loop's resolver; none: the look fails."""
    known: dict[str, list[str]] = {}

    async def getaddrinfo(self: Any, host: str, port: int, **options: Any) -> Any:
        ips = [host] if is_ip(host) else known.get(host)
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


@pytest.mark.parametrize(
    ("protocol", "tensor"), [("v2-rest", "theta"), ("v2-grpc", "theta"), ("umbridge", "input0"), ("grps-brpc", "theta")]
)
async def test_every_ip_address_of_a_name_is_an_endpoint_for_every_transport(
    protocol: str, tensor: str, names: dict[str, list[str]]
) -> None:
    async with reference(protocol, "posterior") as first:
        port = port_of(first)
        async with reference(protocol, "posterior", bind=f"127.0.0.2:{port}"):
            names["models.test"] = ["127.0.0.1", "127.0.0.2"]
            text = NAMES.replace("PROTOCOL", protocol).replace("PORT", str(port))
            with messages() as log:
                async with running_gateway(text) as gateway, httpx.AsyncClient(base_url=address_of(gateway)) as client:

                    async def ask() -> int:
                        return (await client.post("/v2/models/posterior/infer", json=infer(tensor))).status_code

                    assert endpoints(gateway) == [f"127.0.0.1:{port}", f"127.0.0.2:{port}"]
                    assert [await ask() for _ in range(4)] == [200] * 4
                    states = [each.state for each in gateway.state.status().backends["lab"].endpoints]
                    assert states == ["up", "up"]
                    names["models.test"] = ["127.0.0.2"]
                    await log.until(f"removed 127.0.0.1:{port}; it has 1 now")
                    assert await ask() == 200
                    names["models.test"] = []
                    await log.until("DNS name models.test lookup failed: Name or service not known")
                    assert await ask() == 200
                    assert endpoints(gateway) == [f"127.0.0.2:{port}"]
                    names["models.test"] = ["127.0.0.1", "127.0.0.2"]
                    await log.until(f"added 127.0.0.1:{port}; it has 2 now")


SRV = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, discovery: {srv: _http._tcp.models.test, interval: 0.02}}}
routes: [{match: {model: "*"}, backend: lab}]
"""


async def test_srv_records_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    async with reference("v2-rest", "posterior") as first, reference("v2-rest", "posterior") as second:
        one, two = (f"0 0 {port_of(each)} localhost." for each in (first, second))
        server = DnsServer(one, ttl=0)
        transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
        resolver = dns.asyncresolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
        monkeypatch.setattr(dns.asyncresolver, "Resolver", lambda: resolver)
        with messages() as log:
            async with running_gateway(SRV) as gateway, httpx.AsyncClient(base_url=address_of(gateway)) as client:
                for number in range(2):
                    reply = await client.post("/v2/models/posterior/infer", json=infer("theta"))
                    assert reply.status_code == 200
                    if number == 0:
                        server.records = (two,)
                        await log.until("removed")
                        assert endpoints(gateway) == [f"localhost:{port_of(second)}"]
        transport.close()


REGISTER = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge]}]
admin: {bind: "127.0.0.1:0"}
backends:
  lab: {protocol: umbridge, discovery: {register: {token: sesame, seconds: 30}}}
  other: {protocol: umbridge, discovery: {register: {token: open}}}
  closed: {protocol: umbridge, endpoints: ["127.0.0.1:1"]}
routes: [{match: {model: "*"}, backend: lab}]
"""
SESAME = {"Authorization": "Bearer sesame"}


@asynccontextmanager
async def registering(
    text: str = REGISTER, headers: Mapping[str, str] = SESAME
) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    """A gateway, and a client of its admin port."""
    async with (
        running_gateway(text) as gateway,
        httpx.AsyncClient(base_url=f"http://{gateway.ports.all['admin'].address}", headers=headers) as admin,
    ):
        yield gateway, admin


async def test_a_server_registers_renews_and_leaves() -> None:
    async with (
        registering() as (gateway, admin),
        reference("umbridge", "posterior") as server,
        httpx.AsyncClient(base_url=address_of(gateway)) as client,
    ):
        assert (await client.post("/Evaluate", json=EVALUATE)).status_code == 503
        wanted = {"backend": "lab", "address": f"http://{server}"}
        granted = await admin.post("/register", json=wanted)
        lease = granted.json()["lease"]
        assert granted.status_code == 200
        assert granted.json() == {"lease": lease, "address": wanted["address"], "seconds": 30}
        assert (await client.post("/Evaluate", json=EVALUATE)).status_code == 200
        assert (await admin.post("/register", json={**wanted, "seconds": 5})).json()["seconds"] == 5
        renewed = await admin.put(f"/register/{lease}", json={"seconds": 7})
        assert (renewed.status_code, renewed.json()["lease"], renewed.json()["seconds"]) == (200, lease, 7)
        assert (await admin.put(f"/register/{lease}")).json()["seconds"] == 30
        assert (await admin.delete(f"/register/{lease}")).status_code == 204
        assert endpoints(gateway) == []
        assert (await client.post("/Evaluate", json=EVALUATE)).status_code == 503
        gone = await admin.put(f"/register/{lease}")
        assert (gone.status_code, gone.json()["detail"]) == (404, "the lease is unknown or has expired; register again")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0", "2130706433", "0x7f.1", "0177.0.0.1", "[::ffff:7f00:1]", "alias.lab"],
)
async def test_the_gateway_itself_is_no_server(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a registration nor, below, by a file; however its address is written, and by no name of it."""
    known = socket.getaddrinfo

    def look_up(name: Any, *arguments: Any, **options: Any) -> Any:
        is_alias = name == "alias.lab" and options.get("flags") != socket.AI_NUMERICHOST
        return known("127.0.0.1" if is_alias else name, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with registering() as (gateway, admin):
        for own in (gateway.ports.all["admin"].address, address_of(gateway).removeprefix("http://")):
            written = f"http://{own.replace('127.0.0.1', host)}"
            refused = await admin.post("/register", json={"backend": "lab", "address": written})
            assert refused.status_code == 422
            assert refused.json()["detail"].endswith(f"it is the gateway's own address {own}")
        assert endpoints(gateway) == []


async def test_a_name_that_nobody_knows_yet_may_register() -> None:
    async with registering() as (_, admin):
        wanted = {"backend": "lab", "address": "http://later.invalid:1"}
        assert (await admin.post("/register", json=wanted)).status_code == 200


async def test_a_file_that_names_the_gateway_itself_is_skipped(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "url-1.txt").write_text(f"http://127.0.0.1:{port}\nhttp://127.0.0.1:{port + 1}\n")
    text = REGISTER.replace("register: {token: sesame, seconds: 30}", f"files: '{tmp_path}/url-*.txt', interval: 0.1")
    with messages() as log:
        async with running_gateway(
            text.replace('admin: {bind: "127.0.0.1:0"}', f'admin: {{bind: "127.0.0.1:{port}"}}')
        ) as gateway:
            assert f"url-1.txt:1 is skipped: http://127.0.0.1:{port}: " in await log.until(
                "it is the gateway's own address"
            )
            assert endpoints(gateway) == [f"http://127.0.0.1:{port + 1}"]


async def test_a_server_that_does_not_renew_its_lease_is_removed() -> None:
    with messages() as log:
        async with registering() as (gateway, admin), reference("umbridge", "posterior") as server:
            wanted = {"backend": "lab", "address": server, "seconds": 0.05}
            assert (await admin.post("/register", json=wanted)).status_code == 200
            await log.until(f"backend 'lab': removed {server}; it has 0 now")
            await log.until(f"endpoint {server} is closed")
            assert endpoints(gateway) == []


GOOD = '{"backend": "lab", "address": "a:1"}'


@pytest.mark.parametrize(
    ("authorization", "body", "status", "told"),
    [
        (None, GOOD, 401, "expected the header Authorization: Bearer TOKEN"),
        ("Basic sesame", GOOD, 401, "expected the header Authorization: Bearer TOKEN"),
        ("Bearer open", GOOD, 403, "this token does not allow registration at this backend; check both"),
        ("Bearer wrong", GOOD, 403, "this token does not allow registration at this backend; check both"),
        ("Bearer sesame", GOOD.replace("lab", "closed"), 403, "this token does not allow registration at this backend"),
        ("Bearer sesame", GOOD.replace("lab", "absent"), 403, "this token does not allow registration at this backend"),
        ("Bearer sesame", GOOD.replace("a:1", "nowhere"), 422, "address: bad address 'nowhere': it has no port; "),
        ("Bearer sesame", '{"backend": "lab"}', 422, "address: Field required"),
        ("Bearer sesame", GOOD.replace("}", ', "second": 1}'), 422, "second: Extra inputs are not permitted"),
        ("Bearer sesame", GOOD.replace("}", ', "seconds": 0}'), 422, "seconds: Input should be greater than 0"),
        ("Bearer sesame", "[", 422, "body: Invalid JSON"),
        ("Bearer sesame", GOOD + " " * 5000, 413, "the body has more than 4096 bytes"),
    ],
)
async def test_registrations_that_are_refused(authorization: str | None, body: str, status: int, told: str) -> None:
    async with registering(headers={"Authorization": authorization} if authorization else {}) as (gateway, admin):
        refused = await admin.post("/register", content=body)
        assert (refused.status_code, refused.json()["detail"][: len(told)]) == (status, told)
        assert "sesame" not in refused.text
        assert endpoints(gateway) == []


async def test_the_calls_are_described_with_the_status_api() -> None:
    async with registering(headers={}) as (_, admin):
        paths = (await admin.get("/openapi.json")).json()["paths"]
    assert {path: sorted(paths[path]) for path in paths if not path.startswith("/api/")} == {  # nor the console's
        "/cache/clear": ["post"],
        "/config": ["get"],
        "/drain": ["post"],
        "/keys": ["post"],
        "/keys/revoke": ["post"],
        "/placement": ["post"],
        "/register": ["post"],
        "/register/{lease}": ["delete", "put"],
        "/status": ["get"],
    }
    [body] = paths["/register"]["post"]["requestBody"]["content"].values()
    assert list(body["schema"]["properties"]) == ["seconds", "backend", "address"]


async def test_leases_of_another_backend_cannot_be_ended() -> None:
    async with registering() as (gateway, admin):
        lease = (await admin.post("/register", json={"backend": "lab", "address": "a:1"})).json()["lease"]
        for token, status in (("open", 404), ("wrong", 403)):
            other = {"Authorization": f"Bearer {token}"}
            assert (await admin.delete(f"/register/{lease}", headers=other)).status_code == status
            assert (await admin.put(f"/register/{lease}", headers=other)).status_code == status
        assert (await admin.delete(f"/register/{lease}", headers={"Authorization": ""})).status_code == 401
        assert endpoints(gateway) == ["a:1"]


async def test_there_is_no_place_to_register_where_no_backend_allows_it() -> None:
    text = REGISTER.replace(", discovery: {register: {token: sesame, seconds: 30}}", ", endpoints: ['127.0.0.1:1']")
    text = text.replace(", discovery: {register: {token: open}}", ", endpoints: ['127.0.0.1:1']")
    async with registering(text) as (_, admin):
        assert (await admin.post("/register", content=GOOD)).status_code == 404


async def test_a_stopped_gateway_leaves_no_task_behind(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with running_gateway(FILES.replace("FOLDER", str(tmp_path))):
        assert asyncio.all_tasks() - before
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
