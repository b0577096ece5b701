"""Each bundled server is recognised over its wire form and no other; what is no model server is none."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateway.assembly.forms import known
from gateway.assembly.reference import serve_reference
from gateway.assembly.registry import protocols
from gateway.cli.options import catalog
from gateway.client import Tls
from gateway.config import Config, loads_with_warnings, reference_config
from gateway.core.tasks import spawn
from gateway.tools.probing.asking import ProbeReply, ServerAccess
from gateway.tools.probing.candidates import candidates
from gateway.tools.probing.probe import Probed, ProbeVerdict, probe
from gateway.tools.probing.stanza import WrittenBackend, WrittenListener, backend_name, configuration
from tests.limits import GENEROUS
from tests.running_gateway import config_of, reference
from tests.skipping_loop import skip
from tests.tls.certificates import Authority

WIRE_FORMS = tuple(protocols())
TELLING = tuple(name for name in WIRE_FORMS if name not in ("mip", "graphpipe", "tfs-grpc"))
"""Wire forms whose servers list their models."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def probed(address: str, seconds: float = 10, access: ServerAccess | None = None) -> Probed:
    return await probe(address, protocols(), access or ServerAccess(), seconds=seconds)


@asynccontextmanager
async def port(serve: Serve, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server that handles each connection by `serve`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await serve(reader, writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    before = asyncio.all_tasks()
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    host, number = server.sockets[0].getsockname()
    try:
        yield f"{host}:{number}"
    finally:
        server.close()
        while others := asyncio.all_tasks() - before:  # also those that have just accepted a connection
            _, waiting = await asyncio.wait(others, timeout=5)
            for each in waiting:
                each.cancel()


def pages(body: bytes, status: bytes = b"200 OK") -> Serve:
    """A web server that has one page at every path."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            head = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
            writer.write(head + body)
            await writer.drain()

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    pass


@pytest.mark.parametrize("protocol", WIRE_FORMS)
async def test_a_bundled_server_is_recognised_over_its_wire_form_alone(protocol: str) -> None:
    async with reference(protocol, "posterior") as bound:
        found = await probed(bound.rpartition("://")[2])
    assert [each.protocol for each in found.spoken] == [protocol]
    [spoken] = found.spoken
    if protocol in TELLING:
        assert [each.name for each in spoken.models.own] == ["posterior"]
        signature = spoken.models.own[0].signature
        assert signature is not None
        assert [spec.shape for spec in signature.inputs] == [(-1, 2)]


def written(found: Probed) -> Config:
    """The configuration of the YAML that is written for a server; the strict check finds nothing in it."""
    best = found.spoken[0]
    listeners = [WrittenListener("http", "127.0.0.1:8080", ("v2-rest",))]
    text = configuration(listeners, [WrittenBackend(backend_name(best), best, ServerAccess())])
    config, warnings = loads_with_warnings(text, "test.yaml", catalog(), {})
    assert not warnings
    return config


@pytest.mark.parametrize("protocol", WIRE_FORMS)
async def test_the_yaml_for_a_server_passes_the_strict_check(protocol: str) -> None:
    async with reference(protocol, "posterior") as bound:
        found = await probed(bound.rpartition("://")[2])
    assert [each.protocol for each in written(found).backends.values()] == [protocol]


FORMS: dict[str, dict[str, bytes]] = {
    "torchserve": {
        "/ping": b'{\n  "status": "Healthy"\n}\n',
        "/api-description": b'{\n  "openapi": "3.0.1",\n  "info": {\n    "title": "TorchServe APIs",\n'
        b'    "version": "0.12.0"\n  },\n  "paths": {}\n}\n',
    },
    # multi-model-server 1.1.11
    "sagemaker": {
        "/ping": b'{\n  "status": "Healthy"\n}\n',
        "/api-description": b'{\n  "openapi": "3.0.1",\n  "info": {\n    "title": "Model Server APIs",\n'
        b'    "version": "1.0.0"\n  },\n  "paths": {}\n}\n',
    },
    "mlflow": {"/ping": b"\n", "/health": b"\n", "/version": b"3.17.2"},
    "seldon": {
        "/health/ping": b"pong",
        "/health/status": b'{"meta":{},"strData":"not implemented - assuming healthy"}\n',
    },
    "cog": {"/": b"{}", "/health-check": b'{"status":"STARTING","setup":null}'},
    "litserve": {
        "/health": b"ok",
        "/info": b'{"model":null,"server":{"devices":["cpu"],"workers_per_device":1,"timeout":30}}',
    },
    "bentoml": {"/livez": b"", "/readyz": b"", "/schema.json": b'{"name":"s","type":"service","routes":[]}'},
    "ray": {"/-/healthz": b"success", "/-/routes": b'{"/":"default"}'},
    "ray-applications": {"/-/healthz": b"success", "/-/routes": b'{"/double":"double","/text":"text"}'},
    "infinity": {
        "/health": b'{"unix":1795877665.6505158}',
        "/models": b'{"data":[{"id":"tiny","stats":{"queue_fraction":0.0,"queue_absolute":0,"results_pending":0,'
        b'"batch_size":32},"object":"model","owned_by":"infinity","created":1795877665,"backend":"torch",'
        b'"capabilities":["embed"]}],"object":"list"}',
    },
    "openai-embeddings": {
        "/v1/models": b'{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"me"}]}'
    },
}


def paths(found: dict[str, bytes]) -> Serve:
    """A web server with these pages, and 404 elsewhere."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith((b"GET ", b"POST ")):
                return
            body = found.get(head.split()[1].decode()) if head.startswith(b"GET ") else None
            status = b"HTTP/1.1 200 OK" if body is not None else b"HTTP/1.1 404 Not Found"
            writer.write(status + b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body or b""), body or b""))
            await writer.drain()

    return serve


