"""Models that the servers of a backend have in different versions or with different signatures."""

from gateway.core.datatypes import Datatype
from gateway.core.models import Signature, TensorSpec
from gateway.tools.probing.fit import differences
from gateway.tools.probing.listing import FoundModel, ServerModels


def model(name: str, *versions: str, shape: tuple[int, ...] = (-1, 3)) -> FoundModel:
    signature = Signature(name=name, inputs=(TensorSpec("x", Datatype.FP64, shape),))
    return FoundModel(name, versions, "READY", signature=signature)


def test_other_versions_and_other_signatures_are_told_with_the_servers_that_have_them() -> None:
    servers = {
        "a:1": ServerModels(models=(model("m", "1"), model("n", "1"))),
        "b:1": ServerModels(models=(model("m", "2", "1"), model("n", "1", shape=(-1, 4)))),
        "c:1": ServerModels(models=(model("m", "1", "2"),)),
    }
    assert list(differences(servers)) == [
        ("m", "its versions differ: a:1: 1; b:1, c:1: 1, 2"),
        ("n", "its signatures differ: a:1: x FP64[-1,3] ->; b:1: x FP64[-1,4] ->"),
    ]


def test_servers_that_do_not_tell_or_do_not_have_the_model_differ_from_nobody() -> None:
    servers = {
        "a:1": ServerModels(models=(model("m", "1"),)),
        "b:1": ServerModels(models=(FoundModel("m", error="no signature"),)),
        "c:1": ServerModels(models=(model("other", "7"),)),
        "d:1": ServerModels(error="no list"),
    }
    assert list(differences(servers)) == []


def test_many_servers_are_counted() -> None:
    servers = {f"{name}:1": ServerModels(models=(model("m", "2" if name == "f" else "1"),)) for name in "abcdef"}
    assert [how for _, how in differences(servers)] == ["its versions differ: a:1, b:1, c:1 and 2 more: 1; f:1: 2"]
