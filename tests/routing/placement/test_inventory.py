"""What a list of models says of a server."""

import pytest

from gateway.core.models import ModelEntry
from gateway.routing.placement.inventory import stock_of
from gateway.routing.placement.table import ReplicaState, ServerInventory

TRITON = (
    ModelEntry("ready", "1", "READY"),
    ModelEntry("ready", "2", "READY"),
    ModelEntry("half", "1", "UNAVAILABLE", "failed"),
    ModelEntry("half", "2", "READY"),
    ModelEntry("loading", "1", "LOADING"),
    ModelEntry("unloading", "1", "UNLOADING"),
    ModelEntry("unloaded", "1", "UNAVAILABLE", "unloaded"),
    ModelEntry("never"),
)
NAMES = frozenset({"ready", "half", "loading", "unloading", "unloaded", "never"})
CHANGING = {"loading": ReplicaState.LOADING, "unloading": ReplicaState.UNLOADING}


@pytest.mark.parametrize("tells_states", [True, False])
def test_a_list_with_states(*, tells_states: bool) -> None:
    """Triton lists a model that was never loaded without a state."""
    held: dict[str, tuple[str, ...]] = {"ready": ("1", "2"), "half": ("2",)}
    if not tells_states:
        held["never"] = ()
    assert stock_of(TRITON, tells_states=tells_states) == ServerInventory(held, CHANGING, NAMES)


def test_a_list_of_names() -> None:
    assert stock_of((ModelEntry("x"), ModelEntry("y", "3")), tells_states=False) == ServerInventory(
        {"x": (), "y": ("3",)}, {}, frozenset({"x", "y"})
    )
