"""Every V2 datatype in every form that it can travel in, and what becomes of it: exact, or a documented outcome."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.interop.real_clients import Step, elements, infer, packed, tensor
from tests.interop.servers.triton_models.repository import DATATYPES

HALVES = ("FP16", "BF16")
WITHOUT_JSON = ("BF16",)
"""Has no form in JSON: refused in requests, in replies widened to FP32 and marked."""

# Element by element, since the forms need their number.
_JSON: Mapping[str, tuple[bytes, ...]] = {
    "BOOL": (b"\1", b"\0", b"\1"),
    "UINT8": tuple(packed("B", number) for number in (0, 1, 127, 128, 255)),
    "UINT16": tuple(packed("H", number) for number in (0, 255, 256, 2**16 - 1)),
    "UINT32": tuple(packed("I", number) for number in (0, 2**31, 2**32 - 1)),
    "UINT64": tuple(packed("Q", number) for number in (0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)),
    "INT8": tuple(packed("b", number) for number in (-128, -1, 0, 127)),
    "INT16": tuple(packed("h", number) for number in (-(2**15), -1, 0, 2**15 - 1)),
    "INT32": tuple(packed("i", number) for number in (-(2**31), -1, 0, 2**31 - 1)),
    "INT64": tuple(packed("q", number) for number in (-(2**63), -(2**53) - 1, -1, 0, 2**53 + 1, 2**63 - 1)),
    # one tenth, minus zero, the largest, the smallest normal and the smallest subnormal number
    "FP16": tuple(packed("H", bits) for bits in (0x2E66, 0x8000, 0x7BFF, 0x0400, 0x0001)),
    "BF16": tuple(packed("H", bits) for bits in (0x3DCD, 0x8000, 0x7F7F, 0x0080, 0x0001)),
    "FP32": tuple(packed("I", bits) for bits in (0x3DCCCCCD, 0x80000000, 0x7F7FFFFF, 0x00800000, 0x00000001)),
    "FP64": tuple(
        packed("d", number) for number in (0.1, -0.0, 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324)
    ),
    "BYTES": tuple(elements(text.encode()) for text in ("", "a\0b", "\0", "é€😀", '"\\\n', "x" * 300)),
}
_BINARY_ONLY: Mapping[str, tuple[bytes, ...]] = {
    # infinities, a quiet NaN with a payload, a signalling one
    "FP16": tuple(packed("H", bits) for bits in (0x7C00, 0xFC00, 0x7E01, 0xFC01)),
    "BF16": tuple(packed("H", bits) for bits in (0x7F80, 0xFF80, 0x7FC1, 0xFF81)),
    "FP32": tuple(packed("I", bits) for bits in (0x7F800000, 0xFF800000, 0x7FC00001, 0xFF800001)),
    "FP64": tuple(packed("Q", bits << 48 | 1) for bits in (0x7FF8, 0xFFF0))
    + tuple(packed("Q", bits << 48) for bits in (0x7FF0, 0xFFF0)),
    "BYTES": (elements(b"\xff\xfe\0"), elements(b"\x80")),
}


@dataclass(frozen=True)
class Form:
    """How one tensor travels to the server and back."""

    json_in: bool
    json_out: bool
    coding: str = ""
    empty: bool = False

    def values(self, datatype: str) -> tuple[bytes, ...]:
        if self.empty:
            return ()
        more = () if self.json_in or self.json_out else _BINARY_ONLY.get(datatype, ())
        # Coded bodies are long, since the gateway leaves short replies as they are, and reads long JSON otherwise.
        return (_JSON[datatype] + more) * (600 if self.coding else 1)

    def documented(self, datatype: str) -> str:
        if datatype not in WITHOUT_JSON:
            return EXACT
        if self.json_in:
            return REFUSED
        return WIDENED if self.json_out else EXACT


EXACT, WIDENED, DOUBLED, REFUSED, WRONG = "exact", "FP32", "FP64", "refused", "WRONG"
LEGEND = f"{WIDENED}: exact as FP32, marked with gateway_datatype; {REFUSED}: JSON requests have no such datatype"

FORMS: Mapping[str, Form] = {
    "binary": Form(json_in=False, json_out=False),
    "JSON": Form(json_in=True, json_out=True),
    "JSON>binary": Form(json_in=True, json_out=False),
    "binary>JSON": Form(json_in=False, json_out=True),
    "gzip binary": Form(json_in=False, json_out=False, coding="gzip"),
    "gzip JSON": Form(json_in=True, json_out=True, coding="gzip"),
    "deflate binary": Form(json_in=False, json_out=False, coding="deflate"),
    "deflate JSON": Form(json_in=True, json_out=True, coding="deflate"),
    "[0] binary": Form(json_in=False, json_out=False, empty=True),
    "[0] JSON": Form(json_in=True, json_out=True, empty=True),
}


def identity_step(datatype: str, form: Form) -> Step:
    values = form.values(datatype)
    data = {**tensor("INPUT0", datatype, [len(values)], b"".join(values)), "binary": not form.json_in}
    codings = {"request_compression": form.coding, "response_compression": form.coding} if form.coding else {}
    return infer(f"identity_{datatype}", data, outputs={"OUTPUT0": not form.json_out}, **codings)


def mixtures() -> list[dict[str, Form]]:
    """Four requests with a tensor of each datatype, in which each takes every combination of its forms once."""
    return [
        {
            datatype: Form(json_in=datatype not in HALVES and bool((at + turn) & 1), json_out=bool((at + turn) & 2))
            for at, datatype in enumerate(DATATYPES)
        }
        for turn in range(4)
    ]


def mixed_step(forms: Mapping[str, Form]) -> Step:
    inputs = []
    for datatype, form in forms.items():
        values = form.values(datatype)
        inputs.append(
            {**tensor(f"in_{datatype}", datatype, [len(values)], b"".join(values)), "binary": not form.json_in}
        )
    return infer("mixed", *inputs, outputs={f"out_{datatype}": not form.json_out for datatype, form in forms.items()})


def outcomes(result: Any, forms: Mapping[str, Form]) -> list[str]:
    """What became of each datatype of one request, in the order of its outputs."""
    if "error" in result:
        return [_refusal(result["error"])] * len(forms)
    described = result["response"]["outputs"]
    pairs = zip(described, result["outputs"], forms.items(), strict=True)
    return [_outcome(entry, output, *wanted) for entry, output, wanted in pairs]


def _refusal(error: Mapping[str, str]) -> str:
    """BF16 is refused by the gateway, and by tritonclient itself with the same advice."""
    return REFUSED if error["status"] in ("400", None) and "binary" in error["message"] else f"{WRONG}: {error}"


def _outcome(entry: Mapping[str, Any], output: Mapping[str, Any], datatype: str, form: Form) -> str:
    values = form.values(datatype)
    found = output["datatype"], output["shape"], base64.b64decode(output["raw"]), output["binary"]
    mark = entry.get("parameters", {}).get("gateway_datatype")
    expected = datatype, [len(values)], b"".join(values), not form.json_out
    if mark is None and found == expected:
        return EXACT
    widened = "FP32", [len(values)], b"".join(map(_WIDEN.get(datatype, bytes), values)), not form.json_out
    return WIDENED if mark == datatype and found == widened else WRONG


_WIDEN = {"FP16": lambda raw: packed("f", *struct.unpack("<e", raw)), "BF16": lambda raw: b"\0\0" + raw}

_NUMBERS = {
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


def number(datatype: str, raw: bytes) -> float:
    """One element of a datatype that FP64 holds."""
    if datatype == "BF16":
        return number("FP32", b"\0\0" + raw)
    (value,) = struct.unpack(f"<{_NUMBERS[datatype]}", raw)
    assert isinstance(value, int | float)
    return value


def widened(values: Sequence[bytes], datatype: str, wider: str) -> bytes | None:
    """The elements as they are, as FP32 where they are FP16 or BF16, or as FP64; None where they cannot be."""
    if wider == datatype:
        return b"".join(values)
    if wider == "FP32" and datatype in HALVES:
        return b"".join(map(_WIDEN[datatype], values))
    if wider == "FP64" and datatype in (*_NUMBERS, "BF16"):
        return b"".join(packed("d", number(datatype, raw)) for raw in values)
    return None


_QUIET = {
    "FP16": packed("H", 0x7E00),
    "BF16": packed("H", 0x7FC0),
    "FP32": packed("I", 0x7FC00000),
    "FP64": packed("Q", 0x7FF8 << 48),
}


def without_payloads(datatype: str, values: Sequence[bytes]) -> tuple[bytes, ...]:
    """Every NaN as the one that Python's own is."""
    quiet = _QUIET.get(datatype)
    return tuple(quiet if quiet and math.isnan(number(datatype, raw)) else raw for raw in values)


