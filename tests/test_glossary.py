"""The glossary of docs/architecture.md: what it names exists and is defined, and one class name means one thing."""

import pkgutil
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.documents.architecture import TERMS, definition

ROOT = Path(__file__).parent.parent
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


def public_classes() -> dict[str, list[str]]:
    """The modules of each public class name of the package. Classes with a leading underscore are not public."""
    found = defaultdict(list)
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in re.findall(r"^ *class ([^\W_]\w*)[(:\[]", path.read_text("utf-8"), re.MULTILINE):
            found[name].append(module)
    return dict(found)


CLASSES = public_classes()


def test_the_terms_are_in_alphabetical_order() -> None:
    assert list(TERMS) == sorted(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_defined_in_words_beside_its_own(term: str) -> None:
    """Whoever looks it up learns more than that it exists: a docstring that says less, or more than a reader of a table
    takes in, is no definition."""
    assert 3 <= len(set(re.findall(r"\w+", definition(term).lower())) - set(re.findall(r"\w+", term))) <= 50


@pytest.mark.parametrize("term", TERMS)
def test_what_the_glossary_names_exists(term: str) -> None:
    for path in TERMS[term]:
        assert exists(path), f"{path}, which the glossary names for {term!r}, does not exist"


def exists(path: str) -> bool:
    """Whether there is a module, class, function or variable of this name, or a field of a class."""
    above, _, name = path.rpartition(".")
    try:
        pkgutil.resolve_name(path)
    except AttributeError:
        return name in getattr(pkgutil.resolve_name(above), "__annotations__", {})
    except ImportError:
        return False
    return True


WORDS = {word: term for term in TERMS for word in term.split(", ")}
"""Each word with its row: a row may have two, such as `batch, row`."""


@pytest.mark.parametrize("word", [word for word in WORDS if "".join(word.title().split()) in CLASSES])
def test_a_term_that_is_a_class_leads_to_that_class(word: str) -> None:
    """`backend` is `Backend` and no other class. Only the folders count that the vocabulary is from."""
    name = "".join(word.title().split())
    modules = [each for each in CLASSES[name] if not each.startswith(FORMATS)]
    places = [f"{module}.{name}" for module in modules if module.split(".")[1] in VOCABULARY]
    assert not places or set(places) & set(TERMS[WORDS[word]]), f"{word!r} is a class: {', '.join(places)}"


def test_public_class_names_are_unique() -> None:
    """A name in `REPEATED` that is unique by now fails, too: it has to leave the list."""
    repeated = {name: modules for name, modules in CLASSES.items() if len(modules) > 1}
    unexpected = {name: modules for name, modules in repeated.items() if name not in REPEATED}
    assert not unexpected, f"classes of one name: {unexpected}; rename one, or say in REPEATED why both have it"
    assert not REPEATED.keys() - repeated.keys(), "REPEATED has names that only one class has"
