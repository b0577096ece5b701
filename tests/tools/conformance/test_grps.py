"""The parts that the checks of grps share."""

import pytest

from gateway.tools.conformance.grps import bare, names

LISTED = "name: s\nmodels:\n- name: v2-rest\n- name: double\n  version: 1.0.0\n- name: double-2\n  version: '3'\n"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("v2-rest", "v2-rest"),
        ("double-1.0.0", "double"),
        ("double-2", "double-2"),
        ("double-2-3", "double-2"),
        # not listed
        ("resnet-1.0.0", "resnet"),
        ("tfs-grpc", "tfs-grpc"),
        ("plain", "plain"),
        ("-1", "-1"),
    ],
)
def test_the_name_of_a_model_without_its_version(model: str, name: str) -> None:
    assert bare(model, names(LISTED)) == name


@pytest.mark.parametrize("told", ["", "[]", "models: {}", "models: [1, {name: 2}]"])
def test_a_server_that_lists_no_models(told: str) -> None:
    assert names(told) == []
