"""Shared parts of commands that query servers: tables, and options for connections, requests and reports."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly.forms import described_form
from gateway.bridge.settings import Cast
from gateway.cli import call_inputs
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end, shows_colours
from gateway.client.credentials import raw_headers
from gateway.client.settings import ServerArguments, ServerKind, Tls, named_protocol
from gateway.core.certificates import TlsFiles
from gateway.core.frozen import replace
from gateway.core.requests import Request, RequestedOutput
from gateway.core.tensors import Tensor
from gateway.tools.admin_port import AdminPort, AdminPortError, AdminTimeoutError, AdminUnreachableError
from gateway.tools.printed import printable
from gateway.tools.probing.asking import ServerAccess

Headers = Annotated[list[str], typer.Option("--header", metavar="NAME=VALUE", help="Header to send. Repeatable.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", envvar="GATEWAY_KEY", help="API key to send.", show_envvar=True)
]
Ca = Annotated[str | None, typer.Option("--ca", metavar="FILE", help="CA that signed the server's certificate (PEM).")]
Certificate = Annotated[str | None, typer.Option("--certificate", metavar="FILE", help="Client certificate (PEM).")]
CertificateKey = Annotated[
    str | None, typer.Option("--certificate-key", metavar="FILE", help="Private key for --certificate (PEM).")
]
ServerName = Annotated[
    str | None, typer.Option("--server-name", metavar="NAME", help="Name in the server's certificate.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Accept any server certificate.")]
Seconds = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Timeout for each response, in seconds.", min=0.01)
]
ModelNames = Annotated[
    list[str],
    typer.Option("--model", metavar="NAME", help="Model to query if the server does not list its models. Repeatable."),
]
DeclaringFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration that declares the form, if ADDRESS is json:FORM://HOST:PORT.",
        exists=True,
        dir_okay=False,
    ),
]
ModelVersion = Annotated[str, typer.Option("--model-version", metavar="VERSION", help="Version of the model.")]
Parameters = Annotated[
    list[str],
    typer.Option("--parameter", metavar="NAME=VALUE", help="Request parameter; VALUE is JSON or text. Repeatable."),
]
Selected = Annotated[
    list[str], typer.Option("--select", metavar="NAME", help="Output to request. Repeatable. Default: all outputs.")
]
Casting = Annotated[
    Cast, typer.Option("--cast", metavar="HOW", help="For inexact conversions: refuse, round or saturate.")
]
AdminUrl = Annotated[
    str, typer.Option("--admin", metavar="URL", help="Admin port of a running gateway: http://HOST:PORT.")
]
Flavor = Annotated[str, typer.Option("--flavor", metavar="NAME", help="Server type. Default: detected.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, also on a terminal.")]


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options of a command that sends inference requests, for all parts of a request except its inputs."""

    version: ModelVersion = ""
    parameters: Parameters = field(default_factory=list)
    select: Selected = field(default_factory=list)

    def completed(self, request: Request, given: Iterable[Tensor]) -> Request:
        """Return `request` with these options, and with the inputs `given` by `--set`. Raise BadArgument if a parameter
        is unsuitable."""
        return replace(
            request,
            version=self.version,
            inputs=call_inputs.combined(request.inputs, given),
            outputs=(*request.outputs, *map(RequestedOutput, self.select)),
            parameters={**request.parameters, **call_inputs.parameters(self.parameters)},
        )


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """Options for the reports of a command that compares or checks responses."""

    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML.")] = None
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write JSON; - is standard output.")
    ] = None

    @property
    def json_is_printed(self) -> bool:
        """True if standard output must contain only JSON."""
        return str(self.json_file) == "-"

    def write(self, junit: Callable[[], str], json: str) -> None:
        """Write the requested files. Exit with USAGE if a file cannot be written."""
        try:
            if self.junit is not None:
                self.junit.write_text(junit(), "utf-8")
            if self.json_file is not None and not self.json_is_printed:
                self.json_file.write_text(json, "utf-8")
        except OSError as error:
            end(USAGE, f"{error.filename}: {error.strerror}")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of a command that queries one server: headers and TLS."""

    headers: Headers = field(default_factory=list)
    key: Key = None
    ca: Ca = None
    certificate: Certificate = None
    certificate_key: CertificateKey = None
    server_name: ServerName = None
    insecure: Insecure = False

    def tls(self) -> Tls | None:
        """Return the TLS options, or None if all are unset."""
        asked = Tls(self.ca, self.certificate, self.certificate_key, self.server_name, verify=not self.insecure)
        return None if asked == Tls() else asked

    def arguments(self, address: str, protocol: str, flavor: str, config: Path | None) -> ServerArguments:
        """Return the client's arguments for the server at `address`. If the address names a form, `config` declares it.
        Raise BadArgument if a header is malformed."""
        kind = ServerKind(flavor, form=declared_form(config, address, protocol))
        headers = call_inputs.headers(self.headers)
        return ServerArguments(address, protocol or None, headers, self.key, self.tls(), kind=kind)

    def access(self) -> ServerAccess:
        """Return the options as a ServerAccess. Exit with USAGE if a header is malformed."""
        try:
            return ServerAccess(call_inputs.headers(self.headers), self.key, self.tls())
        except call_inputs.BadArgument as error:
            end(USAGE, error)


@dataclass(frozen=True, kw_only=True)
class AdminAccess:
    """Connection options for an admin port."""

    headers: Headers = field(default_factory=list)
    key: Key = None
    ca: Ca = None
    insecure: Insecure = False

    def port(self, url: str, seconds: float = 30.0) -> AdminPort:
        """Return the admin port at `url`, with a timeout of `seconds` for each response. Exit with USAGE if the URL or
        an option is invalid."""
        try:
            headers = raw_headers(call_inputs.headers(self.headers), self.key)
            tls = TlsFiles(authorities=self.ca or "")
            return AdminPort(url, headers, tls, is_verified=not self.insecure, seconds=seconds)
        except (call_inputs.BadArgument, ValueError) as error:
            end(USAGE, error)


def admin_exit_code(error: AdminPortError) -> int:
    """Return the exit code for an admin port that did not respond, or responded with an error."""
    if isinstance(error, AdminUnreachableError):
        return UNREACHABLE
    return TIMED_OUT if isinstance(error, AdminTimeoutError) else FAILED


def declared_form(config: Path | None, address: str, protocol: str = "") -> Mapping[str, object] | None:
    """Return the description of the form in `address` or `protocol`, from the configuration file `config`. Return None
    if the configuration does not declare the form, or if `config` is None. If the configuration has errors, print all
    errors and exit with 1."""
    if config is None:
        return None
    from gateway.cli.options import read  # importing the configuration reader takes longer than a call

    return described_form(read(config), protocol or named_protocol(address))


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    """Return the rows as a table. The header is bold if the terminal supports colors."""
    shown = [[printable(each) for each in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in shown) for at in range(len(head))]
    lines = ["  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in shown]
    return "\n".join([_bold(lines[0]), *lines[1:]])


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if shows_colours(sys.stdout) else text
