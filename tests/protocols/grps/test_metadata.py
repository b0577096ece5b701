"""Metadata as YAML text: ours both ways, real servers', and what would hurt."""

import pytest
import yaml

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.protocols.grps.metadata import read_model, read_server, write_model, write_server

SIGNATURE = Signature(
    (TensorSpec("x", Datatype.FP64, (-1, 3)), TensorSpec("no", Datatype.BYTES, ())),
    (TensorSpec("y", Datatype.BF16, (2,)),),
    name="m",
    versions=("1.0",),
    platform="umbridge",
)


def test_a_signature() -> None:
    text = write_model(SIGNATURE, "m")
    assert text == (
        "name: m\nversion: '1.0'\nplatform: umbridge\n"
        "inputs:\n- name: x\n  datatype: FP64\n  shape: [-1, 3]\n- name: 'no'\n  datatype: BYTES\n  shape: []\n"
        "outputs:\n- name: y\n  datatype: BF16\n  shape: [2]\n"
    )
    assert read_model(text) == SIGNATURE


@pytest.mark.parametrize(
    "signature",
    [
        replace(SIGNATURE, versions=("1", "1e3")),
        replace(SIGNATURE, operations=frozenset[Operation]()),
        replace(SIGNATURE, name="é: [", platform="\n- x"),
        Signature(),
    ],
)
def test_signatures_survive(signature: Signature) -> None:
    assert read_model(write_model(signature, signature.name)) == signature


def test_models() -> None:
    entries = (ModelEntry("a", "1.0.0"), ModelEntry("on", "1"), ModelEntry("b"))
    assert write_server(entries) == "models:\n- {name: a, version: 1.0.0}\n- {name: 'on', version: '1'}\n- {name: b}\n"
    assert read_server(write_server(entries)) == entries
    assert read_server(write_server(())) == ()


INFERENCE_YML = """# one
models:
  - name: echo   # the model
    version: 1.0.0
    device: cpu
    inferer_type: customized
    inferer_args: ~
    batching:
      type: none
  - name: twice
    version: 1.0
dag:
  type: sequential
  name: d
  nodes:
    - {name: n, type: model, model: echo-1.0.0}

interface:
  framework: http+grpc
  port: 7080,7081
max_connections: 1000
"""


def test_what_real_servers_tell() -> None:
    assert read_server(INFERENCE_YML) == (ModelEntry("echo", "1.0.0"), ModelEntry("twice", "1.0"))
    model = "device: cpu\ninferer_args: null\nname: echo\nversion: 1.0.0\n"
    further = {"device": "cpu", "inferer_args": "null"}
    assert read_model(model) == Signature(name="echo", versions=("1.0.0",), further=further)


def test_what_a_server_tells_of_a_model_goes_on_to_clients_of_grps() -> None:
    text = "name: echo\nversion: 1.0.0\ndevice: gpu\ninferer_args:\n  size: 16\n  id: '16'\n  on: true\n  none: ~\n"
    told = yaml.safe_load(write_model(read_model(text), "echo-1.0.0"))
    arguments = {"size": 16, "id": "16", True: True, "none": None}
    assert told == {
        "name": "echo-1.0.0", "version": "1.0.0", "inputs": [], "outputs": [], "device": "gpu",
        "inferer_args": arguments,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "not a YAML mapping"),
        ("- a\n", "not a YAML mapping"),
        ("a: [", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: &x [1]\nb: *x\n", "alias"),
        ("a: &x [*x]\n", "alias"),
        ("[" * 100_000, "characters, expected at most"),
        ("[" * 1000, "nested deeper than 16"),
        ("- " * 1000, "nested deeper than 16"),
        ("? [1]\n: 2\n", "not YAML"),
        ("inputs: 3\n", "inputs must be a list of mappings"),
        ("inputs: [x]\n", "inputs must be a list of mappings"),
        ("inputs: [{name: x, datatype: FP31, shape: []}]\n", "input 'x': datatype 'FP31', expected one of"),
        ("inputs: [{name: x, datatype: FP32}]\n", "input 'x': shape None"),
        ("inputs: [{name: x, datatype: FP32, shape: [-2]}]\n", "input 'x': shape"),
        ("inputs: [{name: x, datatype: FP32, shape: [a]}]\n", "input 'x': shape"),
        ("inputs: [{name: x, datatype: FP32, shape: [[]]}]\n", "input 'x': shape"),
        ("inputs: [{name: x, datatype: FP32, shape: [%s]}]\n" % ("9" * 5000), "input 'x': shape"),
        ("inputs: [{name: x, datatype: FP32, shape: [%s]}]\n" % ("1," * 50), "input 'x': shape"),
        ("name: {a: b}\n", "name must be a text"),
        ("versions: 1\n", "versions must be a list"),
    ],
)
def test_what_is_no_metadata(text: str, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        read_model(text)


def test_tags_make_nothing() -> None:
    assert read_model("name: !!timestamp 2024-99-99\nversion: !!float 1.10\n") == Signature(
        name="2024-99-99", versions=("1.10",)
    )
    assert read_model("other: !!python/object/apply:os.getcwd []\n") == Signature(further={"other": []})
