"""A peer as a process: its ports as JSON on the first line, and the end by SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def main(serve: Callable[..., AbstractContextManager[Any]], **ports: int | None) -> None:
    """Options `--http 0` for `http_port=`, with the default that is given here; None is not served."""
    names = [name.removesuffix("_port") for name in ports]
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", type=int, default=ports[f"{name}_port"], help="a port; 0 is a free one")
    options = vars(parser.parse_args())
    # Blocked before any thread starts, so that none of them takes the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with serve(**{f"{name}_port": options[name] for name in names}) as server:
        print(json.dumps({name: getattr(server, name).port for name in names if options[name] is not None}), flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
