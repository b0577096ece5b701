"""The list of what differs between two configurations."""

import pytest

from gateway.config.changes import applicable, changes, not_applied
from tests.config.told import read

BASE = """
listeners:
  - {name: a, bind: "127.0.0.1:1", protocols: [v2-rest]}
  - {name: b, bind: "127.0.0.1:2", protocols: [v2-rest]}
backends:
  one: {protocol: v2-rest, endpoints: ["h:1", "h:2"], forward_headers: [x-token]}
  two: {protocol: v2-rest, endpoints: ["h:9"]}
routes:
  - {match: {model: r0}, backend: one}
  - {match: {model: r1}, backend: one}
  - {match: {model: r2}, backend: two}
"""


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("name: b,", "name: c,", ["listener 'c' added", "listener 'b' removed"]),
        ('127.0.0.1:2"', '127.0.0.1:3"', ["listener 'b': bind 127.0.0.1:2 -> 127.0.0.1:3 changed"]),
        ("name: a,", "name: a, model: m, prefix: {v2-rest: /p},", ["listener 'a': model, prefix changed"]),
        ('"h:1", "h:2"', '"h:2", "h:3"', ["backend 'one': endpoints + h:3 - h:1"]),
        ('"h:1", "h:2"', '"h:2", "h:1"', ["backend 'one': endpoints in another order"]),
        ("[x-token]", "[x-key]", ["backend 'one': forward_headers changed"]),
        ("model: r1", "model: r1b", ["route 'r1b' added", "route 'r1' removed"]),
        ("  - {match: {model: r0}, backend: one}\n", "", ["route 'r0' removed"]),
        ("model: r1}, backend: one", "model: r1}, backend: two", ["route 'r1': backend changed"]),
        ("routes:\n", "routes:\n  - {match: {model: r}, backend: two}\n", ["route 'r' added"]),
        ("routes:\n", "drain: {timeout: 1}\nready: all\nroutes:\n", ["drain changed", "ready changed"]),
        ("routes:\n", 'admin: {bind: "127.0.0.1:9"}\nroutes:\n', ["admin changed"]),
        ("routes:\n", "# nothing\nroutes:\n", []),
    ],
)
def test_each_difference_is_told(old: str, new: str, found: list[str]) -> None:
    assert BASE.count(old) == 1
    assert list(changes(read(BASE), read(BASE.replace(old, new)))) == found


def test_routes_that_move_are_told() -> None:
    lines = BASE.splitlines()
    moved = "\n".join([*lines[:-3], lines[-2], lines[-1], lines[-3]])
    assert list(changes(read(BASE), read(moved))) == ["routes in another order"]


def test_reference_servers_keep_the_values_they_started_with() -> None:
    running = read(BASE)
    loaded = read(BASE + 'reference: [{protocol: v2-rest, bind: "127.0.0.1:7", models: [double]}]')
    assert applicable(running, loaded) == running
    assert not_applied(running, loaded) == ("reference differs from the file, which needs a restart to take effect",)
    assert not_applied(running, running) == ()
