"""Rendered pods as processes of this machine: their volumes in a folder, their environment and arguments, their probes.

What a node does, done by hand. Every address of the cluster (a port of a container, `SERVICE:PORT`) becomes a free port
on loopback; everything else runs as it was rendered. The image's entrypoint is `gateway`.
"""

import os
import re
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import gateway
from tests.deploy.rendered import NAMESPACE, Object, Release
from tests.interop.processes import Process, clean_environment, free_port
from tests.limits import GENEROUS

SOURCE = Path(gateway.__file__).parents[1]


class Cluster:
    """The addresses of a set of objects: where their pods' ports are on this machine."""

    def __init__(self, objects: Iterable[Object], folder: Path) -> None:
        self.objects = list(objects)
        self.folder = folder
        self.ports: dict[tuple[str, int], int] = {}
        """The port on loopback of a port of a Deployment's pods."""
        self.services: dict[str, int] = {}
        """The port on loopback of each `SERVICE:PORT`."""
        for each in self.objects:
            if each["kind"] == "Deployment":
                for port in _ports(each["spec"]["template"]["spec"]).values():
                    self.ports[each["metadata"]["name"], port] = free_port()
        for each in self.objects:
            if each["kind"] == "Service":
                self._resolve(each)

    def _resolve(self, service: Object) -> None:
        """A Service leads to the pods that it selects."""
        name = service["metadata"]["name"]
        (target,) = [
            each
            for each in self.objects
            if each["kind"] == "Deployment"
            and each["spec"]["template"]["metadata"]["labels"].items() >= service["spec"]["selector"].items()
        ]
        ports = _ports(target["spec"]["template"]["spec"])
        for port in service["spec"]["ports"]:
            self.services[f"{name}:{port['port']}"] = self.ports[target["metadata"]["name"], ports[port["targetPort"]]]

    def here(self, text: str, binds: dict[int, int]) -> str:
        """A text with the addresses of this machine: Services, and the pod's own binds, also on its loopback."""
        for name, port in self.services.items():
            host, _, number = name.partition(":")
            pattern = rf"(?<![\w.-]){re.escape(host)}(\.{NAMESPACE}(\.svc(\.cluster\.local)?)?)?:{number}(?!\d)"
            text = re.sub(pattern, f"127.0.0.1:{port}", text)
        return re.sub(
            r"(?:0\.0\.0\.0|\[::\]|127\.0\.0\.1):(\d+)",
            lambda bind: f"127.0.0.1:{binds.get(int(bind[1]), int(bind[1]))}",
            text,
        )

    def config_map(self, name: str) -> dict[str, str]:
        (found,) = [each for each in self.objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name]
        data: dict[str, str] = found["data"]
        return data


def _ports(spec: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for each in spec["containers"] for port in each.get("ports", [])}


