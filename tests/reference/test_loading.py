"""Models by name and by `module:attribute`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.reference import BUNDLED, find, load
from tests.reference.calls import call, doubles

MODULE = """
import gateway.reference

WEIGHTS = {"a": 1}

@gateway.reference.signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("y", "FP64", [-1, 2])])
def triple(x):
    return 3 * x

class Models:
    @staticmethod
    def plain(x):
        return x
"""

FILES = {
    "served_models.py": MODULE,
    "served_broken.py": "raise RuntimeError('no licence')",
    "served_leaving.py": "import sys; sys.exit(2)",
    "served_wanting.py": "import served_missing",
}


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules in a working directory that is not on the path yet."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_bundled_models_are_found_by_name() -> None:
    assert find("posterior") is BUNDLED["posterior"]


async def test_callables_are_found_in_the_working_directory() -> None:
    model = find("served_models:triple")
    assert find("served_models:triple").signature == model.signature
    assert model.name == "triple"
    assert (await call(model, {"x": doubles([[1, 2]])}))["y"].tolist() == [[3, 6]]


def test_an_attribute_may_be_one_of_a_class() -> None:
    assert load("served_models:Models.plain").name == "plain"


REFUSED = [
    ("doubel", "no model 'doubel' (did you mean 'double'?); expected identity, double, "),
    ("zebra", "no model 'zebra'; expected identity, double, "),
    ("served_models:", "'served_models:' does not name a callable; expected module:attribute"),
    (":triple", "':triple' does not name a callable; expected module:attribute"),
    ("served_modles:triple", "no module 'served_modles'; looked in "),
    ("served_models.sub:triple", "no module 'served_models.sub'; looked in "),
    ("served_models:tripel", "'served_models:tripel' has no attribute 'tripel' (did you mean 'triple'?)"),
    ("served_models:WEIGHTS", "'served_models:WEIGHTS' is of type dict; expected a callable"),
    ("served_broken:model", "module 'served_broken' failed to import: RuntimeError: no licence"),
    ("served_leaving:model", "module 'served_leaving' failed to import: SystemExit: 2"),
    ("served_wanting:model", "module 'served_wanting' failed to import: No module named 'served_missing'"),
    (".relative:model", "module '.relative' failed to import: TypeError: "),
]


@pytest.mark.parametrize(("path", "text"), REFUSED, ids=[path for path, _ in REFUSED])
def test_an_unknown_model_is_refused_with_the_reason(path: str, text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        find(path)
    assert str(caught.value).startswith(text)
