"""What does not fit between a route and its server is an error where calls cannot work, with its place."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.assembly.forms import spoken
from gateway.assembly.registry import protocols
from gateway.bridge.settings import Images, RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.tools.probing.fit import Misfit, misfits, missing_model
from gateway.tools.probing.listing import ServerModels
from gateway.tools.probing.live import ERROR, OK, WARNING, Live, Row, check_live
from tests.interop.processes import free_port
from tests.running_gateway import config_of, reference
from tests.test_other_servers import ModelServer, serving

HEAD = 'listeners: [{name: a, bind: "127.0.0.1:8080", protocols: [v2-rest]}]\n'


async def checked(text: str) -> Live:
    return await check_live(config_of(text), protocols(), 10)


async def live(backend: str, *models: str, route: str, listeners: str = HEAD, more: str = "") -> Live:
    async with reference(backend, *models) as bound:
        text = (
            f"{listeners}backends: {{b: {{protocol: {backend}, endpoints: ['{bound}']{more}}}}}\nroutes:\n  - {route}\n"
        )
        return await checked(text)


def signature(inputs: str, outputs: str = "{name: y, datatype: FP64, shape: [-1, -1]}") -> str:
    return f"{{match: {{model: double}}, backend: b, signature: {{inputs: [{inputs}], outputs: [{outputs}]}}}}"


X = "{name: x, datatype: FP64, shape: [-1, -1]}"


@pytest.mark.parametrize(
    "route",
    ["{match: {model: double}, backend: b}", "{match: {model: '*'}, backend: b}", signature(X),
     "{match: {model: mine}, backend: b, rewrite: {model: double}}",
     "{match: {model: double, version: '1'}, backend: b}"],
)  # fmt: skip
async def test_a_route_that_fits(route: str) -> None:
    found = await live("v2-grpc", "double", route=route)
    assert ([each.result for each in found.rows], found.errors, found.warnings) == ([OK], (), ())


@pytest.mark.parametrize(
    ("route", "location", "text"),
    [
        ("{match: {model: Double}, backend: b}", ("match", "model"), "`rewrite: {model: double}`"),
        ("{match: {model: other}, backend: b}", ("match", "model"), "it has 'double'"),
        ("{match: {model: double}, backend: b, rewrite: {model: triple}}", ("rewrite", "model"), "no model 'triple'"),
        ("{match: {model: double, version: '7'}, backend: b}", ("match", "version"), "no version '7'"),
        ("{match: {model: double}, backend: b, rewrite: {version: '7'}}", ("rewrite", "version"), "it has 1"),
        (signature("{name: z, datatype: FP64, shape: [-1, -1]}"), ("signature", "inputs", 0, "name"), "it has 'x'"),
        (signature("{name: x, datatype: FP32, shape: [-1, -1]}"), ("signature", "inputs", 0, "datatype"), "has FP64"),
        (signature("{name: x, datatype: FP64, shape: [3]}"), ("signature", "inputs", 0, "shape"), "[-1, -1]"),
        (signature(X, "{name: q, datatype: FP64, shape: [1]}"), ("signature", "outputs", 0, "name"), "it has 'y'"),
        (
            "{match: {model: double}, backend: b, translate: {order: [z]}}",
            ("translate", "order"), "the server's model has no input 'z'; it has 'x'",
        ),
        (
            "{match: {model: double}, backend: b, translate: {rename: {outputs: [{client: a, backend: b}]}}}",
            ("translate", "rename", "outputs"), "the server's model has no output 'b'; it has 'y'",
        ),
    ],
)  # fmt: skip
async def test_a_route_that_does_not_fit(route: str, location: tuple[Any, ...], text: str) -> None:
    found = await live("v2-grpc", "double", route=route)
    assert [each.result for each in found.rows] == [ERROR]
    [error] = [each for each in found.errors if each.location == ("routes", 0, *location)]
    assert text in error.message


async def test_clients_that_cannot_call_a_model_are_a_warning() -> None:
    listeners = HEAD.replace("[v2-rest]", "[v2-rest, umbridge]")
    found = await live("v2-grpc", "upper", route="{match: {model: upper}, backend: b}", listeners=listeners)
    assert [each.result for each in found.rows] == [WARNING]
    assert "umbridge clients do not support BYTES" in found.warnings[0].message


@pytest.mark.parametrize(
    ("client", "datatype", "lost"),
    [
        ("umbridge", Datatype.BYTES, "io"),
        ("umbridge", Datatype.BOOL, ""),
        ("graphpipe", Datatype.BOOL, ""),  # arrives as UINT8
        ("grps-rest", Datatype.BOOL, ""),
        ("grps-rest", Datatype.UINT16, ""),
        ("grps-rest", Datatype.UINT64, "o"),  # no other datatype of grps has all of its values
    ],
)
def test_tensors_that_clients_cannot_send_or_receive_are_told(client: str, datatype: Datatype, lost: str) -> None:
    inputs, outputs = ((TensorSpec(name, datatype, (-1,)),) for name in "io")
    found = misfits(RouteSettings(), None, Signature(inputs=inputs, outputs=outputs), [protocols()[client]])
    why = f"{client} clients do not support {datatype}, the datatype of"
    words = {"i": "input", "o": "output"}
    expected = [Misfit((), f"{why} {words[each]} {each!r}, so they cannot call the model", True) for each in lost]
    assert list(found) == expected


def test_a_route_with_images_has_no_warning_about_datatypes() -> None:
    settings = RouteSettings(images=Images())
    signature = Signature(inputs=(TensorSpec("x", Datatype.BYTES, (-1,)),))
    assert list(misfits(settings, None, signature, [protocols()["umbridge"]])) == []


def test_a_model_is_not_missing_at_a_server_that_lists_none() -> None:
    assert missing_model("m", ServerModels(error="no list"), None, route_has_rewrite=False) is None


@asynccontextmanager
async def server_with_a_batch_size(most: int) -> AsyncIterator[str]:
    """A V2 server before the reference's, that tells a max_batch_size as Triton does."""
    async with reference("v2-rest", "double") as bound, httpx.AsyncClient(base_url=f"http://{bound}") as behind:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            if path.endswith("/config"):
                status, body = 200, json.dumps({"name": "double", "max_batch_size": most}).encode()
            else:
                length = next(
                    (int(each[15:]) for each in head.lower().split(b"\r\n") if each[:15] == b"content-length:"), 0
                )
                asked = await reader.readexactly(length)
                reply = await behind.request(head.split()[0].decode(), path, content=asked)
                status, body = reply.status_code, reply.content
            answer = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            writer.write(f"{answer}connection: close\r\n\r\n".encode() + body)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{port}"


