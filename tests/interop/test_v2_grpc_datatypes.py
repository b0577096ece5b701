"""Every datatype in every form through the gateway, where gRPC is on one side or on both: the real tritonclient, the
real servers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen
from tests.interop.real_clients import Step, infer, tensor, tritonclient, tritonclient_grpc
from tests.interop.servers.triton_models.repository import DATATYPES
from tests.interop.v2_datatypes import (
    DOUBLED,
    EXACT,
    FORMS,
    REFUSED,
    WIDENED,
    WRONG,
    Form,
    identity_step,
    mixed_step,
    mixtures,
    outcomes,
    table,
    widened,
    without_payloads,
)

KINDS = ("sync", "aio")


@pytest.fixture(scope="module")
def fronts(in_front: Listen) -> Addresses:
    return in_front()


Show = Callable[[str, str], None]

# --- tritonclient.grpc ---

COLUMNS: Mapping[str, Form] = {
    "raw": Form(json_in=False, json_out=False),
    "gzip": Form(json_in=False, json_out=False, coding="gzip"),
    "deflate": Form(json_in=False, json_out=False, coding="deflate"),
    "[0]": Form(json_in=False, json_out=False, empty=True),
}
MIXED = "mixed"
WIDE = ("INT64", "UINT64")
LEGEND = f"{WIDENED}, {DOUBLED}: exact as such; {REFUSED}: INVALID_ARGUMENT, FP64 cannot represent every value"


@dataclass(frozen=True)
class Way:
    """A server, and what is documented to become of the datatypes that do not come back as they were."""

    title: str
    special: Mapping[str, str]
    mixed: str = ""
    """The model that takes a tensor of each datatype in one request."""
    quiet: bool = False
    """It computes with Python's floats, which keep no NaN's payload."""

    def values(self, datatype: str, form: Form) -> tuple[bytes, ...]:
        values = form.values(datatype)
        return without_payloads(datatype, values) if self.quiet else values


WAYS: Mapping[str, Way] = {
    "umbridge": Way(
        "the umbridge server",
        {
            **dict.fromkeys(("UINT8", "UINT16", "UINT32", "INT8", "INT16", "INT32", "FP16", "BF16", "FP32"), DOUBLED),
            **dict.fromkeys(("BOOL", "UINT64", "INT64", "BYTES"), REFUSED),
        },
        quiet=True,
    ),
    "triton": Way("Triton by gRPC", {}, "mixed"),
    "mlserver": Way("MLServer by gRPC", {"BF16": WIDENED}, "undeclared", quiet=True),
    "kserve": Way("KServe by gRPC", {"BF16": WIDENED}, "undeclared"),
    "by_rest": Way("Triton by REST", {}, "mixed"),
}


def step_of(front: str, datatype: str, form: Form) -> Step:
    values = WAYS[front].values(datatype, form)
    options: Step = {"compression": form.coding} if form.coding else {}
    if front == "umbridge":
        # The model whose size is that of its config.
        options["parameters"] = {"config": f'{{"n": {len(values)}}}'}
        return infer("scaled", tensor("input0", datatype, [1, len(values)], b"".join(values)), **options)
    model = "undeclared" if WAYS[front].special.get(datatype) == WIDENED else f"identity_{datatype}"
    return infer(model, tensor("INPUT0", datatype, [len(values)], b"".join(values)), **options)


def mixed_of(front: str) -> Step:
    way, raw = WAYS[front], COLUMNS["raw"]
    tensors = []
    for datatype in DATATYPES:
        values = way.values(datatype, raw)
        tensors.append(tensor(f"in_{datatype}", datatype, [len(values)], b"".join(values)))
    return infer(way.mixed, *tensors)


def outcome(output: Any, values: tuple[bytes, ...], datatype: str) -> str:
    found = output["datatype"], output["shape"][-1], base64.b64decode(output["raw"])
    for name, wider in ((EXACT, datatype), (WIDENED, "FP32"), (DOUBLED, "FP64")):
        if found == (wider, len(values), widened(values, datatype, wider)):
            return name
    return f"{WRONG}: {output}"


def refusal(result: Any, datatype: str) -> str:
    """INT64 and UINT64 are refused since FP64 does not hold them all, the others since they are no numbers."""
    error = result["error"]
    wide = f"input 'input0' is {datatype}, expected FP64, which cannot represent every {datatype}; send FP64, or "
    none = f"input 'input0' is {datatype}, expected FP64"
    told = error["status"] == "StatusCode.INVALID_ARGUMENT" and error["message"].startswith(
        wide if datatype in WIDE else none
    )
    return REFUSED if told else f"{WRONG}: {error}"


def cells_of(front: str, address: str, kind: str) -> dict[tuple[str, str], str]:
    """What became of each (datatype, form)."""
    way = WAYS[front]
    pairs = [(datatype, column) for datatype in DATATYPES for column in COLUMNS]
    steps = [step_of(front, datatype, COLUMNS[column]) for datatype, column in pairs]
    mixed = [mixed_of(front)] if way.mixed else []
    results = tritonclient_grpc(address, kind, *steps, *mixed)
    cells = {}
    for (datatype, column), result in zip(pairs, results[: len(pairs)], strict=True):
        values = way.values(datatype, COLUMNS[column])
        told = "error" in result
        cells[datatype, column] = refusal(result, datatype) if told else outcome(result["outputs"][0], values, datatype)
    for result in results[len(pairs) :]:
        assert "error" not in result, result
        for datatype, output in zip(DATATYPES, result["outputs"], strict=True):
            cells[datatype, MIXED] = outcome(output, way.values(datatype, COLUMNS["raw"]), datatype)
    return cells


@pytest.mark.parametrize("front", WAYS)
def test_every_datatype_in_every_form(fronts: Addresses, front: str, show_at_the_end: Show) -> None:
    way = WAYS[front]
    found = {kind: cells_of(front, fronts[front], kind) for kind in KINDS}
    both = {key: " / ".join(dict.fromkeys(found[kind][key] for kind in KINDS)) for key in found["sync"]}
    show_at_the_end(f"V2 gRPC to {way.title}: datatype by form, tritonclient sync and aio", table(both, LEGEND))

    columns = [*COLUMNS, *([MIXED] if way.mixed else [])]
    documented = {(name, column): way.special.get(name, EXACT) for name in DATATYPES for column in columns}
    assert [found[kind] for kind in KINDS] == [documented] * len(KINDS)


# --- tritonclient.http ---


def rest_cells(address: str, kind: str) -> dict[tuple[str, str], str]:
    pairs = [(datatype, name) for datatype in DATATYPES for name in FORMS]
    steps = [identity_step(datatype, FORMS[name]) for datatype, name in pairs]
    results = tritonclient(address, kind, *steps)
    return {
        (datatype, name): outcomes(result, {datatype: FORMS[name]})[0]
        for (datatype, name), result in zip(pairs, results, strict=True)
    }


def test_every_datatype_from_rest(fronts: Addresses, show_at_the_end: Show) -> None:
    found = {kind: rest_cells(fronts["rest"], kind) for kind in KINDS}
    both = {key: " / ".join(dict.fromkeys(found[kind][key] for kind in KINDS)) for key in found["sync"]}
    show_at_the_end("V2 REST to Triton by gRPC: datatype by form, tritonclient sync and aio", table(both))

    documented = {(name, form): FORMS[form].documented(name) for name in DATATYPES for form in FORMS}
    assert [found[kind] for kind in KINDS] == [documented] * len(KINDS)


def test_tensors_in_json_and_in_binary_in_one_request(fronts: Addresses) -> None:
    turns = mixtures()
    results = tritonclient(fronts["rest"], "sync", *map(mixed_step, turns))

    assert [outcomes(result, forms) for forms, result in zip(turns, results, strict=True)] == [
        [form.documented(datatype) for datatype, form in forms.items()] for forms in turns
    ]
