"""`gateway reference`: run a model server over one protocol, with sample models or Python callables."""

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from gateway.assembly.certificates import Certificates
from gateway.assembly.listening import BindError
from gateway.assembly.reference import serve_reference
from gateway.cli.commands.completion import bundled_models, protocols
from gateway.cli.exit_codes import fail, misuse
from gateway.cli.options import catalog
from gateway.cli.orphans import reap_if_first
from gateway.cli.stopping import Signals, drain_on_signal
from gateway.config import reference_config
from gateway.config.keys import DrainConfig, ReferenceConfig, ReloadConfig
from gateway.core.tasks import spawn
from gateway.runtime.process import log_to_stderr, run, say

log = logging.getLogger(__name__)


def reference(
    protocol: Annotated[str, typer.Option(autocompletion=protocols, metavar="NAME", help="Protocol of the server.")],
    bind_to: Annotated[
        str,
        typer.Option(
            "--bind", metavar="HOST:PORT", help="Address to listen on. If the port is 0, the system chooses a port."
        ),
    ],
    model: Annotated[
        list[str],
        typer.Option(
            autocompletion=bundled_models,
            metavar="NAME",
            help="A sample model, or a Python callable as MODULE:ATTRIBUTE. Repeatable.",
        ),
    ],
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve over TLS with this certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the certificate (PEM).")] = None,
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Require client certificates signed by these CAs (PEM).")
    ] = None,
) -> None:
    """Run a model server with sample models or Python callables. On SIGTERM or SIGINT, requests in flight have 30 s to
    finish; a second signal stops the server immediately. The server reloads TLS files when they change."""
    try:
        config = reference_config(protocol, bind_to, model, catalog(), _tls(certificate, key, client_ca))
    except ValueError as error:
        misuse(error)
    log_to_stderr()
    run(_serve(config))


def _tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> dict[str, str]:
    """Return the values of the `tls` configuration keys that the options set."""
    paths = {"certificate": certificate, "key": key, "client_ca": client_ca}
    given = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
    if given and not (certificate and key):
        raise ValueError("TLS needs both --certificate and --key")
    return {**given, "client": "required"} if client_ca is not None else given


async def _serve(config: ReferenceConfig) -> None:
    reap_if_first()
    certificates = Certificates()
    try:
        listener = await serve_reference(config, asyncio.get_running_loop().time, certificates)
    except BindError as error:
        fail(error)
    except ValueError as error:
        misuse(error)
    signals = (
        Signals()
    )  # created only here, because loading a model blocks the event loop; until here, a signal ends the process
    spawn(certificates.watch(ReloadConfig))
    say(f"{config.protocol} on {listener.address}: {', '.join(config.models)}\nready")
    log.info("ready at %s", listener.address)
    drain = DrainConfig()
    await drain_on_signal(listener, signals, drain.delay, drain.timeout)
