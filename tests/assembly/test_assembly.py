"""From a configuration to what answers requests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.assembly.routes import route_settings
from gateway.bridge.settings import ImageInput, ImageOutput, Images
from gateway.config import Catalog, loads
from gateway.core.errors import GatewayError, Status
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.patterns import Match, PathTable
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.routing.balancing import LeastInFlight, LeastLoad, RoundRobin, WeightedLeastInFlight
from gateway.routing.health import Ejection
from gateway.routing.placement.table import ServerInventory
from gateway.routing.probing import Probes
from gateway.routing.queue import QueueSettings
from gateway.transports.http.address import parse_address
from tests.assembled import INFO, assembled, marks

REPLY = b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[1],"data":[7]}]}'


class Wire:
    """A Connector that notes where messages go, and answers all alike."""

    def __init__(self, sent: list[str], address: str, limits: Limits) -> None:
        self.sent, self.address, self.limits = sent, address, limits

    async def exchange(self, message: Message) -> Message:
        self.sent.append(f"{self.address} {message.path}")
        if "/m-1/" in message.path or "/grps/" in message.path:
            return Message(status=404, parts=(b"no such model",))
        return Message(status=200, headers=Headers(), parts=(REPLY,))

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        yield await self.exchange(message)

    async def close(self) -> None:
        """Nothing is open."""


class Assembled:
    """An Assembly on Wires: `passed` are the policies, `sent` what reached an endpoint."""

    def __init__(self, text: str, *, ready: bool = True, listeners: str = "") -> None:
        self.passed: list[str] = []
        self.sent: list[str] = []
        policies = {"mark": marks(self.passed)}
        config = loads((listeners or LISTENER) + text, "test.yaml", Catalog(protocols(), policies), {})
        self.assembly = assembled(
            config,
            lambda address, protocol, limits, ip: Wire(self.sent, address, limits),
            policies=policies,
            parse_address=lambda address, protocol: parse_address(address),
            ready=ready,
        )

    async def ask(
        self,
        operation: Operation = Operation.INFER,
        model: str = "m",
        protocol: str = "v2-rest",
        listener: str = "http",
    ) -> Answer:
        request = Request(operation, model, protocol=protocol, listener=listener)
        destination = self.assembly.router.select(request)
        if destination.local is not None:
            return destination.local(request)
        assert destination.handler is not None
        return await destination.handler(request)


LISTENER = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}]
"""

POLICED = """
backends:
  lab:
    protocol: v2-rest
    flavor: plain
    endpoints: ["lab:1"]
    policies: [{mark: {name: third}}, {mark: {name: fourth}}]
routes:
  - {match: {model: m}, backend: lab, policies: [{mark: {name: first}}, {mark: {name: second}}]}
"""


async def test_the_routes_policies_come_before_the_backends_and_the_first_is_outermost() -> None:
    here = Assembled(POLICED)
    answer = await here.ask()
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.tolist() == [7]
    assert here.passed == ["first", "second", "third", "fourth"]
    assert here.sent == ["lab:1 /v2/models/m/infer"]


async def test_companions_and_streams_have_the_routes_policies_too() -> None:
    here = Assembled(POLICED)
    await here.ask(model="m.gradient")
    assert here.passed == ["first", "second", "third", "fourth"]
    assert here.sent == ["lab:1 /v2/models/m.gradient/infer"]
    # a plain server of V2 has no streams over REST, so the backend is asked for one response after all
    no_stream = ["stream third", "stream fourth"]
    for model, passed in (("m", [*no_stream, "third", "fourth"]), ("m.gradient", ["third", "fourth"])):
        here.passed.clear()
        stream = here.assembly.router.select(
            Request(Operation.STREAM if model == "m" else Operation.INFER, model, protocol="v2-rest", listener="http")
        ).stream
        assert stream is not None
        request = Request(Operation.STREAM, model, protocol="v2-rest")
        assert [answer.model async for answer in stream(request)] == [model]
        assert here.passed == ["stream first", "stream second", *passed]


