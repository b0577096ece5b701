"""Writes a commented configuration with a proposed form, a backend, listeners and a route."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.config.scalars import resolve
from gateway.core.frozen import frozen
from gateway.tools.probing.stanza import HEAD, WrittenListener, listener_lines, quoted
from gateway.tools.proposing.form import Place, ProposedForm, Template

_PLAIN = re.compile(r"[A-Za-z_$/][A-Za-z0-9_.$|/-]*(\?)?")
"""Scalars that YAML reads as the same text, even inside brackets."""
_FLOW_WIDTH = 90


@frozen
class ProposedServer:
    """The address of the server in the examples, and the path of the requests."""

    endpoint: str
    path: str
    is_guess: bool = False
    """True if the user gave no URL, so `endpoint` and `path` are guesses."""


def configuration(
    name: str, form: ProposedForm, server: ProposedServer, listeners: Sequence[WrittenListener], examples: int
) -> str:
    """Return the text of a configuration file, in which clients of `listeners` reach the server as the model `name`."""
    said = "1 example" if examples == 1 else f"{examples} examples"
    guess = "  # guessed: change it to the server's address" if server.is_guess else ""
    lines = [
        *HEAD.splitlines(),
        "",
        f"forms:                      # the server's JSON format, proposed from {said}; docs/forms.md describes forms",
        *_ready_protocol(form, server),
        *_form(name, form, server),
        "",
        *listener_lines(listeners),
        "",
        "backends:",
        f"  {name}:",
        "    protocol: json",
        f"    form: {name}",
        f"    endpoints: [{quoted(server.endpoint)}]{guess}",
        "    policies: [{timeout: {seconds: 60}}]",
        "",
        "routes:",
        f"  - match: {{model: {name}}}  # the model name that clients use",
        f"    backend: {name}",
    ]
    return "\n".join(lines) + "\n"


_V1_PATH = re.compile(r".*/v1/models/[^/]+:predict")


def _ready_protocol(form: ProposedForm, server: ProposedServer) -> Iterator[str]:
    """Yield a comment if the examples use a protocol that the gateway already supports."""
    members = ((form.request, "instances"), (form.response, "predictions"))
    is_v1 = all(isinstance(template, dict) and key in template for template, key in members)
    if is_v1 and _V1_PATH.fullmatch(server.path) is not None:
        yield "  # This is KServe V1: `protocol: v1-rest`, with a `signature` in the route, works without a form."


def _form(name: str, form: ProposedForm, server: ProposedServer) -> Iterator[str]:
    guess = "  # guessed: change it to the path of the requests" if server.is_guess else ""
    yield f"  {name}:"
    if form.takes_one_row:
        yield "    batch: each                      # one row per call: a batch is split into one call per row"
    yield "    infer:"
    yield f"      path: {_scalar(server.path)}{guess}"
    yield from _member("request", form.request, ("request",), form, 6)
    yield from _member("response", form.response, ("response",), form, 6)
    yield "    # ready: {path: /health}         # readiness path of the server, if any"
    yield "    # error: {error: $message}       # where the server puts the error text"
    yield "    tensors:                         # datatype and shape; -1: any size; as first dimension: the rows"
    for tensor, (datatype, shape) in form.tensors.items():
        dimensions = ", ".join(map(str, shape))
        note = "  # use FP64 if values can have decimals" if datatype.value == "INT64" else ""
        yield f"      {_scalar(tensor)}: {datatype.value} [{dimensions}]{note}"


def _member(key: str, template: Template, place: Place, form: ProposedForm, indent: int) -> Iterator[str]:
    """Yield the lines of one member. Each member of an object is on its own line; all other values are in brackets."""
    margin = " " * indent
    if isinstance(template, dict) and template:
        yield f"{margin}{_scalar(key)}:{_comment(form, place)}"
        for inner, each in template.items():
            yield from _member(inner, each, (*place, _bare(inner)), form, indent + 2)
        return
    flow = f"{margin}{_scalar(key)}: {_flow(template)}"
    if isinstance(template, list) and len(flow) > _FLOW_WIDTH and template[1:] == ["..."]:
        yield from _rows(key, template[0], place, form, indent)
        return
    yield flow + (_comment(form, place) or _comment_below(form, place))


def _rows(key: str, row: Template, place: Place, form: ProposedForm, indent: int) -> Iterator[str]:
    """Yield rows that are too long for one line."""
    margin = " " * indent
    yield f"{margin}{_scalar(key)}:{_comment(form, place)}"
    if not isinstance(row, dict):
        yield f"{margin}  - {_flow(row)}"
    else:
        lines = [
            line for inner, each in row.items() for line in _member(inner, each, (*place, 0, _bare(inner)), form, 0)
        ]
        for at, line in enumerate(lines):
            yield f"{margin}  {'- ' if at == 0 else '  '}{line}"
    yield f"{margin}  - ..."


def _bare(key: str) -> str:
    """Return the key in the examples that corresponds to a template key."""
    key = key.removesuffix("?")
    return key[1:] if key.startswith("$$") else key


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if not isinstance(value, str):
        return repr(value)
    is_plain = value == "..." or (_PLAIN.fullmatch(value) is not None and isinstance(resolve(value), str))
    return value if is_plain else quoted(value)


def _comment(form: ProposedForm, place: Place) -> str:
    return f"  # {form.notes[place]}" if place in form.notes else ""


def _comment_below(form: ProposedForm, place: Place) -> str:
    """Return the first note about a value inside brackets, whose members have no lines of their own."""
    below = (text for at, text in form.notes.items() if at[: len(place)] == place)
    return next((f"  # {text}" for text in below), "")
