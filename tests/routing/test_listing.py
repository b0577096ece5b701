"""The models that a client can ask for."""

import asyncio
from collections.abc import Sequence

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.frozen import replace
from gateway.core.globs import ModelRenaming
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request
from gateway.routing.conditions import Conditions
from gateway.routing.listing import SECONDS_KEPT, SECONDS_WAITED, BackendModels, Listed, Listing
from tests.limits import settle

DOWN = GatewayError(Status.UNAVAILABLE, Reason.UNREACHABLE, "down")
BOTH = frozenset({"tensors", "points"})


class Lab:
    """A backend's list of `name` or `name:version`, and the clock."""

    def __init__(self, *names: str, wait: float = SECONDS_WAITED, first_wait: float | None = None) -> None:
        self.names: Sequence[str] = names
        self.down = False
        self.recovers = False  # with the next answer, which makes the list forgotten
        self.asked = 0
        self.now = 0.0
        self.answers: asyncio.Future[None] | None = None
        self.models = BackendModels(self._answer, lambda: self.now, wait, first_wait)

    def hang(self) -> "asyncio.Future[None]":
        """The backend answers when this is set."""
        self.answers = asyncio.get_running_loop().create_future()
        return self.answers

    async def _answer(self, request: Request) -> Answer:
        self.asked += 1
        if self.answers is not None:
            await self.answers
        if self.down:
            raise DOWN
        if self.recovers:
            self.recovers = False
            self.models.forget()
        parted = (name.partition(":") for name in self.names)
        return tuple(ModelEntry(name, version, "READY") for name, _, version in parted)

    def listed(self, model: str = "", rewritten: str | None = None, **conditions: str) -> Listed:
        return Listed(Conditions(model=model, **conditions), BOTH, self.models, rewritten)  # type: ignore[arg-type]


async def listed(listing: Listing, protocol: str = "tensors", listener: str = "http") -> list[str]:
    return [entry.name for entry in await listing(Request(Operation.MODELS, protocol=protocol, listener=listener))]


async def names(routes: Sequence[Listed], protocol: str = "tensors", listener: str = "http") -> list[str]:
    return await listed(Listing(routes, frozenset({"points"})), protocol, listener)


def starting(*routes: Listed) -> Listing:
    """A list that does not wait for servers that start."""
    return Listing(routes, frozenset(), starting=0.0)


async def test_exact_routes_come_first_then_what_backends_list() -> None:
    one, two = Lab("b", "x1", "x2"), Lab("x2", "y")
    routes = [one.listed("x*"), one.listed("b"), two.listed("*"), two.listed("c")]
    assert await names(routes) == ["b", "c", "x1", "x2", "y"]


async def test_models_that_another_backend_has_under_a_taken_name_are_not_listed() -> None:
    one, two = Lab("a", "b"), Lab("a", "a.gradient", "b.gradient", "c", "c.gradient")
    assert await names([one.listed("a"), two.listed("*")]) == ["a", "b.gradient", "c", "c.gradient"]
    assert await names([one.listed("*"), two.listed("*")]) == ["a", "b", "c", "c.gradient"]
    # the router, too, goes by the whole name first
    found = await names([one.listed("a"), two.listed("a.gradient"), two.listed("*")])
    assert found == ["a", "a.gradient", "b.gradient", "c", "c.gradient"]


async def entries(*routes: Listed) -> list[tuple[str, str, str]]:
    request = Request(Operation.MODELS, protocol="tensors", listener="http")
    return [(each.name, each.version, each.state) for each in await Listing(routes, frozenset())(request)]


async def test_a_model_that_a_route_names_and_its_backend_lists_is_one_in_the_backends_versions() -> None:
    lab, other = Lab("count:1", "two:1", "two:2"), Lab("count:7")
    count, two = lab.listed("count"), lab.listed("two")
    found = await entries(two, count, lab.listed("*"), other.listed("*"))
    assert found == [("two", "1", "READY"), ("two", "2", "READY"), ("count", "1", "READY")]
    assert await entries(count, lab.listed("t*")) == [("count", "", ""), ("two", "1", "READY"), ("two", "2", "READY")]


async def test_the_versions_of_another_model_are_not_those_of_one_that_is_renamed() -> None:
    lab = Lab("count:1", "old:3")
    found = await entries(lab.listed("count", rewritten="old"), lab.listed("*"))
    assert found == [("count", "", ""), ("old", "3", "READY")]
    assert await entries(lab.listed("count", rewritten="count"), lab.listed("c*")) == [("count", "1", "READY")]