JOINED = """
backends: {lab: {protocol: PROTOCOL, endpoints: ["lab:1"]}}
routes:
- match: {model: "*"}
  backend: lab
  signature: {inputs: [{name: x, datatype: INT32, shape: [1]}], outputs: [{name: y, datatype: INT32, shape: [1]}]}
"""
GRPS = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [grps-rest]}]
"""


async def test_a_name_that_may_hold_a_version_is_split_for_backends_that_do_not_do_so_themselves() -> None:
    x = Request(Operation.INFER, "m-1", inputs=(tensor("x", np.array([1], np.int32)),), protocol="grps-rest")
    for protocol, sent in {
        "v2-rest, flavor: plain": ["lab:1 /v2/models/m-1/infer", "lab:1 /v2/models/m/versions/1/infer"],
        "grps-rest": ["lab:1 /grps/v1/infer/predict"],
    }.items():
        here = Assembled(JOINED.replace("PROTOCOL", protocol), listeners=GRPS)
        handler = here.assembly.router.select(x).handler
        assert handler is not None
        with suppress(GatewayError):  # of the server without such a model
            assert isinstance(await handler(x), Response)
        assert here.sent == sent


BY_PATH = """
backends: {lab: {protocol: umbridge, endpoints: ["lab:1"]}}
routes: [{match: {path: PATH}, backend: lab}]
"""


@pytest.mark.parametrize(
    ("protocol", "message", "path"),
    [
        ("umbridge", Message("POST", "/Evaluate", parts=(b'{"name":"m","input":[[1]]}',)), "/Evaluate"),
        ("umbridge", Message("POST", "/InputSizes", parts=(b'{"name":"m"}',)), "/InputSizes"),
        ("v1-rest", Message("POST", "/v1/models/m:predict", parts=(b'{"instances":[1]}',)), "/v1/models/*"),
        ("v2-rest", Message("POST", "/v2/models/m/infer", parts=(b'{"inputs":[]}',)), "/v2/models/m/infer"),
    ],
)
async def test_a_route_that_matches_a_path_takes_requests_of_every_protocol(
    protocol: str, message: Message, path: str
) -> None:
    codec = protocols()[protocol]
    match = PathTable([(codec, "")]).match(message.method, message.path)
    assert isinstance(match, Match)
    arrived = replace(message, pattern=match.pattern, captures=match.captures)
    request = decoded(arrived, codec, ListenerSettings("http"))
    listeners = f'listeners: [{{name: http, bind: "127.0.0.1:0", protocols: [{protocol}]}}]\n'
    here = Assembled(BY_PATH.replace("PATH", path), listeners=listeners)
    assert here.assembly.router.select(request).handler is not None
    elsewhere = Assembled(BY_PATH.replace("PATH", "/elsewhere"), listeners=listeners)
    with pytest.raises(GatewayError, match="unknown model 'm'"):
        elsewhere.assembly.router.select(request)


SHARING = """
backends:
  one: {protocol: umbridge, endpoints: ["http://lab:80", "lab:81"], max_in_flight: 1}
  two: {protocol: umbridge, endpoints: ["lab:81", "http://lab/"], max_in_flight: 2, limits: {message: 1024}}
  other: {protocol: v2-rest, flavor: plain, endpoints: ["lab:81"]}
routes: [{match: {}, backend: one}]
"""


async def test_backends_that_name_one_place_share_its_endpoint_however_they_write_it() -> None:
    backends = Assembled(SHARING).assembly.backends
    (plain, other), (same, written_so) = (backends[name].endpoints for name in ("one", "two"))
    assert (plain, other) == (written_so, same)
    assert backends["other"].endpoints[0] is not other
    assert (backends["one"].capacity, backends["two"].capacity, backends["other"].capacity) == (2, 4, 0)


PROBED = """
backends:
  passive: {protocol: v2-rest, endpoints: ["a:1"]}
  v2: {protocol: v2-rest, endpoints: ["b:1"], health: {}}
  grps: {protocol: grps-rest, endpoints: ["c:1"], health: {}}
  own:
    protocol: grps-rest
    endpoints: ["d:1"]
    health: {probe: ready, interval: 1, timeout: 3, unhealthy: 4, healthy: 5, jitter: 0.6}
  ejected:
    protocol: v2-rest
    endpoints: ["e:1"]
    health: {probe: none, ejection: {failures: 2, seconds: 3, max_ejected_share: 1}}
"""


async def test_a_backend_with_health_is_probed_and_its_keys_say_how() -> None:
    assembly = Assembled(PROBED).assembly
    assert [(each._backend.name, each._probes) for each in assembly.probers] == [
        ("v2", Probes(Operation.READY)),
        ("grps", Probes(Operation.LIVE)),
        ("own", Probes(Operation.READY, 1, 3, 4, 5, 0.6)),
    ]
    ejections = {each.address: each.health._ejection for each in assembly.endpoints.values()}
    assert ejections == dict.fromkeys(["a:1", "b:1", "c:1", "d:1"], Ejection()) | {"e:1": Ejection(2, 3.0, 1.0)}
    assert {name: each.choice._most_left_out for name, each in assembly.backends.items()} == {
        **dict.fromkeys(["passive", "v2", "grps", "own"], 0),
        "ejected": 1,
    }


BALANCED = """
backends:
  plain: {protocol: umbridge, endpoints: ["lab:1", {address: "lab:2"}]}
  weighted: {protocol: umbridge, endpoints: ["lab:1", {address: "lab:2", weight: 4}], slow_start: 10}
  turns: {protocol: umbridge, endpoints: ["lab:1"], balance: round_robin, queue: {length: 7, timeout: 1.5}}