async def form_probed(address: str) -> Probed:
    return await probe(f"http://{address}", known(), ServerAccess(), seconds=GENEROUS)


@pytest.mark.parametrize("form", FORMS)
async def test_a_ready_form_is_recognised_by_what_its_servers_say_of_themselves(form: str) -> None:
    async with port(paths(FORMS[form])) as address:
        found = await form_probed(address)
    assert [each.protocol for each in found.spoken] == [f"json:{form}"]
    assert list(written(found).backends) == [form]


async def test_an_address_that_names_a_form_is_asked_about_that_alone() -> None:
    both = FORMS["mlflow"] | FORMS["ray"]
    async with port(paths(both)) as address:
        found = [
            await probe(f"{name}://{address}", known(), ServerAccess(), seconds=GENEROUS)
            for name in ("json:ray", "json:sagemaker", "v2-rest")
        ]
    assert [[one.protocol for one in each.spoken] for each in found] == [["json:ray"], ["json:sagemaker"], []]
    assert "for a custom JSON API, use `gateway init --example`" in found[2].text


async def test_a_form_that_says_nothing_of_itself_is_spoken_where_it_is_named_and_ready() -> None:
    async with port(paths({"/ping": b""})) as address:
        assert (await probe(f"json:vertex://{address}", known(), ServerAccess(), seconds=GENEROUS)).spoken == ()
        assert (await probe(f"json:sagemaker://{address}", known(), ServerAccess(), seconds=GENEROUS)).spoken != ()


async def test_the_models_of_a_form_that_lists_them_are_told() -> None:
    async with port(paths(FORMS["openai-embeddings"])) as address:
        found = await form_probed(address)
    assert [each.name for each in found.spoken[0].models.own] == ["m"]


@pytest.mark.parametrize(
    "found",
    [
        {"/ping": b""},
        {"/ping": b"pong", "/version": b"1.0"},
        {"/health": b"ok"},
        {"/ping": b'{"status": "ok"}', "/v1/models": b'{"object":"list","data":[]}', "/info": b"[]"},
        {path: body for form in FORMS.values() for path, body in form.items()} | {"/no-such-path": b"home"},
    ],
    ids=["sagemaker", "pong", "ok", "others", "everything"],
)
async def test_a_web_server_that_says_what_many_do_is_no_form(found: dict[str, bytes]) -> None:
    async with port(paths(found)) as address:
        assert (await form_probed(address)).spoken == ()


@pytest.mark.parametrize(
    ("models", "address"), [(["double"], "http://{}/"), (["double", "posterior"], "{}")], ids=["one", "many"]
)
async def test_a_graphpipe_server_with_one_model_gets_an_address_with_a_path(models: list[str], address: str) -> None:
    async with reference("graphpipe", *models) as bound:
        found = await probed(bound)
    assert found.spoken[0].address == address.format(bound)


@pytest.mark.parametrize("protocol", [name for name, each in protocols().items() if each.transport == "tcp"])
async def test_a_unix_socket(protocol: str, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    async with reference(protocol, "double", bind=f"unix://{path}"):
        found = await probed(f"unix://{path}")
    assert [each.protocol for each in found.spoken] == [protocol]
    assert found.spoken[0].address == f"unix://{path}"


@pytest.mark.parametrize(
    "body", [b"", b"<html>hi</html>", b"{}", b"[]", b"null", b'{"error": "x"}', b'{"status": "ok"}', bytes(64)]
)
@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"400 Bad Request"])
async def test_a_plain_web_server_is_none(body: bytes, status: bytes) -> None:
    async with port(pages(body, status)) as address:
        found = await probed(f"http://{address}")
    assert (found.verdict, found.spoken) == (ProbeVerdict.OTHER, ())


async def test_a_web_server_that_asks_for_credentials() -> None:
    async with port(pages(b'{"error": "no key"}', b"401 Unauthorized")) as address:
        found = await probed(f"http://{address}")
    assert found.verdict is ProbeVerdict.REFUSED