async def test_a_version_that_a_route_names_stays_beside_those_of_the_backend() -> None:
    lab = Lab("count:1", "count:2")
    found = await entries(lab.listed("count", version="2"), lab.listed("*"))
    assert found == [("count", "2", ""), ("count", "1", "READY")]


async def test_a_name_taken_in_part_leaves_the_rest_to_other_routes() -> None:
    one, two = Lab(), Lab("a", "a.gradient")
    by_header = Listed(Conditions(model="a", headers=(("x", "1"),)), BOTH, one.models)
    assert await names([one.listed("a", version="1"), two.listed("*")]) == ["a", "a", "a.gradient"]
    assert await names([by_header, two.listed("*")]) == ["a", "a.gradient"]


async def test_a_route_without_a_model_lists_all_and_one_that_renames_lists_nothing() -> None:
    lab = Lab("a", "b")
    assert await names([lab.listed()]) == ["a", "b"]
    assert await names([lab.listed("*", rewritten="z"), lab.listed("q", rewritten="z")]) == ["q"]


async def test_a_route_that_makes_names_of_captures_lists_what_clients_call() -> None:
    lab, legacy = Lab("prod-a", "prod-b", "stage-c"), Lab("prod-b", "prod-d")
    made = ModelRenaming("team-*", "prod-{1}")
    routes = [
        Listed(Conditions(model="team-*"), BOTH, lab.models, made),
        Listed(Conditions(model="team-*"), BOTH, legacy.models, made),  # its fallback
        Listed(Conditions(model="any-*-*"), BOTH, lab.models, ModelRenaming("any-*-*", "prod-{1}")),
    ]
    assert await names(routes) == ["team-a", "team-b", "team-d"]
    asked: list[str] = []

    async def claims(model: str) -> frozenset[Operation]:
        asked.append(model)
        return frozenset({Operation.GRADIENT})

    found = await names([replace(routes[0], claims=claims)])
    assert found == ["team-a", "team-a.gradient", "team-b", "team-b.gradient"]
    assert asked == ["prod-a", "prod-b"]


async def test_only_what_the_client_can_reach_is_listed() -> None:
    lab = Lab("a")
    other = Listed(Conditions(model="m"), frozenset({"points"}), lab.models)
    routes = [other, lab.listed("here", listener="http"), lab.listed("there", listener="lab")]
    assert await names(routes) == ["here"]
    assert await names(routes, "points", "lab") == ["m", "there"]


async def test_a_backends_list_is_kept_for_a_minute_and_longer_while_it_is_down() -> None:
    lab = Lab("a")
    routes = [lab.listed("*")]
    assert await names(routes) == ["a"]
    lab.names = ("b",)
    lab.now = SECONDS_KEPT - 0.1
    assert (await names(routes), lab.asked) == (["a"], 1)
    lab.now = SECONDS_KEPT
    lab.down = True
    assert (await names(routes), lab.asked) == (["a"], 2)
    lab.down = False
    assert (await names(routes), lab.asked) == (["b"], 3)


async def test_a_backend_that_is_down_fails_nothing() -> None:
    down, up = Lab("a"), Lab("b")
    down.down = True
    assert await names([down.listed("*"), up.listed("*"), down.listed("exact")]) == ["exact", "b"]


async def test_a_backend_that_is_up_again_by_the_question_itself_is_listed_at_once() -> None:
    lab = Lab("a")
    lab.down = True
    assert await names([lab.listed("*")]) == []
    lab.down, lab.recovers = False, True
    assert await names([lab.listed("*")]) == ["a"]


async def test_routes_and_clients_ask_a_backend_once() -> None:
    lab = Lab("a", "b")
    answer = lab.hang()
    tasks = [asyncio.ensure_future(names([lab.listed("a*"), lab.listed("b*")])) for _ in range(2)]
    await settle()
    answer.set_result(None)
    assert await asyncio.gather(*tasks) == [["a", "b"]] * 2
    assert lab.asked == 1


async def test_a_slow_backend_is_waited_for_a_while_and_shown_the_next_time() -> None:
    slow, quick = Lab("slow", wait=0), Lab("quick")
    answer = slow.hang()
    await quick.models.get()
    routes = [slow.listed("*"), quick.listed("*")]
    await settle()
    assert await names(routes) == ["quick"]
    answer.set_result(None)
    await settle()
    assert await names(routes) == ["slow", "quick"]


