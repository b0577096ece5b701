"""`models:` in the configuration: what is read, and what is refused with its line and column."""

from typing import Any

import pytest

from gateway.bridge.graphs.expressions import Reference
from gateway.bridge.graphs.graph import Condition
from gateway.bridge.settings import Derivatives
from gateway.config import Config
from gateway.config.changes import changes
from gateway.config.effective import effective
from gateway.config.graph_checks import DEEPEST
from tests.config import told
from tests.config.told import problem, problems, warnings

HEAD = """listeners: [{name: science, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-grpc, endpoints: ["127.0.0.1:1"]}}
"""
ANY = 'routes: [{match: {model: "*"}, backend: lab}]\n'


def config(models: str, routes: str = ANY) -> str:
    return f"{HEAD}{routes}models:\n{models}"


def read(models: str, routes: str = ANY) -> Config:
    return told.read(config(models, routes))


def one(steps: str, outputs: str = "{y: $a}", more: str = "") -> str:
    return f'  m:\n    inputs: {{x: "FP64 [2]"}}\n    steps: {steps}\n    outputs: {outputs}\n{more}'


def test_all_keys() -> None:
    graph = read(
        """
  m:
    description: two of them
    steps_at_once: 3
    inputs: {x: "FP64 [-1, 2]", k: "INT64 [-1, 1]"}
    steps:
      both: {concat: [$x, $x], axis: 1}
      a:
        model: lab-model
        version: "7"
        inputs: {x: $both, k: $k, c: [1, 2.5]}
        parameters: {level: 2, name: fine, flag: true, part: 0.5}
        when: {parameter: way, equals: left}
        fallback: [other]
    outputs: {y: {first: [$a.y, $both]}}
    derivatives: {method: forward, order: 2, step: 1.0e-4}
"""
    ).models["m"]
    assert graph.keys.derivatives == Derivatives("forward", 2, 1e-4)
    assert (graph.name, graph.description, graph.steps_at_once) == ("m", "two of them", 3)
    assert [str(each) for each in graph.inputs] == ["x FP64[-1,2]", "k INT64[-1,1]"]
    step = graph.steps["a"]
    assert (step.model, step.version, step.fallback) == ("lab-model", "7", ("other",))
    assert dict(step.parameters) == {"level": 2, "name": "fine", "flag": True, "part": 0.5}
    assert step.when == Condition("way", None, "equals", "left")
    assert step.inputs["k"] == Reference("", "k")


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (one("{a: {model: n, inputs: {x: $y}}}"), "7:39: unknown input or step 'y'; expected one of a, x"),
        (one("{a: {model: n, input: {x: $x}}}"), "7:27: unknown key 'input'; did you mean 'inputs'?"),
        (one("{a: {sum: [$x], weights: [0]}}"), "7:37: 'sum' weights must be finite, and their sum not 0"),
        (one("{a: {concat: [$x, $x], axes: 1}}"), "7:41: 'concat' no option 'axes'; expected axis"),
        (
            one("{a: {model: n, inputs: {x: $x}, when: {parameter: p, above: high}}}"),
            "7:72: expected a number, got 'high'",
        ),
        (
            one("{a: {model: n, inputs: {x: $b}}, b: {model: n, inputs: {x: $a, z: $x}}}"),
            "7:16: the step needs itself: a -> b -> a",
        ),
        (
            one("{a: {model: n, inputs: {x: $x}}, b: {model: n, inputs: {x: $x}}}"),
            "7:48: no output needs the step 'b'; remove it, or use it",
        ),
        (one("{a: {model: n, inputs: {x: $x}}}", "{}"), "8:14: expected at least one output"),
        ("  'm*': {outputs: {y: 1}}\n", "5:9: a model name cannot contain * ? [; use another name"),
        ("  m: {inputs: {x: FP64}, outputs: {y: $x}}\n", "5:19: expected a datatype and a shape"),
        ("  m: {}\n", "5:6: the key 'outputs' is missing"),
        (
            "  m: {inputs: {x: 'FP64 [2]'}, outputs: {y: $x}, derivatives: {method: central, order: 1}}\n",
            "5:88: method central needs order 2 or 4, got 1",
        ),
    ],
)
def test_what_is_refused_has_its_line_and_column(models: str, expected: str) -> None:
    line, column, text = expected.split(":", 2)
    found = problem(config(models))
    assert found.startswith(f"{line}:{column}: ")
    assert text in found


