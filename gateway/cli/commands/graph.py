"""`gateway graph`: print a model graph as text or as a picture."""

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gateway.bridge.graphs.graph import Graph
from gateway.bridge.graphs.picture import as_dot, as_svg, as_text, picture
from gateway.cli.exit_codes import misuse
from gateway.cli.options import ConfigFile, read


class Format(StrEnum):
    """The output format of a graph."""

    TEXT = "text"
    DOT = "dot"
    SVG = "svg"


def graph(
    config: ConfigFile,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name in `models`. Default: the only model there.")
    ] = "",
    format: Annotated[
        Format, typer.Option("--format", help="Text, DOT for Graphviz, or an SVG document.")
    ] = Format.TEXT,
    output: Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write to FILE.")] = None,
) -> None:
    """Print a model graph. Shows the steps in order, and the tensors between the steps. The command sends nothing."""
    found = _named(read(config).models, model)
    if format is Format.TEXT:
        text = "\n".join([*as_text(found), ""])
    elif format is Format.DOT:
        text = "\n".join([*as_dot(picture(found)), ""])
    else:
        text = as_svg(picture(found))
    if output is None:
        print(text, end="")
    else:
        output.write_text(text)


def _named(models: Mapping[str, Graph], name: str) -> Graph:
    if not models:
        misuse("the configuration has no `models`")
    if not name and len(models) == 1:
        return next(iter(models.values()))
    if name not in models:
        close = get_close_matches(name, models, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; expected {', '.join(models)}"
        misuse(f"no model {name!r} in `models`{hint}" if name else f"expected one of {', '.join(models)}")
    return models[name]
