"""A gateway whose listeners speak forms of JSON, in front of the reference server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.exchanges import gateway
from tests.interop.processes import free_port


@contextmanager
def speaking_forms(
    folder: Path, protocol: str, models: Sequence[str], listeners: Mapping[str, tuple[str, str]], **more: Any
) -> Iterator[dict[str, str]]:
    """The URL of each listener: `listeners` has the form that it speaks, and the model of that listener, if any.

    `models` are those of `servers/json_models.py`, which are called over `protocol`. `more` is in the configuration.
    """
    urls = {name: f"127.0.0.1:{free_port()}" for name in listeners}
    server = f"127.0.0.1:{free_port()}"
    config = {
        "listeners": [
            {"name": name, "bind": urls[name], "protocols": [f"json:{form}"], **({"model": model} if model else {})}
            for name, (form, model) in listeners.items()
        ],
        "reference": [
            {
                "protocol": protocol,
                "bind": server,
                "models": [f"tests.interop.servers.json_models:{name}" for name in models],
            }
        ],
        "backends": {"v2": {"protocol": protocol, "endpoints": [server]}},
        "routes": [{"match": {"model": "*"}, "backend": "v2"}],
        **more,
    }
    with gateway(json.dumps(config), folder):
        yield {name: f"http://{address}" for name, address in urls.items()}
