"""A running gateway with model servers, and what a scrape of its metrics page says."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager

import httpx
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser
from prometheus_client.parser import text_string_to_metric_families

from gateway.config import Config
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.running_gateway import config_of, running_gateway

LISTENERS = """
health: {bind: "127.0.0.1:0"}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, grps-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: brpc, bind: "127.0.0.1:0", protocols: [grps-brpc]}
  - {name: mip, bind: "127.0.0.1:0", protocols: [mip], model: double}
"""
REFERENCE = """
reference:
  - {protocol: v2-grpc, bind: "127.0.0.1:PORT", models: [double, fail, identity]}
"""
BACKEND = """
backends:
  lab: {protocol: v2-grpc, endpoints: ["127.0.0.1:PORT"]}
routes:
  - {match: {model: double}, backend: lab}
  - {match: {model: "*"}, backend: lab}
"""
CONFIG = LISTENERS + REFERENCE + BACKEND

ROUTE = "{match: {model: double}, backend: lab}"
ROUNDING = """match: {model: double}
    backend: lab
    rewrite: {model: identity}
    translate: {cast: round}
    signature:
      inputs: [{name: x, datatype: FP32, shape: [-1, 2]}]
      outputs: [{name: x, datatype: FP32, shape: [-1, 2]}]"""
"""A route in place of ROUTE that loses digits of TENTH."""
TENTH = [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [0.1, 0.25]}]


def config(text: str, **ports: int) -> Config:
    """A configuration, with its words for ports replaced."""
    for word, port in ports.items():
        text = text.replace(word, str(port))
    return config_of(text)


def running(text: str = CONFIG, **ports: int) -> AbstractAsyncContextManager[Gateway]:
    """A gateway. `PORT` in its configuration is one that its reference server gets."""
    return running_gateway(config(text, PORT=free_port(), **ports))


def url(gateway: Gateway, listener: str = "http") -> str:
    return f"http://{gateway.state.listeners[listener].address}"


def page_url(gateway: Gateway) -> str:
    return f"http://{gateway.ports.all['health'].address}/metrics"


class Page:
    def __init__(self, text: str) -> None:
        self.text = text
        self.families: dict[str, Metric] = {each.name: each for each in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name with these labels; 0 without one."""
        return sum(each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items())

    def by(self, name: str, label: str) -> Mapping[str, float]:
        """The samples of this name, summed by a label."""
        values = {each.labels[label] for each in self.samples if each.name == name}
        return {value: self.value(name, **{label: value}) for value in values}


def openmetrics(text: str) -> list[Metric]:
    return list(parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


async def scrape(gateway: Gateway) -> Page:
    """The page now, as Prometheus' text."""
    async with httpx.AsyncClient() as client:
        reply = await client.get(page_url(gateway))
        assert reply.status_code == 200, reply.text
        return Page(reply.text)


async def infer(client: httpx.AsyncClient, gateway: Gateway, model: str = "double", **more: object) -> httpx.Response:
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.5, 2.5]}], **more}
    return await client.post(f"{url(gateway)}/v2/models/{model}/infer", json=body)


async def fail(client: httpx.AsyncClient, gateway: Gateway) -> httpx.Response:
    """One inference of a model that fails with INTERNAL."""
    body = {"inputs": [{"name": "kind", "datatype": "INT32", "shape": [1, 1], "data": [13]}]}
    return await client.post(f"{url(gateway)}/v2/models/fail/infer", json=body)


async def evaluate(client: httpx.AsyncClient, gateway: Gateway, model: str = "double") -> httpx.Response:
    return await client.post(f"{url(gateway)}/Evaluate", json={"name": model, "input": [[1.5, 2.5]], "config": {}})