@pytest.mark.parametrize(
    ("routes", "model", "is_led"),
    [
        ("{match: {}, backend: lab}", "n", True),
        ("{match: {model: 'n*'}, backend: lab}", "n1", True),
        ("{match: {model: n}, backend: lab}", "n.gradient", True),
        ("{match: {model: n, operation: infer}, backend: lab}", "n", True),
        ("{match: {model: n, header: {x: y}}, backend: lab}", "n", True),
        ("{match: {model: n, version: '1'}, backend: lab}", "n", False),
        ("{match: {model: n, listener: science}, backend: lab}", "n", False),
        ("{match: {model: n, protocol: v2-rest}, backend: lab}", "n", False),
        ("{match: {model: n, path: /v2/*}, backend: lab}", "n", False),
        ("{match: {model: n, operation: metadata}, backend: lab}", "n", False),
        ("{match: {model: other}, backend: lab}", "n", False),
    ],
)
def test_a_route_must_lead_to_the_model_of_a_step(routes: str, model: str, is_led: bool) -> None:
    models = one(f"{{a: {{model: {model}, inputs: {{x: $x}}}}}}")
    if is_led:
        assert read(models, f"routes: [{routes}]\n").models
    else:
        found = problem(config(models, f"routes: [{routes}]\n"))
        assert found.startswith(f"7:24: no route matches {model!r} of a step")


def test_a_misspelt_model_and_fallback_get_a_suggestion() -> None:
    routes = "routes: [{match: {model: heat}, backend: lab}]\n"
    found = problems(config(one("{a: {model: heta, inputs: {x: $x}, fallback: [m2, heat]}}"), routes))
    assert found[0].endswith("did you mean 'heat'?")
    assert "7:58: no route matches 'm2'" in found[1]


def test_a_route_for_a_graph_takes_no_request() -> None:
    routes = "routes: [{match: {model: '*'}, backend: lab}, {match: {model: m}, backend: lab}]\n"
    assert problems(config(one("{a: {model: n, inputs: {x: $x}}}"), routes))[0].startswith(
        "3:63: 'm' is a model in `models`, which precedes all routes"
    )


def graph(name: str, *models: str, fallback: str = "") -> str:
    steps = ", ".join(
        f"s{at}: {{model: {each}, inputs: {{x: $x}}, fallback: [{fallback}]}}" for at, each in enumerate(models)
    )
    used = ", ".join(f"$s{at}" for at in range(len(models)))
    return f'  {name}: {{inputs: {{x: "FP64 [2]"}}, steps: {{{steps}}}, outputs: {{y: {{sum: [{used}]}}}}}}\n'


@pytest.mark.parametrize(
    ("models", "circle"),
    [
        (graph("a", "a"), "a -> a"),
        (graph("a", "b") + graph("b", "n", "a"), "a -> b -> a"),
        (graph("c", "a") + graph("a", "b") + graph("b", "n", fallback="a"), "a -> b -> a"),
        (graph("a", "b.gradient") + graph("b", "a"), "a -> b -> a"),
    ],
)
def test_graphs_that_call_themselves(models: str, circle: str) -> None:
    assert problem(config(models)).endswith(f"the model calls itself: {circle}; remove one of these calls")


SIGNED = """routes:
- match: {model: n}
  backend: lab
  signature: {inputs: [{name: x, datatype: FP64, shape: [-1, 2]}], outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]}
- {match: {model: "*"}, backend: lab}
"""
CALL = "{a: {model: n, inputs: {x: $x}}}"
FED = "{a: {model: n, inputs: {x: $x}}, b: {model: n, inputs: {x: $a}}}"
FP32_INTO_FP64 = "11:71: step 'b': $a is FP32, and the input is x FP64[-1,2]; `cast` changes it"


def batched(name: str, steps: str, outputs: str = "{y: $a}") -> str:
    return f'  {name}:\n    inputs: {{x: "FP64 [-1, 2]"}}\n    steps: {steps}\n    outputs: {outputs}\n'


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        (batched("m", "{a: {model: n, inputs: {z: $x}}}"), "11:39: step 'a': model 'n' has no input 'z'; expected x"),
        (batched("m", "{a: {model: n}}", "{y: $a, x: $x}"), "11:16: step 'a': model 'n' needs the input x FP64[-1,2]"),
        (batched("m", FED, "{y: $b}"), FP32_INTO_FP64),
        (batched("m", FED.replace("$a", "{slice: $x, axis: 1, to: 1}"), "{y: {sum: [$a, $b]}}"),
         "11:71: step 'b': slice($x; axis 1, to 1) is FP64 [-1, 1], and the input is x FP64[-1,2]"),
        (batched("m", CALL, "{y: $a.z}"), "12:18: model 'n' of step 'a' has no output 'z'; expected y"),
        (batched("m", CALL, "{y: {sum: [$a, $x]}}"),
         "12:18: 'sum': tensors of different datatypes, FP32 [-1, 2] and FP64 [-1, 2]; `cast` one of them"),
        (batched("m", "{a: {model: inner, inputs: {x: $x}}}", "{y: {sum: [$a, $x]}}") + batched("inner", CALL),
         "12:18: 'sum': tensors of different datatypes, FP32 [-1, 2] and FP64 [-1, 2]; `cast` one of them"),
    ],
)  # fmt: skip
def test_types_are_compared_with_declared_signatures(models: str, expected: str) -> None:
    """Where they are in the file, no server needs to be asked."""
    assert problem(config(models, SIGNED)) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{model: n}", "{model: other}"),
        ("{model: n}", "{model: n, header: {x-lab: a}}"),
        ("{model: n}", "{model: n, version: '2'}"),
        ("backend: lab\n", "backend: lab\n  translate: {rename: {inputs: [{client: x, backend: z}]}}\n"),
        ("backend: lab\n", "backend: lab\n  translate: {constants: [{name: k, datatype: FP64, shape: [], data: 1}]}\n"),
        (", outputs: [{name: y, datatype: FP32, shape: [-1, 2]}]", ""),
    ],
)
def test_what_no_signature_says_is_compared_when_models_are_asked(before: str, after: str) -> None:
    assert problem(config(batched("m", FED, "{y: $b}"), SIGNED)) == FP32_INTO_FP64
    routes = SIGNED.replace(before, after)
    assert routes != SIGNED
    assert read(batched("m", FED, "{y: $b}"), routes).models


