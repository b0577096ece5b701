"""Reference servers: what they say of their models, and their pages."""

from tests.paused_server import ask, get, port_of
from tests.running_gateway import reference


async def test_the_error_for_an_unknown_model_lists_the_models_of_a_reference_server() -> None:
    asked = ["triple", "double/versions/2", "double/versions/1"]
    async with reference("v2-rest", "double", "upper") as address:
        replies = [await ask(port_of(address), get(f"/v2/models/{name}")) for name in asked]
    assert replies[0].endswith(b"""{"error":"no model 'triple'; this server has double, upper"}""")
    assert replies[1].endswith(b"""{"error":"model 'double' has no version '2'; it has 1"}""")
    assert replies[2].startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_graphpipe_reference_of_several_models_says_where_they_are() -> None:
    async with reference("graphpipe", "double", "upper") as address:
        reply = await ask(port_of(address), get("/"))
    assert reply.startswith(b"HTTP/1.1 404 ")
    assert reply.endswith(b"the request names no model; this server has /graphpipe/double, /graphpipe/upper")


async def test_a_grps_reference_has_the_page_of_metrics_at_its_root() -> None:
    async with reference("grps-rest", "double") as address:
        page = await ask(port_of(address), get("/"))
        series = await ask(port_of(address), get("/grps/v1/monitor/series?name=*qps"))
    assert page.startswith(b"HTTP/1.1 200 ")
    assert b"<html" in page
    assert b'"label":"trend"' in series
