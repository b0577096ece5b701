"""`gateway call`: send one inference over any protocol, and print the response as a table on a terminal, otherwise as
V2 JSON."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gateway.bridge.settings import Cast
from gateway.cli import call_inputs, call_outputs, server_options
from gateway.cli.call_inputs import BadArgument
from gateway.cli.commands.completion import protocols
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.grouped import grouped
from gateway.cli.progress import progress
from gateway.client import AsyncClient, ClientError, ConnectError, ServerKind, Timeout, requests
from gateway.client.settings import TIMEOUT
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.runtime.process import run

EPILOG = "Exit codes: 0 success, 1 the call failed, 2 wrong usage, 3 the server is unreachable, 4 no response in time."


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """The request and the server of `gateway call`."""

    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[ADDRESS] [MODEL] [FILE]",
            help="ADDRESS: PROTOCOL://HOST:PORT, PROTOCOL+tls://HOST:PORT or PROTOCOL:///SOCKET. MODEL: the model's "
            "name on the server. FILE: a V2 inference request as JSON (- for standard input), or "
            "arrays in a .npy or .npz file.",
        ),
    ] = field(default_factory=list)
    protocol: Annotated[
        str, typer.Option(autocompletion=protocols, metavar="NAME", help="Protocol, if ADDRESS does not name it.")
    ] = ""
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="Same as the argument ADDRESS.")] = ""
    model: Annotated[str, typer.Option(metavar="NAME", help="Same as the argument MODEL.")] = ""
    assigned: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Input: x=1,2,3 or x=[[1,2],[3,4]] or x=@FILE.npy; an empty NAME assigns by position. Repeatable.",
        ),
    ] = field(default_factory=list)
    version: server_options.ModelVersion = ""
    parameters: server_options.Parameters = field(default_factory=list)
    select: server_options.Selected = field(default_factory=list)
    stream: Annotated[bool, typer.Option("--stream", help="Call a streaming model, and print each response.")] = False
    gradient: Annotated[bool, typer.Option("--gradient", help="Request the gradient; needs --set sens=...")] = False
    apply_jacobian: Annotated[
        bool, typer.Option("--apply-jacobian", help="Request the Jacobian times a vector; needs --set vec=...")
    ] = False
    apply_hessian: Annotated[
        bool, typer.Option("--apply-hessian", help="Request the Hessian action; needs --set sens=... --set vec=...")
    ] = False
    cast: server_options.Casting = "refuse"
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Timeout for the response, in seconds; 0: no timeout.", min=0)
    ] = TIMEOUT
    server: server_options.ServerOptions = field(default_factory=server_options.ServerOptions)
    flavor: server_options.Flavor = ""
    config: server_options.DeclaringFile = None
    as_json: Annotated[bool, typer.Option("--json", help="Print V2 JSON, also on a terminal.")] = False
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the outputs to FILE.npz, or a single output to FILE.npy.")
    ] = None


@grouped(CallOptions)
def call(options: CallOptions) -> None:
    """Send one inference to a model server. The command prints the response as a table on a terminal, and as V2 JSON
    otherwise."""
    operation = _operation(options)
    try:
        address, model, file = call_inputs.words(options.words, options.address, options.model)
        form = server_options.declared_form(options.config, address, options.protocol)
        client = AsyncClient(
            address,
            protocol=options.protocol or None,
            timeout=options.timeout or None,
            headers=call_inputs.headers(options.server.headers),
            key=options.server.key,
            tls=options.server.tls(),
            kind=ServerKind(options.flavor, form=form),
        )
        given = call_inputs.assigned(options.assigned, operation)
        with progress(f"reading {file}") if file not in ("", "-") else nullcontext():
            request = call_inputs.request(file, model)
        request = replace(
            request,
            operation=operation,
            version=options.version,
            inputs=call_inputs.combined(request.inputs, given),
            outputs=(*request.outputs, *map(RequestedOutput, options.select)),
            parameters={**request.parameters, **call_inputs.parameters(options.parameters)},
        )
        call_outputs.check(options.output)
    except (BadArgument, DecodeError, GatewayError, ValueError) as error:
        _fail(USAGE, error)
    as_json = options.as_json or not sys.stdout.isatty()
    run(_call(client, request, options.cast, options.output, as_json=as_json))


def _operation(options: CallOptions) -> Operation:
    """Return the operation that the options select."""
    asked = {
        Operation.STREAM: options.stream,
        Operation.GRADIENT: options.gradient,
        Operation.APPLY_JACOBIAN: options.apply_jacobian,
        Operation.APPLY_HESSIAN: options.apply_hessian,
    }
    wanted = [operation for operation, is_wanted in asked.items() if is_wanted]
    if len(wanted) > 1:
        _fail(USAGE, "only one of --stream, --gradient, --apply-jacobian and --apply-hessian is possible")
    return wanted[0] if wanted else Operation.INFER


async def _call(client: AsyncClient, request: Request, cast: Cast, output: Path | None, *, as_json: bool) -> None:
    show = call_outputs.json_line if as_json else call_outputs.table
    try:
        with progress("waiting for the response") as line:
            async with client:
                if not client.fits_to_metadata:  # servers of this protocol often report wrong metadata
                    request = await requests.typed(
                        request, partial(client.signature, request.model, version=request.version)
                    )
                async with aclosing(_responses(client, request, cast)) as responses:
                    async for response in responses:
                        if output is not None:
                            call_outputs.save(output, response)
                        else:
                            line.print(show(response, request))
    except ConnectError as error:
        _fail(UNREACHABLE, error)
    except Timeout as error:
        _fail(TIMED_OUT, error)
    except (ClientError, GatewayError) as error:
        _fail(FAILED, error)
    except (BadArgument, OSError) as error:
        _fail(USAGE, error)


async def _responses(client: AsyncClient, request: Request, cast: Cast) -> AsyncGenerator[Response, None]:
    if request.operation is Operation.STREAM:
        async with aclosing(client.ask_stream(request, cast=cast)) as responses:
            async for each in responses:
                yield each
        return
    response = await client.ask(request, cast=cast)
    assert isinstance(response, Response)
    yield response


def _fail(code: int, message: object) -> NoReturn:
    text = str(message)
    for argument, option in OPTIONS.items():
        text = text.replace(argument, option)
    end(code, text)


OPTIONS = {
    'call with cast="round" or cast="saturate"': "call with --cast round or --cast saturate",
    'cast="round" rounds, cast="saturate" also clips': "--cast round rounds, --cast saturate also clips",
    'cast="saturate" clips it': "--cast saturate clips it",
    "the limit that `timeout` sets": "the limit that --timeout sets, 0 for no limit",
    "call a model that streams with `stream`": "--stream shows each response",
    "add the argument `protocol`": "add --protocol NAME",
}
"""Advice in error messages of the Python client, and the same advice with the command's options."""
