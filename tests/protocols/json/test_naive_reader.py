"""The reader of bodies against one that is as simple as can be: plain values, matched member by member."""

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.core.messages import NO_HEADERS
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor
from gateway.protocols.json.bodies import make_body
from gateway.protocols.json.form import JSON_TYPE
from gateway.protocols.json.templates import Role
from gateway.protocols.json.writing import MessageContents
from tests.limits import examples


class NaiveMisfitError(Exception):
    """The document is not as the template."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise NaiveMisfitError
    return dict(pairs)


def match(template: Any, value: Any, found: dict[str, list[Any]]) -> None:
    """Collect what stands at each `$name` of a template."""
    if isinstance(template, str) and template.startswith("$"):
        if template == "$_":
            return
        name, _, spelling = template[1:].partition("|")
        if (spelling == "scalar" and isinstance(value, list)) or (spelling == "texts" and not is_texts(value)):
            raise NaiveMisfitError
        found.setdefault(name, []).append(value)
    elif isinstance(template, dict):
        if not isinstance(value, dict):
            raise NaiveMisfitError
        known = {key.removesuffix("?"): (inner, key.endswith("?")) for key, inner in template.items()}
        if not set(value) <= set(known):
            raise NaiveMisfitError
        for key, (inner, optional) in known.items():
            if key in value:
                match(inner, value[key], found)
            elif not optional:
                raise NaiveMisfitError
    elif isinstance(template, list) and template[1:] == ["..."]:
        if not isinstance(value, list):
            raise NaiveMisfitError
        for each in value:
            match(template[0], each, found)
    elif value != template or type(value) is not type(template):
        raise NaiveMisfitError


def is_texts(value: list[Any]) -> bool:
    return bool(value) and all(isinstance(each, str) for each in value)


def in_rows(template: Any, name: str) -> bool:
    """Whether a tensor stands in rows."""
    if isinstance(template, dict):
        return any(in_rows(inner, name) for inner in template.values())
    return isinstance(template, list) and name in json.dumps(template)


def array(value: Any) -> "np.ndarray[Any, Any]":
    """A rectangular array of elements of one kind."""
    kinds = {float if type(each) is int else type(each) for each in leaves(value)}
    if len(kinds) > 1 or kinds & {dict, type(None)}:
        raise NaiveMisfitError
    try:
        found = np.array(value, object) if kinds == {str} else np.array(value)
    except ValueError as error:
        raise NaiveMisfitError from error
    if found.shape != shape(value):
        raise NaiveMisfitError
    return found


def leaves(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]


def shape(value: Any) -> tuple[int, ...]:
    """The shape of nested lists, all of one length at each level."""
    if not isinstance(value, list):
        return ()
    inner = {shape(each) for each in value}
    if len(inner) > 1:
        raise NaiveMisfitError
    return (len(value), *(inner.pop() if inner else ()))


def naive(template: Any, text: str) -> dict[str, "np.ndarray[Any, Any]"]:
    """The tensors in a document."""
    found: dict[str, list[Any]] = {}
    match(template, json.loads(text, object_pairs_hook=unique), found)
    tensors = {}
    for name, values in found.items():
        if f"${name}|scalar" in json.dumps(template) and not in_rows(template, name):
            tensors[name] = array(values)
        else:
            tensors[name] = array(values if in_rows(template, name) else values[0])
    return tensors


NUMBERS = st.integers(-5, 5) | st.sampled_from([0.5, -1.5])
SCALARS = NUMBERS | st.sampled_from(["a", "b:c", 'q"{'])


@st.composite
def values(draw: st.DrawFn) -> Any:
    """What may stand in the place of a tensor, mostly a rectangular list of numbers."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    element = draw(st.sampled_from([NUMBERS, st.sampled_from(["a", "b:c"]), SCALARS, st.booleans()]))
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(element)
    if kind == 4:
        return draw(st.sampled_from([None, [], [[1], [1, 2]], [[1], 2], {"a": 1}, [None]]))
    if kind == 1:
        return [draw(element) for _ in range(columns)]
    return [[draw(element) for _ in range(columns)] for _ in range(rows)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, str]:
    """A template and a document, which mostly fits it."""
    names = iter(f"t{at:02}" for at in range(100))

    def template(level: int) -> Any:
        kind = draw(st.integers(0, 6 if level else 2))
        if kind <= 1:
            return f"${next(names)}"
        if kind == 2 and level < 3:
            keys = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
            return {key + draw(st.sampled_from(["", "", "?"])): template(level + 1) for key in keys}
        if kind == 3:
            return [{"p": f"${next(names)}", "q": f"${next(names)}", "i": 1}, "..."]
        return draw(st.sampled_from(["$_=1", 1, "v", None, True, f"${next(names)}|scalar", f"${next(names)}|texts"]))

    def document(inner: Any) -> Any:
        if isinstance(inner, dict):
            members = {}
            for key, each in inner.items():
                if key.endswith("?") and draw(st.booleans()):
                    continue
                members[key.removesuffix("?")] = document(each)
            if draw(st.integers(0, 9)) == 0:
                members["z"] = 1
            return members
        if isinstance(inner, list):
            one, other = draw(values()), draw(SCALARS)
            return [{"p": one, "q": other, "i": 1} for _ in range(draw(st.integers(1, 3)))]
        if isinstance(inner, str) and inner.startswith("$"):
            if inner.startswith("$_"):
                return draw(st.sampled_from([1, {"x": [1, {"y": None}]}, "a:b"]))
            if inner.endswith("|texts"):
                return draw(st.lists(st.sampled_from(["a", "b:c"]), min_size=1, max_size=2))
            return draw(SCALARS) if inner.endswith("|scalar") else draw(values())
        return inner if draw(st.integers(0, 9)) else 2

    made = template(0)
    text = json.dumps(document(made))
    if draw(st.integers(0, 9)) == 0 and text.startswith('{"'):
        text = text[:-1] + ", " + text[1:]  # every key twice
    return made, text


@settings(deadline=None, max_examples=examples(150))
@given(cases())
def test_both_readers_find_the_same_tensors(case: tuple[Any, str]) -> None:
    template, text = case
    without_values = json.loads(json.dumps(template).replace("$_=1", "$_"))
    body = make_body(template, JSON_TYPE, Role.REQUEST, (), {}, ignore_unknown=False)
    try:
        expected = naive(without_values, text)
    except NaiveMisfitError:
        expected = None
    try:
        found = body.read(text.encode(), NO_HEADERS, Limits())
        # A list whose rows differ in length is no tensor; its rows are, which others test.
        tensors: tuple[Tensor, ...] | None = found.tensors if found.unequal is None else None
    except DecodeError as error:
        tensors, why = None, str(error)
        assert why
    if expected is None or tensors is None:
        assert (expected is None) == (tensors is None), (template, text)
        return
    assert len(tensors) == len(expected)
    for tensor, array_ in zip(tensors, expected.values(), strict=True):
        assert tensor.shape == array_.shape
        assert plain(tensor.array.tolist()) == array_.tolist()
    if "?" not in json.dumps(template):  # else positions might not identify them
        written = b"".join(map(bytes, body.write(MessageContents(tensors=tensors))))
        again = body.read(written, NO_HEADERS, Limits()).tensors
        assert [each.array.tolist() for each in again] == [each.array.tolist() for each in tensors]


def plain(value: Any) -> Any:
    """Elements of BYTES as texts."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value
