"""`gateway conformance`: check a server against its protocol's specification."""

import sys
from dataclasses import dataclass, field
from typing import Annotated

import typer

from gateway.cli import server_options
from gateway.cli.command import grouped
from gateway.cli.commands.completion import protocols
from gateway.cli.exit_codes import FAILED, UNREACHABLE, USAGE, end, shows_colours
from gateway.cli.progress import progress
from gateway.tools.conformance import MODULES, MissingPackageError, suite
from gateway.tools.conformance.check import Options, Outcome, Transcript, Unreachable, run
from gateway.tools.conformance.inputs import parse_input
from gateway.tools.conformance.report import Report, as_json, as_junit, lines, summary


@dataclass(frozen=True, kw_only=True)
class ConformanceOptions:
    """The server, the checks and the reports of `gateway conformance`."""

    protocol: Annotated[
        str,
        typer.Option(autocompletion=protocols, metavar="NAME", help=f"Protocol to check: {', '.join(MODULES)}."),
    ]
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS", help="HOST:PORT, PROTOCOL://HOST:PORT, or a URL such as http://HOST:PORT/PATH."
        ),
    ] = ""
    model: Annotated[
        str, typer.Option(metavar="NAME", help="Model to call. Default: the first model that the server lists.")
    ] = ""
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=DATATYPE[SHAPE][:VALUES]",
            help="Input of the model, such as x=FP64[-1,3] or x=FP64[1,3]:0.5,1,2. Repeatable. Default: the inputs in "
            "the server's metadata.",
        ),
    ] = None
    only: Annotated[
        str, typer.Option(metavar="PATTERN", help="Run only the checks that match a glob, such as error or infer.*.")
    ] = ""
    list_checks: Annotated[bool, typer.Option("--list", help="Print the checks and exit.")] = False
    timeout: Annotated[
        float, typer.Option(min=0.001, metavar="SECONDS", help="Timeout for each response, in seconds.")
    ] = 10.0
    reports: server_options.ReportFiles = field(default_factory=server_options.ReportFiles)


@grouped(ConformanceOptions)
def conformance(options: ConformanceOptions) -> None:
    """Check a server against its protocol's specification. The server can also be a gateway. Exit codes: 0 no check
    failed, 1 a check failed, 2 wrong usage, 3 the address is unreachable."""
    protocol = options.protocol
    if protocol not in MODULES:
        end(USAGE, f"no protocol {protocol!r}; expected {', '.join(MODULES)}")
    try:
        chosen = suite(protocol)
        settings = Options(options.model, tuple(map(parse_input, options.inputs or ())), options.timeout)
    except (MissingPackageError, ValueError) as error:
        end(USAGE, error)
    checks = chosen.selected(options.only)
    if not checks:
        end(USAGE, f"no check matches {options.only!r}; --list prints all checks")
    width = max(len(each.id) for each in checks)
    if options.list_checks:
        for each in checks:
            print(f"{each.id:{width}}  {each.rule} ({each.section})")
        return
    if not options.address:
        end(USAGE, "no address; expected HOST:PORT or a URL")
    address = options.address.removeprefix(f"{protocol}://")  # in the format of the other commands
    quiet = options.reports.json_is_printed
    colours = shows_colours(sys.stdout)
    transcript, outcomes = Transcript(), list[Outcome]()
    try:
        with progress(f"checking {address}") as line:
            checked = line.counted(len(checks), "checks")
            for outcome in run(chosen, address, settings, checks, transcript):
                outcomes.append(outcome)
                checked()
                if not quiet:
                    line.print("\n".join(lines(outcome, width, colours)))
    except Unreachable as error:
        end(UNREACHABLE, f"{address}: {error}")
    except ValueError as error:
        end(USAGE, error)
    report = Report(protocol, address, tuple(outcomes), transcript.requests)
    json = as_json(report)
    options.reports.write(lambda: as_junit(report), f"{json}\n")
    print(json if quiet else summary(report))
    if report.failed:
        raise SystemExit(FAILED)