# Companions


def claiming(lab: Lab, model: str, *operations: Operation, error: Exception | None = None) -> Listed:
    async def claims(name: str) -> frozenset[Operation]:
        if error is not None:
            raise error
        return frozenset(operations)

    return Listed(Conditions(model=model), BOTH, lab.models, None, claims)


async def test_a_backend_that_has_to_be_started_is_waited_for_until_its_first_answer() -> None:
    lab = Lab("a", wait=0.0, first_wait=60.0)
    answer = lab.hang()
    asked = asyncio.ensure_future(names([lab.listed("*")]))
    await settle()
    assert not asked.done()
    answer.set_result(None)
    assert await asked == ["a"]
    lab.now += SECONDS_KEPT + 1
    answer = lab.hang()  # it has ended, and starts again
    assert await names([lab.listed("*")]) == ["a"]
    answer.set_result(None)


async def test_backends_whose_servers_never_start_do_not_keep_what_is_known_from_the_list() -> None:
    """All are asked at once, and one that starts later is in a later list."""
    labs = [Lab(name, first_wait=60.0) for name in ("a", "b", "c")]
    never, later = (each.hang() for each in labs[1:])
    listing = starting(*(each.listed(f"{each.names[0]}*") for each in labs))
    assert await listed(listing) == ["a"]
    assert [each.asked for each in labs] == [1, 1, 1]
    later.set_result(None)
    await settle()
    assert await listed(listing) == ["a", "c"]
    assert [each.asked for each in labs] == [1, 1, 1]
    never.cancel()


async def test_a_model_that_a_route_names_is_listed_while_servers_start() -> None:
    lab, other = Lab("a", first_wait=60.0), Lab()
    answer = lab.hang()
    assert await listed(starting(other.listed("named"), lab.listed("*"))) == ["named"]
    assert lab.asked == 1
    answer.cancel()


async def test_the_first_model_of_several_backends_that_start_ends_the_wait() -> None:
    a, b = Lab("a", first_wait=60.0), Lab("b", first_wait=60.0)
    never, first = a.hang(), b.hang()
    asked = asyncio.ensure_future(listed(starting(a.listed("a*"), b.listed("b*"))))
    await settle()
    assert not asked.done()
    first.set_result(None)
    assert await asked == ["b"]
    never.cancel()


async def test_tensor_clients_see_the_companions_that_a_model_claims() -> None:
    route = claiming(Lab("a", "b"), "*", Operation.INFER, Operation.APPLY_JACOBIAN, Operation.GRADIENT)
    assert await names([route]) == ["a", "a.gradient", "a.apply_jacobian", "b", "b.gradient", "b.apply_jacobian"]
    assert await names([route], "points") == ["a", "b"]


async def test_a_companion_that_a_route_names_is_listed_once() -> None:
    lab = Lab()
    assert await names([lab.listed("a.gradient"), claiming(lab, "a", Operation.GRADIENT)]) == ["a.gradient", "a"]


async def test_clients_that_know_derivatives_do_not_see_the_companions_that_a_backend_lists() -> None:
    lab = Lab("a.gradient", "a", "lonely.gradient")
    assert await names([lab.listed("*")], "points") == ["a", "lonely.gradient"]
    assert await names([lab.listed("*")]) == ["a.gradient", "a", "lonely.gradient"]


async def test_a_model_whose_claims_nobody_tells_is_listed_alone() -> None:
    assert await names([claiming(Lab(), "a", error=DOWN)]) == ["a"]


async def test_claims_that_take_too_long_are_not_waited_for() -> None:
    async def claims(name: str) -> frozenset[Operation]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    routes = [Listed(Conditions(model=str(number)), BOTH, Lab().models, None, claims) for number in range(40)]
    request = Request(Operation.MODELS, protocol="tensors")
    assert len(await Listing(routes, frozenset(), wait=0)(request)) == 40


async def test_claims_are_asked_under_the_backends_name() -> None:
    asked = []

    async def claims(name: str) -> frozenset[Operation]:
        asked.append(name)
        return frozenset({Operation.GRADIENT})

    route = Listed(Conditions(model="mine"), BOTH, Lab().models, "theirs", claims)
    assert await names([route]) == ["mine", "mine.gradient"]
    assert asked == ["theirs"]
