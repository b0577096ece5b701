"""A catalog of toy protocols, so that these tests do not change with the real ones; and pieces of configurations."""

from typing import NoReturn
from urllib.parse import urlsplit

from gateway.config import Catalog, EndpointAddress
from gateway.core.frozen import replace
from gateway.core.protocol import (
    Framing,
    HttpBinding,
    Models,
    Protocol,
    Servers,
    ServerTypes,
    StreamBinding,
    Traits,
    TransportBinding,
    Wire,
)
from gateway.policies import hedge, retry, timeout


def _never(*arguments: object) -> NoReturn:
    raise AssertionError("loading a configuration calls no codec")


HTTP = HttpBinding()
TCP = StreamBinding(Framing(0, len))


def toy(
    name: str, binding: TransportBinding = HTTP, patterns: tuple[str, ...] = (), traits: Traits | None = None
) -> Protocol:
    return Protocol(name, binding, patterns, _never, _never, _never, _never, _never, traits=traits or Traits())


FLAVORS = ServerTypes(("triton", "plain"), lambda info: "plain")

PROTOCOLS = (
    toy(
        "v2-rest",
        patterns=("POST /v2/models/{model}/infer",),
        traits=Traits(models=Models(versions=str.isdigit), servers=Servers(flavors=FLAVORS)),
    ),
    toy("umbridge", patterns=("POST /Evaluate", "GET /Info"), traits=Traits(servers=Servers(runs_to_the_end=True))),
    toy("points", patterns=("POST /Evaluate",)),
    toy("nameless", patterns=("POST /nameless",), traits=Traits(models=Models(named=False))),
    replace(
        toy("packets", TCP, traits=Traits(models=Models(named=False, metadata_parts=()))),
        batches={"split": Traits(), "whole": Traits()},
    ),
    toy("frames", TCP),
    replace(
        toy(
            "messages",
            patterns=("POST /messages/predict",),
            traits=Traits(
                wire=Wire(parameters=False), models=Models(named=False, may_be_named=True, joined_versions=True)
            ),
        ),
        payloads=("tensors", "text"),
        binding=HttpBinding(
            passthrough=toy("messages", HttpBinding(any_path=("GET", "POST"))), pages=("GET /", "GET /messages/series")
        ),
    ),
    *(
        toy(name, HttpBinding(any_path=("POST", "GET")), (f"POST /{name}/{{model}}",), traits)
        for name in ("anywhere", "else")
        for traits in [Traits(models=Models(named=False, trusted_metadata=False))]
    ),
)


def parse_endpoint(transport: str, endpoint: str) -> EndpointAddress:
    if "://" not in endpoint and not endpoint.rpartition(":")[2].isdigit():
        raise ValueError(f"bad address {endpoint!r}: it has no port; expected host:port ({transport})")
    url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    if url.scheme == "unix":
        return EndpointAddress(socket=url.path)
    return EndpointAddress(url.hostname or "", url.port or 80, prefix=url.path.rstrip("/"))


CATALOG = Catalog(
    {protocol.name: protocol for protocol in PROTOCOLS},
    {"timeout": timeout, "retry": retry, "hedge": hedge},
    ("double", "posterior"),
    parse_endpoint,
)

ENVIRON = {"PORT": "8080", "SECRET": "s3cret", "DIGITS": "12345", "COUNT": "3", "FLAG": "true"}

# Sound by itself, in three lines; tests add to it.
SOUND = """\
listeners: [{name: http, bind: "127.0.0.1:8080", protocols: [umbridge]}]
backends: {science: {protocol: umbridge, endpoints: ["127.0.0.1:4242"]}}
routes: [{match: {model: m}, backend: science}]
"""

# The beginnings of one, up to where a test goes on.
LISTENER = SOUND.split("\n", 1)[0] + "\n"
BACKEND = LISTENER + "backends: {science: {protocol: umbridge, endpoints: ['127.0.0.1:4242'], "
ROUTE = SOUND.rsplit("\n", 2)[0] + "\nroutes: [{backend: science, "
TWO = ROUTE.replace("backend: science, ", "").replace(
    "backends: {", "backends: {old: {protocol: v2-rest, endpoints: ['h:1']}, "
)
MESSAGES = ROUTE.replace("umbridge", "messages")
ANYWHERE = ROUTE.replace("[umbridge]", "[anywhere, else]")
TRANSLATE = ROUTE + "match: {}, translate: {"

WHOLE = """\
listeners:
  - {name: http, bind: "127.0.0.1:8080", protocols: [v2-rest, umbridge], prefix: {umbridge: /science}}
  - {name: vision, bind: "tcp://127.0.0.1:9100", protocols: [packets], model: classifier, limits: {message: 1024}}
admin: {bind: "127.0.0.1:9090"}
health: {bind: "0.0.0.0:9091"}
reference:
  - {protocol: umbridge, bind: "127.0.0.1:4242", models: [posterior, double, "my.models:half"]}
backends:
  triton:
    protocol: v2-rest
    endpoints: ["triton-0:8001", "triton-1:8001"]
    policies:
      - timeout: {seconds: 2}
    forward_headers: [X-Request-Id]
  science:
    protocol: umbridge
    endpoints: ["http://127.0.0.1:4242"]
    max_in_flight: 1
routes:
  - match: {protocol: umbridge, model: posterior, operation: gradient, header: {X-Tenant: a}}
    backend: triton
    rewrite: {model: posterior_v3, version: ""}
    signature:
      inputs: [{name: theta, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: logdensity, datatype: FP64, shape: [-1, 1]}]
    translate:
      cast: round
      nan: null
      bytes: base64
      operations: {gradient: posterior_grad}
      max_rows: 16
      rename: {inputs: [{client: A, backend: y}], outputs: [{client: B, backend: n}]}
      constants: [{name: scale, datatype: FP16, shape: [1, 2], data: [1, 2.5]}]
      select: [B]
      order: [y, scale]
      drop: [no]
    policies: [{timeout: {seconds: 0.5}}]
  - {match: {listener: vision}, backend: triton}
  - {match: {model: "*"}, backend: science}
"""
