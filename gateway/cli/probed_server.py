"""A server that a command probes: runs the probe, which shows its current step and ends the command on failure, and
returns the server's models as table rows and as JSON."""

from collections.abc import Sequence
from typing import Any, NoReturn

from gateway.assembly.forms import known
from gateway.cli.exit_codes import FAILED, TIMED_OUT, UNREACHABLE, USAGE, end
from gateway.cli.progress import progress
from gateway.core.models import TensorSpec
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.listing import FoundModel, ServerModels
from gateway.tools.probing.probe import Probed, ProbeVerdict, probe
from gateway.tools.probing.stanza import operations, signature_text

_CODES = {ProbeVerdict.UNREACHABLE: UNREACHABLE, ProbeVerdict.SILENT: TIMED_OUT}


async def probed(address: str, access: ServerAccess, seconds: float, names: Sequence[str]) -> Probed:
    """Return the result of a probe, with a timeout of `seconds` for each response. `names` contains the models to query
    if the server does not list its models. Exit with USAGE if `address` is invalid."""
    try:
        with progress(f"querying {address}") as line:
            return await probe(address, known(), access, seconds=seconds, names=names, on_progress=line.show)
    except ValueError as error:
        end(USAGE, error)


def end_unspoken(found: Probed, address: str, more: str = "") -> NoReturn:
    """Exit because the probe found no protocol at the address, after printing the probe's explanation followed by
    `more`."""
    end(_CODES.get(found.verdict, FAILED), f"{address}: {found.text}{more}")


def is_unrecognized(found: Probed) -> bool:
    """Return whether a server responds at the address, but the probe found no protocol."""
    return not found.spoken and found.verdict not in _CODES


def model_rows(models: ServerModels) -> list[tuple[str, str, str, str]]:
    """Return a row for each model, with name, versions, state and signature. A derivative model follows the model to
    which it belongs."""
    own = models.own
    rows = [_row(each) for each in own]
    if models.left_out:
        rows.append(("...", "", "", f"{models.left_out} more models, whose signatures were not queried"))
    return rows


def _row(model: FoundModel) -> tuple[str, str, str, str]:
    state = f"{model.state} ({model.reason})" if model.reason else model.state
    text = signature_text(model) or model.error
    if model.signature is not None and any(each.value != "infer" for each in model.signature.operations):
        text = f"{text}  ({operations(model.signature)})"
    return model.name or "(any name)", ", ".join(model.versions) or "-", state or "-", text.strip() or "-"


def models_json(models: ServerModels) -> dict[str, Any]:
    """Return a JSON object with `server`, `models` and `error`."""
    server = models.server
    info = {"name": server.name, "version": server.version, "extensions": server.extensions} if server else None
    return {"server": info, "models": [_model(each) for each in models.models], "error": models.error}


def _model(model: FoundModel) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": model.name, "versions": model.versions, "state": model.state, "reason": model.reason
    }  # fmt: skip
    if model.signature is None:
        return {**found, "error": model.error}
    signature = model.signature
    return {
        **found,
        "inputs": [_tensor(each) for each in signature.inputs],
        "outputs": [_tensor(each) for each in signature.outputs],
        "operations": sorted(each.value for each in signature.operations),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": spec.shape}
