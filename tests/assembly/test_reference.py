"""Reference servers: what they say of their models, and their pages."""

import asyncio

from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.config import reference_config
from tests.paused_server import ask, get, port_of


async def test_the_error_for_an_unknown_model_lists_the_models_of_a_reference_server() -> None:
    config = reference_config("v2-rest", "127.0.0.1:0", ["double", "upper"], catalog())
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    asked = ["triple", "double/versions/2", "double/versions/1"]
    replies = [await ask(port_of(listener.address), get(f"/v2/models/{name}")) for name in asked]
    await listener.drain(0)
    assert replies[0].endswith(b"""{"error":"no model 'triple'; this server has double, upper"}""")
    assert replies[1].endswith(b"""{"error":"model 'double' has no version '2'; it has 1"}""")
    assert replies[2].startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_graphpipe_reference_of_several_models_says_where_they_are() -> None:
    config = reference_config("graphpipe", "127.0.0.1:0", ["double", "upper"], catalog())
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    reply = await ask(port_of(listener.address), get("/"))
    await listener.drain(0)
    assert reply.startswith(b"HTTP/1.1 404 ")
    assert reply.endswith(b"the request names no model; this server has /graphpipe/double, /graphpipe/upper")


async def test_a_grps_reference_has_the_page_of_metrics_at_its_root() -> None:
    config = reference_config("grps-rest", "127.0.0.1:0", ["double"], catalog())
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    page = await ask(port_of(listener.address), get("/"))
    series = await ask(port_of(listener.address), get("/grps/v1/monitor/series?name=*qps"))
    await listener.drain(0)
    assert page.startswith(b"HTTP/1.1 200 ")
    assert b"<html" in page
    assert b'"label":"trend"' in series
