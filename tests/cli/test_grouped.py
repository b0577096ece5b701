"""Options of a command as a dataclass."""

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from gateway.cli.command import grouped


@dataclass(frozen=True, kw_only=True)
class Inner:
    names: Annotated[list[str], typer.Option("--name")] = field(default_factory=list)
    loud: Annotated[bool, typer.Option("--loud")] = False


@dataclass(frozen=True, kw_only=True)
class Outer:
    file: Annotated[str, typer.Argument(metavar="FILE")]
    inner: Inner = field(default_factory=Inner)
    count: Annotated[int, typer.Option("--count", min=1, help="So many.")] = 3


def result(*arguments: str) -> tuple[int, str, list[Outer]]:
    made: list[Outer] = []

    @grouped(Outer)
    def command(options: Outer) -> None:
        """Do it."""
        made.append(options)

    application = typer.Typer(add_completion=False, rich_markup_mode=None)
    application.command()(command)
    found = CliRunner().invoke(application, arguments)
    return found.exit_code, found.output, made


def test_fields_are_options_and_those_of_inner_dataclasses_stand_in_their_place() -> None:
    given = result("f", "--name", "a", "--name", "b", "--loud", "--count", "5")
    assert given == (0, "", [Outer(file="f", inner=Inner(names=["a", "b"], loud=True), count=5)])
    _, text, _ = result("--help")
    assert "Do it." in text
    assert text.index("--name") < text.index("--loud") < text.index("--count") < text.index("So many.")


def test_defaults_are_those_of_the_fields() -> None:
    assert result("f") == (0, "", [Outer(file="f")])


def test_a_field_without_default_is_required_and_values_are_checked() -> None:
    assert result()[0] == 2
    assert result("f", "--count", "0")[0] == 2
