"""`gateway call`: send one inference over any protocol, and print the response as a table on a terminal, otherwise as
V2 JSON."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer

from gateway.bridge.settings import Cast
from gateway.cli import call_inputs, server_options
from gateway.cli.call_inputs import ARRAY_FILES, BadArgument
from gateway.cli.command import grouped
from gateway.cli.commands.completion import protocols
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.progress import progress
from gateway.client import AsyncClient, ClientError, ConnectError, Timeout, requests, translate
from gateway.client.outputs import Array
from gateway.client.settings import TIMEOUT
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import Tensor
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
    request: server_options.RequestOptions = field(default_factory=server_options.RequestOptions)
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
        server = options.server.arguments(address, options.protocol, options.flavor, options.config)
        client = AsyncClient(**vars(server), timeout=options.timeout or None)
        given = call_inputs.assigned(options.assigned, operation)
        with progress(f"reading {file}") if file not in ("", "-") else nullcontext():
            request = call_inputs.request(file, model)
        request = options.request.completed(replace(request, operation=operation), given)
        _check_output(options.output)
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
    show = _json_line if as_json else _table
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
                            _save(output, response)
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
"""Advice in the Python client's error messages, and the equivalent advice for the command."""


_AS_JSON = Translate(nan="literal")
"""The settings of the JSON output: NaN and infinities are written as literals."""

SHOWN = 6
"""Maximum number of elements of a tensor in a table."""
WIDEST = 60
"""Maximum width of a value in a table, in characters."""


def _json_line(response: Response, request: Request) -> str:
    """Return the response as V2 JSON on one line. Raise GatewayError if BYTES elements are not UTF-8."""
    return bytes(translate.encode_response("v2-rest", response, request, _AS_JSON).body).decode()


def _table(response: Response, request: Request) -> str:
    """Return the outputs as a table with name, datatype, shape and the first values."""
    rows = [(each.name, each.datatype.value, str(list(each.shape)), _values(each)) for each in response.outputs]
    return server_options.table(rows, ("output", "datatype", "shape", "values"))


def _values(tensor: Tensor) -> str:
    shown = [_value(each) for each in tensor.array.reshape(-1)[:SHOWN].tolist()]
    return " ".join([*shown, "..."] if tensor.elements > SHOWN else shown)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= WIDEST else f"{text[:WIDEST]}..."


def _check_output(output: Path | None) -> None:
    """Raise BadArgument if the file name does not have the suffix of an array format."""
    if output is not None and output.suffix not in ARRAY_FILES:
        raise BadArgument(f"--output is {str(output)!r}, expected a name that ends in {' or '.join(ARRAY_FILES)}")


def _save(output: Path, response: Response) -> None:
    """Write the outputs to a file: all outputs by name to an .npz file, or a single output to an .npy file. A later
    response replaces the file.

    Raises:
        BadArgument: the file is .npy and the response does not have exactly one output, or the file formats cannot
            represent an output.
        OSError: writing the file fails.
    """
    arrays = {each.name: _storable(each) for each in response.outputs}
    if output.suffix == ".npz":
        np.savez(output, allow_pickle=False, **arrays)
    elif len(arrays) == 1:
        np.save(output, next(iter(arrays.values())), allow_pickle=False)
    else:
        raise BadArgument(f"the response has {len(arrays)} outputs, but {output.suffix} files contain one; use .npz")
    print(f"{output}: {', '.join(f'{name} {list(each.shape)}' for name, each in arrays.items())}", file=sys.stderr)


def _storable(tensor: Tensor) -> Array:
    if tensor.datatype is Datatype.BYTES:
        raise BadArgument(
            f"output {tensor.name!r} is BYTES, which array files cannot contain without pickling; use JSON"
        )
    if tensor.datatype is Datatype.BF16:
        return tensor.array.astype(np.float32)  # numpy files do not support BF16; FP32 can represent its values
    return tensor.array
