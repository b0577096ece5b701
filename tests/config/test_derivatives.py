"""`translate: {derivatives: ...}`: what `gateway check` refuses, and where."""

import pytest

from gateway.bridge.settings import Derivatives
from gateway.core.operations import Operation
from tests.config.told import problem, read

CONFIG = """
listeners: [{{name: science, bind: "127.0.0.1:0", protocols: [umbridge]}}]
backends: {{lab: {{protocol: umbridge, endpoints: ["http://127.0.0.1:4242"]}}}}
routes:
  - match: {{}}
    backend: lab
    translate:
      derivatives: {given}
"""


def test_all_keys() -> None:
    given = "{method: forward, order: 2, step: 1.0e-4, typical: 10, replace: [gradient], error: true, batch: 64}"
    [route] = read(CONFIG.format(given=given)).routes
    assert route.translate.derivatives == Derivatives("forward", 2, 1e-4, 10, (Operation.GRADIENT,), True, 64)


@pytest.mark.parametrize(
    ("given", "column", "text"),
    [
        ("{method: forward, order: 4}", 45, "method forward needs order 1 or 2, got 4"),
        ("{order: 1}", 28, "method central needs order 2 or 4, got 1"),
        ("{step: 0}", 27, "0"),
        ("{replace: [infer]}", 31, "infer"),
    ],
)
def test_what_is_refused_has_its_line_and_column(given: str, column: int, text: str) -> None:
    told = problem(CONFIG.format(given=given))
    assert told.startswith(f"8:{column}:")
    assert text in told
