"""The common parts of commands with options. `grouped` derives the options from the fields of a dataclass. The base
class Command shows the options' help, and suggests the right option for an unknown one, such as another program's
option.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from inspect import Parameter, Signature
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand

T = TypeVar("T")


def grouped(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Turn a function that takes the dataclass `kind` into a command. Each field is an option or an argument, annotated
    like a parameter of a Typer command. A field whose type is a dataclass stands for that dataclass's fields."""

    def decorated(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            command(_made(kind, values))

        parameters = list(_parameters(kind))
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorated


def _parameters(kind: Any) -> Iterator[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        if is_dataclass(hint):
            yield from _parameters(hint)
        else:
            made = each.default if each.default_factory is MISSING else each.default_factory()
            default = Parameter.empty if made is MISSING else made
            yield Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _made(kind: type[T], values: dict[str, Any]) -> T:
    hints = get_type_hints(kind)
    return kind(**{
        each.name: _made(hints[each.name], values) if is_dataclass(hints[each.name]) else values[each.name]
        for each in fields(kind)  # type: ignore[arg-type]
    })  # fmt: skip


UsageError: Any = typer.BadParameter.__mro__[1]
CommandError: Any = typer.BadParameter.__mro__[2]
"""Classes from Typer's private copy of click."""
_TAKES_OPTIONS = ("--config", "--admin")
"""Options whose values users often pass as arguments."""


class Command(TyperCommand):
    """A command that suggests the right option if the user passes another program's option, and that shows arguments
    with their metavars."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments like TyperCommand, but suggest an alternative in the error for an unknown option or a
        surplus argument."""
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            options = [name for each in self.params for name in each.opts]
            unknown = getattr(error, "option_name", None)
            if unknown is not None and error.message.startswith("No such option"):
                instead = _meant(unknown, options, takes_config="--config" in options)
                raise UsageError(f"No such option: {unknown}" + (f" ({instead})" if instead else ""), ctx) from None
            if error.message.startswith("Got unexpected extra argument"):
                error.message += "".join(f" (use {each})" for each in _TAKES_OPTIONS if each in options)
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words after the command name in the `Usage:` line."""
        return ["[OPTIONS]", *map(_shown, self._arguments())]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the lists of arguments and options."""
        arguments = [(each.metavar, each.help or "") for each in self._arguments()]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        options = [each.get_help_record(ctx) for each in self.get_params(ctx) if each.param_type_name == "option"]
        with formatter.section("Options"):
            formatter.write_dl([each for each in options if each is not None])

    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]


def _shown(argument: Any) -> str:
    metavar = str(argument.metavar)
    return metavar if argument.required or metavar.startswith("[") else f"[{metavar}]"


_OPTIONS = {
    "address": ("--bind", "--to"),
    "api-key": ("--key",),
    "cacert": ("--ca",),
    "cert": ("--certificate",),
    "clients": ("--in-flight",),
    "concurrency": ("--in-flight",),
    "config-file": ("--config",),
    "data": ("--set", "--input"),
    "duration": ("--seconds", "--timeout"),
    "file": ("--config",),
    "host": ("--bind",),
    "iterations": ("--requests",),
    "model-name": ("--model",),
    "num-requests": ("--requests",),
    "out": ("--output",),
    "port": ("--bind",),
    "qps": ("--rate",),
    "request-rate": ("--rate",),
    "rps": ("--rate",),
    "skip-verify": ("--insecure",),
    "time": ("--seconds", "--timeout"),
    "token": ("--key",),
    "url": ("--backend", "--to"),
    "users": ("--in-flight",),
    "verify": ("--insecure",),
}
"""Options of curl, wrk, hey, k6, Locust, perf_analyzer and similar programs, and the equivalent options of
`gateway`."""

_KEYS = {
    "backend": "backends",
    "concurrency": "backends.*.max_in_flight",
    "grpc-port": "listeners[].bind",
    "host": "listeners[].bind",
    "http-port": "listeners[].bind",
    "log-level": "log.level",
    "max-instances": "backends.*.servers.max",
    "min-instances": "backends.*.servers.min",
    "port": "listeners[].bind",
    "protocol": "listeners[].protocols",
    "replicas": "workers",
    "timeout": "backends.*.policies[].timeout",
    "tls-cert": "listeners[].tls.certificate",
    "workers": "workers",
}
"""Options of other model servers, and the equivalent configuration keys."""


def _meant(option: str, options: Collection[str], *, takes_config: bool) -> str:
    """Return advice for `option`, which is not one of the command's `options`, or an empty string if no option is
    similar. If `takes_config` is set, the advice can be a configuration key."""
    name = option.lstrip("-").partition("=")[0].replace("_", "-").lower()
    close = get_close_matches(f"--{name}", options, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]}?"
    name = next(iter(get_close_matches(name, [*_OPTIONS, *_KEYS], n=1, cutoff=0.85)), name)
    same = [each for each in _OPTIONS.get(name, ()) if each in options]
    if same:
        return f"use {same[0]}"
    if takes_config and name in _KEYS:
        return f"use the configuration key `{_KEYS[name]}`"
    return ""
