"""`gateway init`: write a first configuration file, from options, from prompts on a terminal, or from examples."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly.forms import PREFIX, FormError, form, known
from gateway.cli import server_options
from gateway.cli.command import grouped
from gateway.cli.exit_codes import FAILED, USAGE, end
from gateway.cli.options import catalog
from gateway.cli.probed_server import end_unspoken, is_unrecognized, probed
from gateway.config import Config, ConfigError, loads_with_warnings
from gateway.core.frozen import replace
from gateway.runtime.process import run
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import SECONDS, Probed, stated
from gateway.tools.probing.stanza import WrittenBackend, WrittenListener, backend_name, configuration, listeners_of
from gateway.tools.proposing import text as proposed_text
from gateway.tools.proposing.examples import ExampleError, check, read_examples, server_at
from gateway.tools.proposing.form import NoProposalError, propose

EPILOG = (
    "Exit codes: 0 success, 1 the protocol of a server is unknown (the file has the other servers), or no form fits "
    "the examples, 2 wrong usage, or the file already exists, 3 a server is unreachable, 4 no response in time."
)
DEFAULT_LISTENER = "v2-rest=127.0.0.1:8080"
FORM = "legacy"
"""The name of the proposed form, backend and model if `--model` is not set."""


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The options of `gateway init`."""

    files: Annotated[
        list[str],
        typer.Argument(
            metavar="[REQUEST REPLY]...", help="With --example: JSON files, each request followed by its response."
        ),
    ] = field(default_factory=list)
    output: Annotated[Path, typer.Option(metavar="FILE", help="File to write; - is standard output.")] = Path(
        "gateway.yaml"
    )
    backends: Annotated[
        list[str],
        typer.Option(
            "--backend", metavar="ADDRESS", help="A model server, in the format of `gateway probe`. Repeatable."
        ),
    ] = field(default_factory=list)
    listeners: Annotated[
        list[str],
        typer.Option(
            "--listener",
            metavar="PROTOCOL=ADDRESS",
            help=f"Protocol and address for clients: {DEFAULT_LISTENER}. Repeatable.",
        ),
    ] = field(default_factory=list)
    models: server_options.ModelNames = field(default_factory=list)
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            help="Propose a form for a server with a custom JSON API, from examples. --model names the form and the "
            "model.",
        ),
    ] = False
    url: Annotated[str, typer.Option(metavar="URL", help="With --example: the URL of the requests.")] = ""
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False
    timeout: server_options.Seconds = SECONDS


@grouped(InitOptions)
def init(options: InitOptions) -> None:
    """Write a configuration file with comments. The command probes servers for their protocols and models. Without
    options, it prompts for the servers and the listeners on the terminal. With --example, it does not contact the
    server. Instead, it derives a form (a description of the server's JSON) from the examples, and checks the form
    against them."""
    if str(options.output) != "-" and options.output.exists() and not options.force:
        end(USAGE, f"{options.output} exists; --force overwrites it")
    if options.example:
        _of_examples(options)
        return
    if options.files or options.url:
        address = next((each for each in options.files if ":" in each), "ADDRESS")
        end(USAGE, f"files and --url need --example; to probe a server, use --backend {address}")
    servers, wanted = list(options.backends), list(options.listeners)
    if not servers:
        if not sys.stdin.isatty():
            end(USAGE, "give --backend ADDRESS or --example REQUEST REPLY, or run the command in a terminal")
        servers, wanted = _asked(wanted)
    run(_init(options.output, servers, _listeners(wanted), options))


def _asked(listeners: list[str]) -> tuple[list[str], list[str]]:
    """Prompt for servers and, if `listeners` is empty, for listeners. Return both."""
    servers: list[str] = []
    while not servers or (more := typer.prompt("another server (empty: no more)", default="", show_default=False)):
        servers.append(more if servers else typer.prompt("address of a model server (HOST:PORT or a URL)"))
    if not listeners:
        print(f"protocols for clients: {', '.join(known())}")
        text = typer.prompt("listeners (PROTOCOL=ADDRESS, separated by spaces)", default=DEFAULT_LISTENER)
        listeners = text.split()
    return servers, listeners


def _listeners(wanted: Sequence[str]) -> tuple[WrittenListener, ...]:
    return listeners_of([_listener(each) for each in wanted or [DEFAULT_LISTENER]])