@pytest.mark.parametrize(
    ("most", "keys", "warning"),
    [
        (64, "", ""),
        (8, "rows: 8", ""),
        (8, "rows: 9", "makes batches of at most 8 rows for 'double', the model's max_batch_size, not of 9"),
        (8, "rows: 9, models: [double]", "makes batches of at most 8 rows for 'double'"),
        (0, "", "does nothing for 'double': the server reports no max_batch_size above 0"),
        (0, "models: [double]", ""),
    ],
)
async def test_batches_that_gather_cannot_make_are_a_warning(most: int, keys: str, warning: str) -> None:
    async with server_with_a_batch_size(most) as bound:
        backend = f"protocol: v2-rest, flavor: triton, endpoints: ['{bound}'], policies: [{{gather: {{{keys}}}}}]"
        text = f"{HEAD}backends: {{b: {{{backend}}}}}\nroutes: [{{match: {{model: double}}, backend: b}}]"
        found = await checked(text)
    assert not found.errors
    texts = [each.message for each in found.warnings]
    assert len(texts) == bool(warning)
    assert all(warning in each for each in texts)


@pytest.mark.parametrize(
    ("model", "keys", "why"),
    [
        ("double", "", "the server reports no max_batch_size above 0"),
        ("upper", "", "not all of its tensors have a batch dimension"),
        ("upper", "models: [upper]", ""),
    ],
)
async def test_a_model_that_gather_leaves_alone_is_a_warning(model: str, keys: str, why: str) -> None:
    more = f", safe: true, policies: [{{gather: {{{keys}}}}}]"
    found = await live("v2-grpc", model, route=f"{{match: {{model: {model}}}, backend: b}}", more=more)
    assert [each.result for each in found.rows] == [WARNING if why else OK]
    assert not found.errors
    texts = [each.message for each in found.warnings]
    assert len(texts) == bool(why)
    assert all(f"dynamic batching (gather) does nothing for {model!r}: {why}" in each for each in texts)


