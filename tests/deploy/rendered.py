"""The chart as Helm renders it, and the values files that the tests render it with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

from gateway.cli.options import catalog
from gateway.config import Config, loads

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "modelglot"
EXAMPLES = ROOT / "deploy" / "examples"
SERVERS = EXAMPLES / "servers.yaml"
RELEASE, NAMESPACE = "models", "inference"

FILES = {
    path.name.removesuffix(".yaml"): path
    for path in sorted([*(CHART / "ci").glob("*.yaml"), *EXAMPLES.glob("*.yaml")])
    if path != SERVERS
}
"""Every values file, by its name: those that only test the chart, and those that docs/deploy.md shows."""

Object = dict[str, Any]
"""An object of the Kubernetes API."""


@dataclass(frozen=True)
class Release:
    """What an installation would create, and tell."""

    objects: tuple[Object, ...]
    notes: str

    def all(self, kind: str) -> list[Object]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str = "") -> Object:
        """The only object of a kind, or the one that is so called."""
        (found,) = [each for each in self.all(kind) if not name or each["metadata"]["name"] == name]
        return found

    def one_of(self, kind: str, component: str) -> Object:
        """The object of a kind that belongs to a component: `gateway`, `test` or `demo-...`."""
        label = "app.kubernetes.io/component"
        (found,) = [each for each in self.all(kind) if each["metadata"].get("labels", {}).get(label) == component]
        return found

    @property
    def name(self) -> str:
        """The name of the gateway's own objects."""
        return str(self.deployment["metadata"]["name"])

    @property
    def deployment(self) -> Object:
        return self.one_of("Deployment", "gateway")

    @property
    def pod(self) -> Object:
        """The spec of the gateway's pods."""
        spec: Object = self.deployment["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        found: list[Object] = [each for each in self.pod["containers"] if each["name"] == "gateway"]
        return found[0]

    @property
    def service(self) -> Object:
        return self.one_of("Service", "gateway")

    @property
    def checksum(self) -> str:
        """The annotation whose change replaces the pods."""
        return str(self.deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"])

    @property
    def configuration(self) -> str:
        """The gateway's YAML, from the ConfigMap that its pod mounts."""
        (volume,) = [each["configMap"] for each in self.pod["volumes"] if each["name"] == "config"]
        (item,) = volume["items"]
        return str(self.one("ConfigMap", volume["name"])["data"][item["key"]])

    @property
    def config(self) -> Config:
        """The configuration as the gateway reads it."""
        return loads(self.configuration, "gateway.yaml", catalog(), {})


class _EachKeyOnce(yaml.CSafeLoader):
    """YAML in which no map has a key twice: Kubernetes refuses such an object, or keeps either value."""


def _mapping(loader: _EachKeyOnce, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    assert not twice, f"{node.start_mark}: twice: {twice}"
    return dict(loader.construct_pairs(node, deep=True))


_EachKeyOnce.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def values(text: str) -> dict[str, Any]:
    """Values as Helm reads them from a file."""
    read: dict[str, Any] = helm_python.values_from_yaml(text)
    return read


@cache
def chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


def render(given: Mapping[str, Any] | str = "", name: str = RELEASE) -> Release:
    """The chart with these values, or with the text of a values file.

    Raises:
        helm_python.HelmError: the values break the schema, or a template refuses them.
    """
    read = values(given or "{}") if isinstance(given, str) else dict(given)
    manifests = chart().render(read, name=name, namespace=NAMESPACE)
    notes = "".join(text for path, text in manifests.items() if path.endswith("NOTES.txt"))
    objects = [
        each for path, text in sorted(manifests.items()) if not path.endswith("NOTES.txt") for each in _objects(text)
    ]
    return Release(tuple(objects), notes)


@cache
def _objects(manifest: str) -> tuple[Object, ...]:
    """Most values change few of the manifests."""
    return tuple(each for each in yaml.load_all(manifest, _EachKeyOnce) if each)


@cache
def rendered(name: str) -> Release:
    """The chart with one of FILES."""
    return render(FILES[name].read_text())


@cache
def servers() -> tuple[Object, ...]:
    """The stand-ins for model servers that docs/deploy.md uses."""
    return tuple(yaml.safe_load_all(SERVERS.read_text()))


def needed(release: Release) -> list[Object]:
    """The stand-ins that a release's configuration leads to."""
    names = set(re.findall(r"(?<![\w.-])([a-z]+):[0-9]+", release.configuration))
    return [each for each in servers() if each["metadata"]["name"] in names]