def _listener(text: str) -> tuple[str, str]:
    protocol, separator, bind = text.partition("=")
    if not separator:
        end(USAGE, f"expected --listener PROTOCOL=ADDRESS, such as {DEFAULT_LISTENER}; got {text!r}")
    if protocol not in known():
        end(USAGE, f"unknown protocol in --listener {text!r}; known protocols: {', '.join(known())}")
    if known()[protocol].transport == "tcp" and "://" not in bind:
        bind = f"tcp://{bind}"
    return protocol, bind


async def _init(output: Path, servers: list[str], listeners: Sequence[WrittenListener], options: InitOptions) -> None:
    """Probe the servers, and write the file. An unreachable server ends the command. If a server's protocol is unknown,
    the command leaves the server out, and exits with FAILED after writing the file."""
    backends: list[WrittenBackend] = []
    left: list[Probed] = []
    for address in servers:
        found = await probed(address, ServerAccess(), options.timeout, options.models)
        # `spoken`: the protocols that responses show. `stated`: the protocol in the address, if responses cannot show
        # this protocol.
        best = found.spoken[0] if found.spoken else stated(found, options.models)
        if best is None:
            if not is_unrecognized(found):
                end_unspoken(found, address, "; no file written")
            left.append(found)
            continue
        if not found.spoken:
            print(f"{address}: the server responds, but no response shows {best.protocol}", file=sys.stderr)
        name = backend_name(best, [each.name for each in backends])
        backends.append(WrittenBackend(name, best, ServerAccess()))
        count = len(best.models.own)
        print(f"{address}: {best.protocol}, {count} model{'s' if count != 1 else ''}", file=sys.stderr)
    if not backends:
        end_unspoken(left[0], left[0].address, "; no file written")
    names = sorted({model.name for each in backends for model in each.spoken.models.own if model.name})
    reasons = [(each.address, each.text) for each in left]
    text = configuration([_for_one_model(each, names) for each in listeners], backends, reasons)
    _checked(text, output)
    _write(output, text)
    if left:
        end(FAILED, "\n".join(f"{address}: {why}; the file has no backend for it" for address, why in reasons))


def _of_examples(options: InitOptions) -> None:
    """Propose the form for the server that produced the examples, check the form against the examples, and write the
    file."""
    if options.backends:
        end(USAGE, "--backend cannot be used with --example; use --url URL")
    if len(options.models) > 1:
        end(USAGE, "with --example, give --model only once")
    name = options.models[0] if options.models else FORM
    try:
        examples, server = read_examples([Path(each) for each in options.files]), server_at(options.url)
    except ExampleError as error:
        end(USAGE, error)
    try:
        proposed = propose(examples)
        listeners = [_for_one_model(each, [name]) for each in _listeners(options.listeners)]
        text = proposed_text.configuration(name, proposed, server, listeners, len(examples))
        declared = _checked(text, options.output).forms[name]
        check(form(name, declared.document()), server.path, examples)
    except (NoProposalError, FormError) as error:
        end(FAILED, f"{error}; no file written")
    count = "the example" if len(examples) == 1 else f"all {len(examples)} examples"
    print(f"the form reads {count} correctly", file=sys.stderr)
    _write(options.output, text)


def _for_one_model(listener: WrittenListener, models: Sequence[str]) -> WrittenListener:
    """Return the listener. If its clients use a form without model names, and `models` contains only one model, set
    this model as the listener's model."""
    protocols = known()
    forms = [protocols[each] for each in listener.protocols if each.startswith(PREFIX)]
    names_all = all(each.names_models for each in forms)
    return listener if names_all or len(models) != 1 else replace(listener, model=models[0])


def _checked(text: str, output: Path) -> Config:
    """Return the configuration in `text`, and print its warnings. If the configuration has errors, print them and end
    the command."""
    try:
        config, warnings = loads_with_warnings(text, str(output), catalog())
    except ConfigError as error:
        end(USAGE, error)
    for warning in warnings:
        print(warning, file=sys.stderr)
    return config


def _write(output: Path, text: str) -> None:
    if str(output) == "-":
        print(text, end="")
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        end(USAGE, f"{output}: {error.strerror}")
    print(f"wrote {output}; to start the gateway: gateway serve --config {output}", file=sys.stderr)
