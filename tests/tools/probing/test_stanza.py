"""The backends and routes that are written for probed servers."""

import pytest

from gateway.client import Tls
from gateway.core.datatypes import Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.listing import FoundModel, ServerModels
from gateway.tools.probing.probe import Spoken
from gateway.tools.probing.stanza import MOST_ROUTES, WrittenBackend, operations, stanza

X = Signature(inputs=(TensorSpec("x", Datatype.FP64, (-1, 3)),), outputs=(TensorSpec("y", Datatype.FP64, (-1,)),))
ALL = """\
  - match: {model: "*"}%s
    backend: a
"""


def models(*names: str) -> ServerModels:
    return ServerModels(models=tuple(FoundModel(each, signature=X) for each in names))


def routes(*found: ServerModels) -> str:
    spoken = [Spoken("v2-rest", "h:1", "", each) for each in found]
    backends = [WrittenBackend("ab"[number], each, ServerAccess()) for number, each in enumerate(spoken)]
    return stanza(backends).partition("routes:\n")[2]


MANY = tuple(f"m{number}" for number in range(MOST_ROUTES + 1))
ONE = """\
  - match: {model: "m"}  # x FP64[-1,3] -> y FP64[-1]
    backend: a
"""


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([models(*MANY)], ALL % "  # 21 models"),
        ([ServerModels(models=(FoundModel("", signature=X),))], ALL % "  # the server does not list its models"),
        ([models("m", "m.gradient")], f"{ONE}    # these come with the models above: m.gradient\n"),
        ([models(*MANY), ServerModels(error="no list")], ALL % "  # 21 models"),
    ],
    ids=["many", "nameless", "derived", "taken"],
)
def test_routes(found: list[ServerModels], expected: str) -> None:
    assert routes(*found) == expected


@pytest.mark.parametrize(
    ("tls", "expected"),
    [
        (Tls(ca="/a b/ca.pem", server_name="m.example"), 'ca: "/a b/ca.pem", server_name: "m.example"'),
        (Tls(certificate="c", certificate_key="k", verify=False), 'certificate: "c", key: "k", verify: false'),
    ],
)
def test_a_backend_has_the_tls_settings_of_the_probe(tls: Tls, expected: str) -> None:
    written = WrittenBackend("a", Spoken("v2-rest", "https://h:1", "", models("m")), ServerAccess(tls=tls))
    assert f"\n    tls: {{{expected}}}\n" in stanza([written])


def test_operations_are_told_in_words() -> None:
    signature = Signature(operations=frozenset({Operation.INFER, Operation.GRADIENT}))
    assert operations(signature) == "gradient, infer"