def test_graphs_within_graphs_are_bounded() -> None:
    nested = "".join(graph(f"g{at}", f"g{at + 1}" if at < DEEPEST - 1 else "n") for at in range(DEEPEST))
    assert len(read(nested).models) == DEEPEST
    assert problem(config(graph("top", "g0") + nested)) == f"5:3: {DEEPEST + 1} nested models; the maximum is {DEEPEST}"


def test_a_diamond_of_graphs_is_no_circle() -> None:
    assert read(graph("top", "left", "right") + graph("left", "end") + graph("right", "end") + graph("end", "n")).models


def test_ten_thousand_steps_are_refused_and_a_thousand_read() -> None:
    def steps(count: int) -> str:
        written = "".join(
            f"      s{at}: {{model: n, inputs: {{x: {f'$s{at - 1}' if at else '$x'}}}}}\n" for at in range(count)
        )
        return f'  m:\n    inputs: {{x: "FP64 [2]"}}\n    steps:\n{written}    outputs: {{y: $s{count - 1}}}\n'

    assert len(read(steps(1000)).models["m"].steps) == 1000
    assert problem(config(steps(10_000))) == "8:7: 10000 steps; a graph has at most 1000"


def test_what_a_reload_has_changed() -> None:
    """Constants are arrays, which numpy does not compare as others."""
    steps = "{a: {model: n, inputs: {x: {sum: [$x, [1, 2]]}, c: {concat: [$x, [0.5]]}, t: [$$a]}}}"
    before, same = read(one(steps)), read(one(steps))
    assert changes(before, same) == ()
    assert changes(before, read(one(steps.replace("[1, 2]", "[1, 3]")))) == ("models changed",)
    assert before.models == same.models


def test_the_configuration_in_use_is_shown_as_it_is_written() -> None:
    shown: Any = effective(read(one("{a: {model: n, inputs: {x: {sum: [$x, [1, 2]]}}}, b: {sum: [$a]}}", "{y: $b}")))
    assert shown["models"]["m"] == {
        "outputs": {"y": "$b"},
        "inputs": {"x": "FP64 [2]"},
        "steps": {
            "a": {
                "model": "n", "version": "", "inputs": {"x": {"sum": ["$x", [1, 2]]}}, "parameters": {}, "when": None,
                "fallback": [],
            },
            "b": {"sum": ["$a"]},
        },
        "description": "",
        "steps_at_once": 16,
        "derivatives": None,
    }  # fmt: skip


def test_a_graph_whose_requests_make_too_many_calls_is_a_warning() -> None:
    step = "{model: n, inputs: {x: $x}}"
    inner = one(f"{{a: {step}, b: {step}}}", "{y: {sum: [$a, $b]}}")
    outer = one("{a: %s, b: %s, c: %s}" % ((step.replace("n,", "m,"),) * 3), "{y: {sum: [$a, $b, $c]}}")
    outer = outer.replace("  m:", "  outer:")
    of_condition = "{model: outer, inputs: {x: $x}, when: {parameter: p, equals: 1}}"
    sometimes = one(f"{{a: {step}, b: {of_condition}}}", "{y: {first: [$b, $a]}}").replace("  m:", "  sometimes:")

    def warned(most: int) -> list[str]:
        found = warnings(f"{config(inner + outer + sometimes)}limits: {{calls_per_request: {most}}}\n")
        return [each.partition(" warning: ")[2] for each in found if "calls_per_request" in each]

    assert warned(9) == []  # three steps, and two for each
    assert warned(8) == [
        "a request for all outputs of 'outer' makes 9 calls, but limits.calls_per_request allows 8; "
        "raise the limit, or make fewer calls"
    ]
