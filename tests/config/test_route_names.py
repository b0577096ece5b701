"""The names of routes: given, or made of the match."""

from typing import Any

import pytest

from gateway.config.effective import effective
from tests.config.told import problem, read

TEXT = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, endpoints: ["127.0.0.1:1"]}}
routes:
"""


def config(*routes: str) -> str:
    return TEXT + "".join(f"  - {{{each}, backend: lab}}\n" for each in routes)


def names(*routes: str, **environ: str) -> list[str]:
    return [each.name for each in read(config(*routes), **environ).routes]


@pytest.mark.parametrize(
    ("match", "name"),
    [
        ("{}", "any"),
        ("{model: iris}", "iris"),
        ('{model: "*"}', "*"),
        ("{protocol: v2-rest, model: iris}", "iris,protocol=v2-rest"),
        ("{listener: http, version: '1', operation: infer}", "listener=http,version=1,operation=infer"),
        ("{path: /v2/models/m/infer}", "path=/v2/models/m/infer"),
        ('{header: {X-Canary: "*", x-b: "*"}}', "header=x-canary+x-b"),
        ("{input: {name: x, datatype: FP32, shape: [-1, 4]}}", "input=x:FP32[-1,4]"),
        ("{input: {shape: [2]}}", "input=[2]"),
        ("{input: {name: x}}", "input=x"),
        ("{model: models.a}", "model=models.a"),
    ],
)
def test_without_a_name_the_match_is_the_name(match: str, name: str) -> None:
    assert names(f"match: {match}") == [name]


def test_a_given_name_is_kept() -> None:
    assert names("name: flowers, match: {model: iris}") == ["flowers"]


def test_values_of_headers_are_not_in_names_and_still_tell_them_apart() -> None:
    red, blue = names(
        'match: {header: {x-team: planted-red}}', 'match: {header: {x-team: "${TEAM}"}}', TEAM="planted-blue"
    )  # fmt: skip
    assert red != blue
    for each in (red, blue):
        assert each.startswith("header=x-team~")
        assert "planted" not in each


def test_a_name_does_not_change_when_a_route_is_added_above() -> None:
    below = ["match: {model: a}", "match: {header: {x-team: red}}", f"match: {{model: {'m' * 100}}}", "match: {}"]
    assert names("match: {model: new}, name: first", *below) == ["first", *names(*below)]


def test_long_names_and_those_that_cannot_be_printed_are_cut_and_stay_apart() -> None:
    first, second = names(f"match: {{model: {'m' * 100}1}}", f"match: {{model: {'m' * 100}2}}")
    assert (len(first), len(second), first != second) == (80, 80, True)
    [hidden] = names(r'match: {model: "a\u202eb\n"}')
    assert hidden.isprintable()
    assert hidden.startswith("a?b?~")


@pytest.mark.parametrize(
    ("routes", "error"),
    [
        (
            ["match: {model: a}, name: x", "match: {model: b}, name: x"],
            "6:31: routes[0] is also called 'x'; choose another name",
        ),
        (
            ["match: {model: a}", "match: {model: b}, name: a"],
            "6:31: routes[0] is also called 'a'; choose another name",
        ),
        (
            ["match: {model: b}, name: a", "match: {model: a}"],
            "6:6: routes[0] is also called 'a', the text of this match; add a `name` to this route",
        ),
        (
            ["match: {}, name: models.a"],
            "5:23: names that begin with models. or backends. are reserved; choose another name, got 'models.a'",
        ),
        (
            ["match: {}, name: ' a'"],
            "5:23: expected printable characters, without spaces at the beginning and the end, got ' a'",
        ),
        (["match: {}, name: ''"], "5:23: must not be empty"),
    ],
)
def test_names_that_cannot_be(routes: list[str], error: str) -> None:
    assert problem(config(*routes)) == error


def test_the_effective_configuration_has_no_name_that_is_made_of_a_secret() -> None:
    shown: Any = effective(read(config("match: {model: '${MODEL}'}", "match: {}, name: rest"), MODEL="planted"))
    assert [each["name"] for each in shown["routes"]] == ["", "rest"]
