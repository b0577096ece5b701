"""How pods end: nothing that a pod accepted is left unanswered, and a rolling restart loses no request."""

import asyncio
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.deploy.clients import Load, balanced, client
from tests.deploy.pods import Cluster, Pod, running, start
from tests.deploy.rendered import render
from tests.interop.processes import free_port
from tests.limits import until
from tests.paused_server import held

pytestmark = pytest.mark.long

LISTENERS = """
  listeners:
    - {name: http, bind: "0.0.0.0:8080", protocols: [v2-rest]}
    - {name: grpc, bind: "0.0.0.0:8081", protocols: [v2-grpc]}
    - {name: mip, bind: "tcp://0.0.0.0:9100", protocols: [mip], model: double}
    - {name: brpc, bind: "tcp://0.0.0.0:9200", protocols: [grps-brpc]}
"""
PORTS = {"v2-rest": "http", "v2-grpc": "grpc", "mip": "mip", "grps-brpc": "brpc"}
DRAIN = "  drain: {delay: 5, timeout: 30}\n"
LONG_DRAIN = DRAIN.replace("5,", "10,")  # four requests are sent within the delay, on a machine that may be busy

WAITING = """
  backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
  routes:
    - match: {model: double}
      backend: lab
      signature:
        inputs: [{name: x, datatype: INT32, shape: [1]}]
        outputs: [{name: "y", datatype: INT32, shape: [1]}]
"""
ONE = np.array([1], np.int32)
THREE = np.array([[1.0, 2.0, 3.0]])


async def infer(protocol: str, address: str) -> object:
    async with client(protocol, address, "double", ONE) as ask:
        return await ask()


async def until_refused(address: str) -> None:
    """Wait until nobody listens any more."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            return
        writer.close()


async def test_what_a_pod_accepted_before_and_after_sigterm_is_answered(tmp_path: Path) -> None:
    async with held() as lab:
        release = render("config:" + LISTENERS + LONG_DRAIN + WAITING.replace("PORT", str(lab.port)))
        with running(release, [], tmp_path) as (_, gateway):
            addresses = {protocol: gateway.address(port) for protocol, port in PORTS.items()}
            asked = []

            async def ask_once_more() -> None:
                """One request over every wire form that now waits in the backend."""
                for protocol, address in addresses.items():
                    lab.arrived.clear()
                    asked.append(asyncio.ensure_future(infer(protocol, address)))
                    await lab.arrived.wait()

            await ask_once_more()
            gateway.terminate()
            await until(lambda: gateway.probe("readiness") == 503)
            assert gateway.probe("liveness") == 200
            await ask_once_more()
            for address in addresses.values():
                await until_refused(address)
            assert not any(each.done() for each in asked)
            lab.release.set()
            assert [await each for each in asked] == [[[7]]] * (2 * len(PORTS))
            assert await asyncio.to_thread(gateway.exit_status) == 0


async def test_a_rolling_restart_loses_no_request(tmp_path: Path) -> None:
    """Two replicas are replaced one after the other as the Deployment's strategy says: a new pod first, then an old one
    ends."""
    release = render("demo: {enabled: true}\nreplicaCount: 2\nconfig:" + LISTENERS + DRAIN)
    rolling = release.deployment["spec"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxUnavailable": 0, "maxSurge": 1}
    cluster = Cluster(release.objects, tmp_path)
    with ExitStack() as stack:

        def replica(number: int) -> Pod:
            binds = {port["containerPort"]: free_port() for port in release.container["ports"]}
            started = start(cluster, release.deployment, binds, str(number))
            stack.callback(started.process.stop, 0)
            return started

        server = start(cluster, release.one_of("Deployment", "demo-v2"))
        stack.callback(server.process.stop, 0)
        pods = [replica(0), replica(1)]
        for each in (server, *pods):
            each.wait_until_ready()
        async with balanced(pods, list(PORTS.values())) as balancer:
            load = Load({protocol: balancer.addresses[port] for protocol, port in PORTS.items()}, "double", THREE)
            load.start()
            await load.progress()
            for number, old in enumerate(list(pods)):
                new = replica(2 + number)
                await asyncio.to_thread(new.wait_until_ready)
                pods.append(new)
                await until(lambda new=new: new in balancer.ready)  # type: ignore[misc]
                await load.progress()
                old.terminate()
                assert await asyncio.to_thread(old.exit_status) == 0
                pods.remove(old)
                await load.progress()
            await load.end()
    assert Counter(load.failures) == {}
