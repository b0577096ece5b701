"""Queries a server for its models, with versions, states and signatures, through `gateway.client`."""

from collections.abc import Sequence

from gateway.client import AsyncClient, ClientError, ConnectError, ModelEntry, ServerInfo, Signature, Timeout
from gateway.core.frozen import frozen
from gateway.core.operations import split_companion

MOST_DESCRIBED = 100
"""Maximum number of models whose signatures to query."""


@frozen
class FoundModel:
    """One model: its versions, its state (empty if the protocol does not report states), and its signature. `error`
    explains why the signature is missing."""

    name: str
    versions: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""
    signature: Signature | None = None
    error: str = ""


@frozen
class ServerModels:
    """A server's own description of itself and its models. `error` explains why the model list is missing. `left_out`
    is the number of models whose signatures were not queried."""

    server: ServerInfo | None = None
    models: tuple[FoundModel, ...] = ()
    error: str = ""
    left_out: int = 0

    @property
    def own(self) -> tuple[FoundModel, ...]:
        """The models without the derivative models (`M.gradient`) of listed models."""
        names = {each.name for each in self.models}
        return tuple(each for each in self.models if _base(each.name) not in names)


def _base(name: str) -> str | None:
    companion = split_companion(name)
    return companion[0] if companion is not None else None


async def list_models(client: AsyncClient, names: Sequence[str] = ()) -> ServerModels:
    """Return the server's models, or the models in `names` if the server does not list its models. The function queries
    signatures sequentially.

    Raises:
        ClientError: ConnectError or Timeout, if the server does not respond.
    """
    server = await _server_or_none(client)
    error = ""
    try:
        entries = await client.models()
    except ClientError as failed:
        if _does_not_answer(failed):
            raise
        entries, error = [], str(failed)
    merged = _merged(entries) or {name: FoundModel(name) for name in names}
    if not merged and not client.names_models:
        merged = {"": FoundModel("")}
    described = [
        await _described(client, each) if at < MOST_DESCRIBED else each for at, each in enumerate(merged.values())
    ]
    found = tuple(each for each in described if each.name or each.signature)
    return ServerModels(server, found, error if not entries else "", max(len(merged) - MOST_DESCRIBED, 0))


def _does_not_answer(error: ClientError) -> bool:
    return isinstance(error, ConnectError | Timeout)


async def _server_or_none(client: AsyncClient) -> ServerInfo | None:
    try:
        return await client.server()
    except ClientError as error:
        if _does_not_answer(error):
            raise
        return None


def _merged(entries: Sequence[ModelEntry]) -> dict[str, FoundModel]:
    """Return the models by name, with all versions of each model. The model's state is the state of its first ready
    version."""
    found: dict[str, FoundModel] = {}
    for entry in entries:
        known = found.get(entry.name)
        if known is None:
            found[entry.name] = FoundModel(entry.name, _versions(entry.version), entry.state, entry.reason)
        elif entry.version not in known.versions:
            better = known if known.state == "READY" else entry
            found[entry.name] = FoundModel(
                entry.name, (*known.versions, *_versions(entry.version)), better.state, better.reason
            )
    return found


def _versions(version: str) -> tuple[str, ...]:
    return (version,) if version else ()


async def _described(client: AsyncClient, model: FoundModel) -> FoundModel:
    try:
        signature = await client.signature(model.name)
    except ClientError as error:
        if _does_not_answer(error):
            raise
        return FoundModel(model.name, model.versions, model.state, model.reason, None, str(error))
    name = model.name or signature.name
    return FoundModel(name, signature.versions or model.versions, model.state, model.reason, signature)
