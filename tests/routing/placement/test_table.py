"""What servers say, and what is made of it."""

from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.table import Placements, ReplicaState, ServerInventory
from tests.clock import Clock
from tests.routing.placement.servers import Server

READY = ServerInventory({"x": ("1",)}, {}, frozenset({"x"}))
UNLOADED = ServerInventory({}, {}, frozenset({"x"}))


class Table:
    """A table of some endpoints."""

    def __init__(self, *names: str) -> None:
        self.clock = Clock()
        self.placements = Placements("fleet", EndpointChoice, self.clock)
        self.endpoints = [Endpoint(name, Server(name), self.clock) for name in names]
        for each in self.endpoints:
            self.placements.join(each)

    def told(self, at: int, stock: ServerInventory, asked: int | None = None) -> tuple[str, ...]:
        return self.placements.reported(self.endpoints[at], stock, self.placements.moment if asked is None else asked)

    def state(self, at: int = 0) -> ReplicaState | None:
        place = self.placements.models["x"].places.get(self.endpoints[at])
        return None if place is None else place.state

    def holders(self, version: str = "") -> list[str]:
        placement = self.placements.models["x"]
        choice = self.placements.chosen(placement)
        if version and placement.by_version is not None:
            choice = placement.by_version.get(version)
        return [] if choice is None else [each.address for each in choice.endpoints]


def test_an_answer_says_nothing_of_what_changed_after_the_question() -> None:
    table = Table("a")
    asked = table.placements.moment
    table.told(0, READY)
    assert (table.told(0, UNLOADED, asked), table.state()) == ((), ReplicaState.HELD)
    assert (table.told(0, UNLOADED), table.state()) == (("x",), ReplicaState.GONE)
    assert (table.told(0, READY, asked), table.state()) == ((), ReplicaState.GONE)


def test_what_the_gateway_does_itself_counts_before_what_the_server_says() -> None:
    table = Table("a")
    table.told(0, READY)
    placement = table.placements.models["x"]
    place = placement.places[table.endpoints[0]]
    table.placements.became(placement, place, ReplicaState.UNLOADING)
    place.is_ours = True
    for stock in (READY, UNLOADED, ServerInventory({}, {"x": ReplicaState.LOADING}, frozenset({"x"}))):
        table.told(0, stock)
        assert table.state() is ReplicaState.UNLOADING
    place.is_ours = False
    table.told(0, UNLOADED)
    assert table.state() is ReplicaState.GONE


def test_loads_and_unloads_of_others() -> None:
    table = Table("a")
    table.told(0, ServerInventory({}, {"x": ReplicaState.LOADING}, frozenset({"x"})))
    assert (table.state(), table.holders()) == (ReplicaState.LOADING, [])
    table.told(0, READY)
    assert (table.state(), table.holders()) == (ReplicaState.HELD, ["a"])
    table.told(0, ServerInventory({}, {"x": ReplicaState.UNLOADING}, frozenset({"x"})))
    assert (table.state(), table.holders()) == (ReplicaState.UNLOADING, [])
    assert not table.placements.models["x"].places[table.endpoints[0]].is_ours


def test_servers_that_tell_no_versions_may_have_each() -> None:
    table = Table("a", "b", "c")
    for at, versions in enumerate(((), ("1",), ("1", "2"))):
        table.told(at, ServerInventory({"x": versions}))
    assert table.holders() == ["a", "b", "c"]
    assert [table.holders("1"), table.holders("2"), table.holders("3")] == [["a", "b", "c"], ["a", "c"], []]


def test_models_with_the_same_holders_share_a_choice() -> None:
    table = Table("a", "b")
    for at in (0, 1):
        table.told(at, ServerInventory({"x": (), "y": ()}))
    choices = [table.placements.chosen(each) for each in table.placements.models.values()]
    assert choices[0] is choices[1]


def test_nothing_is_left_of_models_that_nobody_has() -> None:
    table = Table("a")
    table.told(0, READY)
    for _ in range(3):
        table.told(0, ServerInventory())
    assert table.placements.models == {}
    table.told(0, READY)
    for _ in range(2):
        table.placements.leave(table.endpoints[0])
    assert table.placements.models == {}


def test_only_what_a_server_has_can_be_denied() -> None:
    table = Table("a")
    table.told(0, READY)
    found = [table.placements.denied(model, table.endpoints[0], "no model") for model in ("y", "x", "x")]
    assert (found, table.state()) == ([False, True, False], ReplicaState.FAILED)
