"""Backends with `servers: {per: model}`: each model becomes a backend of its own, with servers by its job script."""

from collections.abc import Iterator

from gateway.config.keys import BackendConfig, Config
from gateway.config.servers import job_scripts, state_folder


def backend_of_model(backend: str, model: str) -> str:
    """The name of the backend that has the servers of one model."""
    return f"{backend}/{model}"


def with_models_apart(config: Config) -> Config:
    """`config`, with a further backend for each model of a backend whose `servers` are `per: model`. Requests still go
    to the backend that was configured, which sends them on (`gateway.routing.per_model`)."""
    further = {name: each for backend, keys in config.backends.items() for name, each in _of_each_model(backend, keys)}
    return config.model_copy(update={"backends": {**config.backends, **further}}) if further else config


def is_of_model(name: str, config: Config) -> bool:
    """Whether the backend `name` has the servers of one model of another backend."""
    apart = [other for other, keys in config.backends.items() if keys.servers and keys.servers.per == "model"]
    return any(name.startswith(backend_of_model(each, "")) for each in apart)


def _of_each_model(backend: str, config: BackendConfig) -> Iterator[tuple[str, BackendConfig]]:
    servers = config.servers
    if servers is None or servers.per != "model" or servers.script is None:
        return
    # One folder for all: jobs of a model whose script is gone are then found, and ended.
    state = servers.state or str(state_folder(backend))
    for model, script in job_scripts(servers.script).items():
        own = servers.model_copy(update={"per": "backend", "script": script, "state": state})
        yield backend_of_model(backend, model), config.model_copy(update={"servers": own, "policies": ()})