@dataclass
class Pod:
    """The gateway's container of a rendered pod, or a model server's, as a process."""

    cluster: Cluster
    template: Object
    container: Object
    folder: Path
    binds: dict[int, int]
    """Its ports on loopback, by the container's."""
    process: Process = field(init=False)

    def __post_init__(self) -> None:
        self.mounts = {
            mount["mountPath"]: self._volume(mount["name"]) for mount in self.container.get("volumeMounts", [])
        }
        entrypoint = self.container.get("command", [sys.executable, "-m", "gateway"])
        command = [*entrypoint, *map(self._argument, self.container["args"])]
        self.process = Process(command, self.folder / "output", self._environment())

    def _volume(self, name: str) -> Path:
        """A volume as a folder; of a ConfigMap its items, or all of its keys."""
        (volume,) = [each for each in self.template["spec"]["volumes"] if each["name"] == name]
        folder = self.folder / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        if "configMap" in volume:
            data = self.cluster.config_map(volume["configMap"]["name"])
            for item in volume["configMap"].get("items", [{"key": key, "path": key} for key in data]):
                (folder / item["path"]).write_text(self.cluster.here(data[item["key"]], self.binds))
        return folder

    def _argument(self, text: str) -> str:
        if self.mounts:
            paths = "|".join(map(re.escape, self.mounts))
            text = re.sub(rf"(?<![\w./-])({paths})(?=/)", lambda path: str(self.mounts[path[1]]), text)
        return self.cluster.here(text, self.binds)

    def _environment(self) -> dict[str, str]:
        given = {each["name"]: self.cluster.here(each.get("value", ""), {}) for each in self.container.get("env", [])}
        temporary = {"TMPDIR": str(self.mounts["/tmp"])} if "/tmp" in self.mounts else {}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return clean_environment(PYTHONPATH=str(SOURCE), PYTHONUNBUFFERED="1", PATH=path, **temporary, **given)

    def address(self, port: str) -> str:
        """Where a named port of the container is."""
        (number,) = [each["containerPort"] for each in self.container["ports"] if each["name"] == port]
        return f"127.0.0.1:{self.binds[number]}"

    def probe(self, name: str) -> int:
        """The status that a probe gets, or 0 where nothing answers: as the kubelet calls it, once."""
        probe = self.container[f"{name}Probe"]
        if "tcpSocket" in probe:
            host, _, port = self.address(probe["tcpSocket"]["port"]).rpartition(":")
            with socket.socket() as connection:
                return 200 if connection.connect_ex((host, int(port))) == 0 else 0
        asked = probe["httpGet"]
        try:
            with urllib.request.urlopen(
                f"http://{self.address(asked['port'])}{asked['path']}", timeout=GENEROUS
            ) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_until_ready(self) -> None:
        """As the kubelet does: the startup probe until it succeeds, then the readiness probe."""
        for name in ("startup", "readiness"):
            if f"{name}Probe" in self.container:
                self.process.wait_until(lambda name=name: self.probe(name) == 200, GENEROUS)  # type: ignore[misc]

    def terminate(self) -> None:
        """What the kubelet does first with a pod that is to end: the preStop hook, then SIGTERM."""
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            command, seconds = hook["exec"]["command"]
            assert command == "sleep"
            time.sleep(float(seconds))
        self.process.signal(signal.SIGTERM)

    def exit_status(self) -> int:
        """How it ended, within the pod's grace period; after that it would be killed."""
        return self.process.wait(self.template["spec"]["terminationGracePeriodSeconds"])


def beside(pod: Pod) -> Iterator[Pod]:
    """The other containers of a pod, started: they share its ports."""
    for each in pod.template["spec"]["containers"][1:]:
        yield Pod(pod.cluster, pod.template, each, pod.folder / each["name"], pod.binds)


def start(cluster: Cluster, deployment: Object, binds: dict[int, int] | None = None, name: str = "0") -> Pod:
    """A pod of a Deployment, started; at ports of its own (`binds`) where it is one more replica."""
    template = deployment["spec"]["template"]
    container = template["spec"]["containers"][0]
    own = deployment["metadata"]["name"]
    if binds is None:
        binds = {port: cluster.ports[own, port] for port in _ports(template["spec"]).values()}
    return Pod(cluster, template, container, cluster.folder / f"{own}-{name}", binds)


@contextmanager
def running(release: Release, others: Iterable[Object], folder: Path) -> Iterator[tuple[Cluster, Pod]]:
    """A release, one ready pod of each of its Deployments with all its containers, beside other objects:
    the gateway's container."""
    cluster = Cluster([*release.objects, *others], folder)
    with ExitStack() as stack:
        pods = {}
        for each in cluster.objects:
            if each["kind"] == "Deployment":
                pods[each["metadata"]["name"]] = started = start(cluster, each)
                stack.callback(started.process.stop, 0)
                for other in beside(started):
                    stack.callback(other.process.stop, 0)
        for waited_for in pods.values():
            waited_for.wait_until_ready()
        yield cluster, pods[release.name]


def run_to_the_end(cluster: Cluster, template: Object, folder: Path) -> dict[str, tuple[int, str]]:
    """Run the containers of a pod that ends by itself: exit status and output of each."""
    containers = template["spec"]["containers"]
    pods = {each["name"]: Pod(cluster, template, each, folder / each["name"], {}) for each in containers}
    return {name: (each.process.wait(GENEROUS), each.process.output()) for name, each in pods.items()}