routes: [{match: {}, backend: plain}]
"""


async def test_backends_balance_and_queue_as_configured() -> None:
    backends = Assembled(BALANCED).assembly.backends
    assert isinstance(backends["plain"].choice.strategy, LeastInFlight)
    assert isinstance(backends["turns"].choice.strategy, RoundRobin)
    weighted = backends["weighted"].choice.strategy
    assert isinstance(weighted, WeightedLeastInFlight)
    one, two = backends["weighted"].endpoints
    assert [weighted._weights.of(each) for each in (one, two)] == [1, 4]
    two.since = asyncio.get_running_loop().time()
    assert weighted._weights.of(two) < 4
    assert backends["plain"].local.queue_settings == QueueSettings(1000, None)
    assert backends["turns"].local.queue_settings == QueueSettings(7, 1.5)


async def test_the_choices_among_holders_of_models_compare_the_same_loads() -> None:
    text = """
backends:
  fleet: {protocol: v2-rest, endpoints: ["lab:1", "lab:2"], balance: least_load, placement: {}}
routes: [{match: {}, backend: fleet}]
"""
    fleet = Assembled(text).assembly.placed.all["fleet"]
    for endpoint in fleet.local.endpoints:
        fleet.placements.reported(endpoint, ServerInventory({"m": ()}), fleet.placements.moment)
    of_model = fleet.placements.chosen(fleet.placements.models["m"])
    assert of_model is not None
    one, all_models = of_model.strategy, fleet.local.choice.strategy
    assert isinstance(one, LeastLoad)
    assert isinstance(all_models, LeastLoad)
    assert one.loads is all_models.loads


async def test_the_gateway_answers_for_itself() -> None:
    here = Assembled("backends: {}\nroutes: []\n", ready=False)
    assert await here.ask(Operation.LIVE) is True
    assert await here.ask(Operation.READY) is False
    assert await here.ask(Operation.SERVER_METADATA) is INFO
    assert await here.ask(Operation.MODELS) == ()
    with pytest.raises(GatewayError, match="unknown model 'm'") as refused:
        await here.ask()
    assert refused.value.status is Status.NOT_FOUND


async def test_a_route_serves_the_protocols_that_it_matches() -> None:
    here = Assembled(POLICED.replace("match: {model: m}", "match: {protocol: umbridge}"))
    with pytest.raises(GatewayError, match="unknown model 'm'"):
        await here.ask()
    assert here.assembly.router.select(Request(Operation.INFER, "m", protocol="umbridge", listener="http"))


def test_a_routes_images_are_what_its_keys_say() -> None:
    text = "backends: {lab: {protocol: v2-rest, endpoints: ['lab:1']}}\nroutes: [{match: {}, backend: lab, translate: "
    text += """{images: {
      inputs: [{name: x, layout: chw, channels: bgr, resize: [2, 3], scale: unit, max_pixels: 6}, {name: z}],
      outputs: [{name: y, format: webp, lossy: true, layout: chw, channels: gray}]}}}]"""
    (route,) = loads(LISTENER + text, "test.yaml", Catalog(protocols(), {}), {}).routes
    settings = route_settings(route)
    assert settings.images == Images(
        (ImageInput("x", "chw", "bgr", (2, 3), "unit", 6), ImageInput("z")),
        (ImageOutput("y", "webp", True, "chw", "gray"),),
    )
    assert not settings.leaves_tensors_unchanged


SWITCHED = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge], allow_offline: true}
  - {name: other, bind: "127.0.0.1:0", protocols: [v2-rest]}
"""


async def test_clients_may_take_a_listener_offline_where_it_says_so() -> None:
    here = Assembled("", listeners=SWITCHED)
    assert await here.ask(Operation.READY) is True
    assert await here.ask(Operation.OFFLINE) is True
    assert [await here.ask(Operation.READY, protocol=name) for name in ("v2-rest", "umbridge")] == [False, False]
    assert await here.ask(Operation.READY, listener="other") is True
    assert await here.ask(Operation.LIVE) is True
    with pytest.raises(GatewayError, match="allow_offline: true") as refused:
        await here.ask(Operation.OFFLINE, listener="other")
    assert refused.value.status is Status.PERMISSION_DENIED
    assert await here.ask(Operation.ONLINE) is True
    assert await here.ask(Operation.READY) is True


async def test_an_offline_listener_still_answers() -> None:
    here = Assembled(POLICED, listeners=SWITCHED)
    await here.ask(Operation.OFFLINE)
    assert isinstance(await here.ask(), Response)


async def test_statistics_are_told_where_the_page_is_served() -> None:
    here = Assembled("")
    with pytest.raises(GatewayError, match="listener 'http' keeps no statistics; `metrics_page: true`"):
        await here.ask(Operation.STATISTICS)
    assert here.assembly.statistics == {}


async def test_a_route_says_how_tensors_and_configs_travel() -> None:
    text = "backends: {lab: {protocol: mip, endpoints: ['lab:1']}}\n"
    text += "routes: [{match: {}, backend: lab, translate: {carry_config: true}}]\n"
    (route,) = loads(LISTENER + text, "test.yaml", Catalog(protocols(), {}), {}).routes
    assert route_settings(route).carry_config
    told = route.model_copy(update={"translate": replace(route.translate, payload="text")})
    assert route_settings(told).payload == "text"