# A request's JSON as written by hand, which a reply must repeat to the letter.
JSON_TEXTS: Mapping[str, str] = {
    "BOOL": "[true,false]",
    "UINT8": "[0,255]",
    "UINT16": "[0,65535]",
    "UINT32": "[0,4294967295]",
    "UINT64": "[0,9007199254740993,18446744073709551615]",
    "INT8": "[-128,127]",
    "INT16": "[-32768,32767]",
    "INT32": "[-2147483648,2147483647]",
    "INT64": "[-9223372036854775808,9007199254740993,9223372036854775807]",
    "FP16": "[0.5]",
    "FP32": "[0.10000000149011612,-0.0,3.4028234663852886e+38,1.401298464324817e-45]",
    "FP64": "[0.1,-0.0,1.7976931348623157e+308,5e-324]",
    "BF16": "[0.5]",
    "BYTES": '["","a\\u0000b","é€😀","\\"\\\\\\n"]',
}


def table(cells: Mapping[tuple[str, str], str], legend: str = LEGEND) -> str:
    """Datatype by form. `cells` by (datatype, form)."""
    columns = list(dict.fromkeys(form for _, form in cells))
    widths = [max(len(column), *(len(cells[datatype, column]) for datatype in DATATYPES)) for column in columns]
    rows = [["", *columns], *([datatype, *(cells[datatype, column] for column in columns)] for datatype in DATATYPES)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, [6, *widths], strict=True)) for row in rows]
    return "\n".join([*(line.rstrip() for line in lines), legend])
