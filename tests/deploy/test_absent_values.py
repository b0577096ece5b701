"""Every value can be null or empty: that removes it, or it is refused with what belongs there. In a values file a key
is null, too, if all lines below it are commented out."""

import json
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from tests.deploy.rendered import CHART, FILES, Release, render
from tests.deploy.test_objects import VERSIONS, validate

pytestmark = pytest.mark.long

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
EMPTY = {dict: {}, list: [], str: "", int: 0, float: 0, bool: False}
EVERYTHING = """
keda: {authentication: scaler}
replicaCount: 2
config: {admin: {bind: "0.0.0.0:9090", auth: {}}, auth: {keys: {file: /etc/gateway-keys/keys.yaml}}}
tls: {clientCaSecret: clients, certManager: {enabled: true, issuerRef: {name: lab}}}
test: {keySecret: {name: tester}, tls: {clientSecret: tester}}
"""
OTHER = "existingConfigMap: {name: own, listeners: [{name: http, port: 8080, protocols: [v2-rest]}]}"


def merged(one: Any, other: Any) -> Any:
    """Values as Helm merges them, with the nulls kept."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return other
    return {**one, **{key: merged(one.get(key, {}), value) for key, value in other.items()}}


VALUES = merged(merged(DEFAULTS, yaml.safe_load(FILES["all-values"].read_text())), yaml.safe_load(EVERYTHING))
OBJECTS_OF_KUBERNETES = (("podSecurityContext",), ("securityContext",), ("affinity",))
"""Kubernetes refuses what is missing in these."""


def places(value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if above:
        yield above
    if isinstance(value, dict) and above not in OBJECTS_OF_KUBERNETES:
        for key, child in value.items():
            yield from places(child, (*above, key))


def at(value: Any, place: tuple[str, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def nested(place: tuple[str, ...], value: Any) -> Any:
    return nested(place[:-1], {place[-1]: value}) if place else value


def absent(given: dict[str, Any], section: str) -> Iterator[dict[str, Any]]:
    """The values `given` with each place of a section null, and empty."""
    for place in places({section: given[section]}):
        yield merged(given, nested(place, None))
        empty = EMPTY.get(type(at(given, place)))
        if empty not in (None, {}):  # Helm merges an empty map with the defaults
            yield merged(given, nested(place, empty))


def check(release: Release, known: set[str]) -> None:
    for each in release.objects:
        written = json.dumps(each)
        assert "<nil>" not in written
        assert "%!" not in written
        if written not in known and each["kind"] != "Certificate":  # cert-manager's
            validate(each, VERSIONS[-1])
            known.add(written)
    assert "<nil>" not in release.notes
    assert "%!" not in release.notes


EXISTING = merged(DEFAULTS, yaml.safe_load(OTHER))


@pytest.mark.parametrize(
    ("given", "section"),
    [*((VALUES, section) for section in DEFAULTS if section != "existingConfigMap"), (EXISTING, "existingConfigMap")],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_value_that_is_null_or_empty_is_removed_or_refused_in_words(given: dict[str, Any], section: str) -> None:
    known = {json.dumps(each) for each in render(given).objects}
    for values in absent(given, section):
        try:
            check(render(values), known)
        except helm_python.HelmError as error:
            told = section if isinstance(error, helm_python.HelmValuesError) else "execution error at"  # `fail` says so
            assert told in str(error)  # noqa: PT017 - most values are not refused