@pytest.mark.parametrize(("declared", "result"), [("", WARNING), (f", {signature(X).partition('b, ')[2][:-1]}", OK)])
async def test_a_server_that_describes_nothing_is_a_warning_unless_the_route_declares_the_tensors(
    declared: str, result: str
) -> None:
    port = free_port()
    route = f"{{match: {{model: double}}, backend: b{declared}}}"
    text = f"{HEAD}backends: {{b: {{protocol: v1-rest, endpoints: ['127.0.0.1:{port}']}}}}\nroutes: [{route}]"
    async with serving(ModelServer({}, {"predictions": [[2.0]]}), port):
        found = await checked(text)
    assert not found.errors
    assert [each.result for each in found.rows] == [result]
    assert all("cannot confirm that it speaks v1-rest" in each.message for each in found.warnings)


PLACED = """{head}backends:
  b: {{protocol: v2-rest, endpoints: [{endpoints}]{placement}}}
routes:
  - {{match: {{model: double}}, backend: b}}
  - {{match: {{model: posterior}}, backend: b}}
  - {{match: {{model: nowhere}}, backend: b}}
"""


@pytest.mark.parametrize(
    ("placement", "results"),
    [(", placement: {}", [OK, OK, OK, OK, ERROR, ERROR]), ("", [OK, ERROR, ERROR, OK, ERROR, ERROR])],
)
async def test_one_server_with_the_model_is_enough_with_placement(placement: str, results: list[str]) -> None:
    async with reference("v2-rest", "double") as one, reference("v2-rest", "posterior") as other:
        text = PLACED.format(head=HEAD, endpoints=f"'{one}', '{other}'", placement=placement)
        found = await checked(text)
    assert [each.result for each in found.rows] == results
    assert len(found.errors) == results.count(ERROR)


async def test_endpoints_that_are_discovered_are_not_checked(tmp_path: Path) -> None:
    backend = f"{{protocol: v2-rest, discovery: {{files: '{tmp_path}/*.yaml'}}}}"
    found = await checked(f"{HEAD}backends: {{b: {backend}}}\nroutes: [{{name: r, match: {{}}, backend: b}}]")
    why = "not checked, because discovery finds the endpoints"
    assert found.rows == (Row("r", "b", "-", "-", WARNING, why),)


async def test_an_address_that_only_a_backend_takes_is_asked_over_its_own_protocol_alone() -> None:
    port = free_port()
    backend = f"{{protocol: v2-grpc, endpoints: ['dns:///127.0.0.1:{port}']}}"
    found = await checked(f"{HEAD}backends: {{b: {backend}}}\nroutes: [{{match: {{}}, backend: b}}]")
    [error] = found.errors
    assert "connection refused" in error.message


async def test_an_endpoint_that_is_gone_is_an_error_at_its_address() -> None:
    async with reference("v2-rest", "double") as bound:
        pass
    text = (
        f"{HEAD}backends: {{b: {{protocol: v2-rest, endpoints: ['{bound}']}}}}\nroutes: [{{match: {{}}, backend: b}}]"
    )
    found = await checked(text)
    assert [each.location for each in found.errors] == [("backends", "b", "endpoints", 0, "address")]


@pytest.mark.parametrize("backend", list(protocols()))
async def test_every_wire_form_can_be_checked(backend: str) -> None:
    found = await live(backend, "posterior", route="{match: {model: posterior}, backend: b}")
    assert not found.errors


OWN_JSON = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
forms:
  own: {{infer: {{path: /predict, request: {{x: $x}}, response: {{y: $y}}}}{ready}}}
