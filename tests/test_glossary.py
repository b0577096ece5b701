"""The glossary in docs/architecture.md against the code: what it names exists, and one class name means one thing."""

import pkgutil
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
SECTION = PAGE.split("## Glossary\n")[1].split("\n## ")[0]
ROWS = {
    term: re.findall(r"`([^`]+)`", where)
    for term, where in re.findall(r"^\| ([^|`]+) \| [^|]+ \| ([^|]+) \|$", SECTION, re.MULTILINE)[1:]
}
"""Each term and the paths in its last column."""
VOCABULARY = ("core", "bridge", "routing")
"""The folders whose classes are the glossary's words."""
FORMATS = ("gateway.core.http2", "gateway.core.json", "gateway.core.protobuf")
"""Folders in them whose words are those of a specification."""

REPEATED = {
    "ErrorCode": "the word of the specifications of HTTP/2 and of MIP",
    "HeadReader": "one per version of HTTP",
    "Payload": "each protocol's own word for the form of the tensors in a message",
    "Request": "GraphPipe's schema has a table of this name",
    "Settings": "one per policy: its keys in YAML",
    "Tensor": "GraphPipe's schema has a table of this name",
}
"""Public class names that occur more than once in the package, each with the reason."""


CLASS = re.compile(r"^ *class ([^\W_]\w*)[(:\[]", re.MULTILINE)


def public_classes() -> dict[str, list[str]]:
    """The modules of each public class name of the package. Classes with a leading underscore are not public."""
    found = defaultdict(list)
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in CLASS.findall(path.read_text("utf-8")):
            found[name].append(module)
    return dict(found)


CLASSES = public_classes()


def test_the_glossary_has_terms_in_alphabetical_order() -> None:
    assert "wire form" in ROWS
    assert list(ROWS) == sorted(ROWS)


@pytest.mark.parametrize("term", ROWS)
def test_what_the_glossary_names_exists(term: str) -> None:
    assert ROWS[term], f"the glossary says of {term!r} no class or module"
    for path in ROWS[term]:
        assert exists(path), f"{path}, which the glossary names for {term!r}, does not exist"


def exists(path: str) -> bool:
    try:
        pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("term", [term for term in ROWS if "".join(term.title().split()) in CLASSES])
def test_a_term_that_is_a_class_leads_to_that_class(term: str) -> None:
    """`backend` is `Backend` and no other class. Only the folders count that the vocabulary is from."""
    name = "".join(term.title().split())
    modules = [each for each in CLASSES[name] if not each.startswith(FORMATS)]
    places = [f"{module}.{name}" for module in modules if module.split(".")[1] in VOCABULARY]
    assert not places or set(places) & set(ROWS[term]), f"{term!r} is a class: {', '.join(places)}"


def test_public_class_names_are_unique() -> None:
    """A name in `REPEATED` that is unique by now fails, too: it has to leave the list."""
    repeated = {name: modules for name, modules in CLASSES.items() if len(modules) > 1}
    unexpected = {name: modules for name, modules in repeated.items() if name not in REPEATED}
    assert not unexpected, f"classes of one name: {unexpected}; rename one, or say in REPEATED why both have it"
    assert not REPEATED.keys() - repeated.keys(), "REPEATED has names that only one class has"