async def test_tensorflow_serving_is_recognised_by_its_words_for_a_missing_model() -> None:
    body = b'{\n    "error": "Could not find any versions of model no-such-model"\n}'
    async with port(pages(body, b"404 Not Found")) as address:
        found = await probed(f"http://{address}")
    assert [(each.protocol, each.flavor) for each in found.spoken] == [("v1-rest", "tensorflow")]


async def test_a_closed_port_is_unreachable() -> None:
    async with port(silent) as address:
        pass
    assert (await probed(address)).verdict is ProbeVerdict.UNREACHABLE


async def test_a_silent_port_is_given_up() -> None:
    connections = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()

    async with port(count) as address:
        found = await probed(address, seconds=0.05)
    assert found.verdict is ProbeVerdict.SILENT
    assert {each.heard for each in found.findings} == {ProbeReply.SILENT}
    assert connections < 15


async def test_a_port_that_closes_every_connection_is_none() -> None:
    async with port(closing) as address:
        assert (await probed(address)).verdict is ProbeVerdict.OTHER


async def test_headers_that_a_protocol_cannot_carry_are_told() -> None:
    async with port(closing) as address:
        found = await probed(address, access=ServerAccess({"X-Team": "a"}))
    texts = {each.candidate.protocol.name: each.text for each in found.findings}
    assert texts["mip"] == "messages of mip cannot carry the header 'x-team'; use another protocol"
    assert "cannot carry" not in texts["v2-rest"]


async def test_only_a_server_of_http_is_told_about_forms() -> None:
    async with port(closing) as address:
        found = await probed(f"mip://{address}")
    assert found.text == "a server responds, but its protocol is not one of mip"


async def test_a_server_that_describes_itself_and_then_no_model_is_told() -> None:
    silent = asyncio.Event()

    async def begins(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"name": "x", "version": "1", "extensions": ["model_repository"]}).encode()
        while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /v2 "):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        silent.set()
        await reader.read()

    async with port(begins) as address:
        probing = spawn(probed(f"v2-rest://{address}", seconds=1000))
        await silent.wait()
        await skip(2000)
        [spoken] = (await probing).spoken
    assert spoken.models.error == f"http://{address}: no answer within 1000 s, the limit that `timeout` sets"


def test_an_address_of_http_becomes_one_of_https_where_tls_is_asked_for() -> None:
    plain, secured = candidates("http://h:1/p", protocols(), tls=True), candidates("https://h:1/p", protocols())
    assert (plain, plain.tls) == (secured, True)


BACKEND = """
listeners: [{{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends:
  b: {{protocol: v2-rest, endpoints: ["https://h:1"], forward_headers: [x-team, authorization], headers: {{X-Own: c}},
       tls: {{ca: "{files.ca}", certificate: "{files.certificate}", key: "{files.key}", server_name: m}}}}
routes: [{{match: {{model: "*"}}, backend: b}}]
"""


def test_the_access_of_a_backend_is_that_of_its_settings(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "m")
    backend = config_of(BACKEND.format(files=files)).backends["b"]
    own = Tls(str(files.ca), str(files.certificate), str(files.key), "m")
    access = ServerAccess({"X-Team": "a", "X-Other": "b"}, "secret", Tls("other"))
    assert access.of_backend(backend) == ServerAccess({"X-Team": "a", "x-own": "c"}, "secret", own)


@pytest.mark.long
@pytest.mark.parametrize("protocol", [name for name in WIRE_FORMS if name not in ("mip", "grps-brpc")])
async def test_a_server_over_tls_is_found_without_saying_so(protocol: str, tmp_path: Path) -> None:
    files = Authority().issue(tmp_path, "localhost", "127.0.0.1")
    tls = {"certificate": str(files.certificate), "key": str(files.key)}
    config = reference_config(protocol, "127.0.0.1:0", ["double"], catalog(), tls)
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    try:
        address = f"localhost:{str(listener.address).rpartition(':')[2]}"
        plain = await probed(address)
        trusted = await probed(address, access=ServerAccess(tls=Tls(ca=str(files.ca))))
    finally:
        await listener.drain(0)
    assert plain.tls
    assert plain.verdict is ProbeVerdict.UNREACHABLE
    assert "certificate" in plain.text
    assert [each.protocol for each in trusted.spoken] == [protocol]


async def test_nothing_runs_a_model() -> None:
    asked: list[bytes] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            body = json.dumps({"name": "x", "version": "1", "extensions": [], "models": ["m"]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with port(note) as address:
        await probed(f"http://{address}")
    assert 5 < len(asked) < 40
    paths = [each.split()[1] for each in asked]
    assert not [each for each in paths if any(word in each for word in (b"infer", b"predict", b"Evaluate"))]


@pytest.mark.parametrize("address", ["nothing", "ftp://host:1", "host:1/path", "host:99999", "http://host:1?x=1"])
async def test_a_wrong_address_is_a_value_error(address: str) -> None:
    with pytest.raises(ValueError, match="bad address"):
        await probed(address)