backends:
  own: {{protocol: json, form: own, endpoints: ["127.0.0.1:{port}"]}}
  embeddings: {{protocol: json, form: openai-embeddings, endpoints: ["127.0.0.1:1"]}}
routes:
  - {{match: {{model: own}}, backend: own}}
  - {{match: {{model: "*"}}, backend: embeddings}}
"""
OPENAI_MODELS = {"object": "list", "data": [{"id": "a", "object": "model"}]}
V2_MODEL = {"name": "other", "version": "1", "extensions": []}


@pytest.mark.parametrize(
    ("told", "ready", "error"),
    [
        ({"/v1/models": OPENAI_MODELS}, "", ""),
        ({"/v1/models": OPENAI_MODELS, "/health": {}}, ", ready: {path: /health}", ""),
        ({"/v1/models": OPENAI_MODELS}, ", ready: {path: /health}", "uses json:openai-embeddings, not json:own"),
        ({"/v2": V2_MODEL}, "", "uses v2-rest, not json:own"),
        ({"/v2": V2_MODEL, "/health": {}}, ", ready: {path: /health}", ""),
    ],
)
async def test_a_form_that_is_declared_and_answers_is_right(told: Mapping[str, object], ready: str, error: str) -> None:
    port = free_port()
    config = config_of(OWN_JSON.format(ready=ready, port=port))
    async with serving(ModelServer(told, {}), port):
        found = await check_live(config, spoken(config), 10)
    about_own = [each.message for each in found.errors if "'own'" in each.message]
    assert [row.result for row in found.rows if row.backend == "own"] == [ERROR if error else OK]
    assert bool(about_own) == bool(error)
    assert all(error in each for each in about_own)


RAY = """
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{ray: {{protocol: json, form: {form}, endpoints: ["{address}"]}}}}
routes: [{{match: {{model: "*"}}, backend: ray}}]
"""
APPLICATIONS = {"/double": "double"}


@pytest.mark.parametrize(
    ("routes", "form", "path", "error"),
    [
        ({"/": "default"}, "ray", "", ""),
        ({"/": "default", **APPLICATIONS}, "ray", "", ""),
        (APPLICATIONS, "ray-applications", "", ""),
        (APPLICATIONS, "ray", "", "uses the form ray-applications, not ray; write `form: ray-applications`"),
        (APPLICATIONS, "ray", "/double", "write `form: ray-applications`, and remove /double from the endpoint"),
        (None, "ray", "", ""),
        (APPLICATIONS, "ray", "/ready", ""),  # behind a path that is ready, which shows no form
    ],
)
async def test_the_form_of_ray_serve_depends_on_the_prefixes_of_its_applications(
    routes: Mapping[str, str] | None, form: str, path: str, error: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer as Ray Serve's proxy does: its own paths are at the root."""
        asked = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        pages = {"/-/healthz": "success", "/ready/-/healthz": "success"} | (
            {} if routes is None else {"/-/routes": json.dumps(routes)}
        )
        status, body = ("200 OK", pages[asked]) if asked in pages else ("404 Not Found", "Path not found.")
        writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
    config = config_of(RAY.format(form=form, address=address))
    async with server:
        found = await check_live(config, spoken(config), 10)
    assert [row.result for row in found.rows] == [ERROR if error else OK]
    assert bool(found.errors) == bool(error)
    assert all(error in each.message for each in found.errors)


async def test_a_reference_server_of_the_file_counts_as_present_though_nothing_runs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        free = probe.getsockname()[1]
    text = f"""
listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
reference: [{{protocol: umbridge, bind: "127.0.0.1:{free}", models: [posterior]}}]
backends:
  own: {{protocol: umbridge, endpoints: ["http://127.0.0.1:{free}"]}}
  other: {{protocol: umbridge, endpoints: ["http://127.0.0.1:1"]}}
routes:
  - {{match: {{model: posterior}}, backend: own}}
  - {{match: {{model: "*"}}, backend: other}}
"""
    found = await checked(text)
    assert [(each.backend, each.result) for each in found.rows] == [("own", OK), ("other", ERROR)]
    assert "connection refused" in found.errors[0].message
